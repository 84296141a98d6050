"""The values of a compiled condition, a column at a time. Worker.

A step is an operation over the columns of a block. An operand is computed only in the rows in which it counts: the
second operand of `&&` in the rows in which the first is true. So a null or a zero that a condition guards against is no
fault.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.config.expressions import compile_expression, linear_expression
from tailrace.formats.casts import plain, texts
from tailrace.records.transform import RefusedRecord, by_distinct
from tailrace.scripting import script_texts
from tailrace.scripting.script_syntax import LongLiteral

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

BOOLEAN, WHOLE, FLOATING, DECIMAL, TEXT, MIXED = "boolean", "whole", "floating", "decimal", "text", "mixed"
"""The kinds of a step's values. A step of kind `mixed` stands for an operand of any kind; only its truth is kept."""

COMPARED: dict[str, Callable[..., Any]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_COUNTED: dict[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_CALLED: dict[str, Callable[..., Any]] = {
    "startsWith": pc.starts_with,
    "endsWith": pc.ends_with,
    "contains": pc.match_substring,
    "equalsIgnoreCase": script_texts.ignoring_case,
    "toLowerCase": script_texts.lower,
    "toUpperCase": script_texts.upper,
    "length": script_texts.length,
    "isEmpty": lambda values: pc.equal(pc.binary_length(values), 0),
}
_HARMLESS = ("input", "literal")
CALLED = frozenset(_CALLED) | {"matches", "substring", "trim", "replace"}
"""The methods of texts."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. `kind` is its kind, `name` its operator or method, and `of` the kind of its values."""

    kind: str
    of: str
    name: str = ""
    parts: tuple[Operation, ...] = ()
    literal: Any = None
    at: int = 0


def run(step: Operation, kinds: Sequence[LogicalType], is_javascript: bool, where: str, *inputs: pa.Array) -> pa.Array:
    """Return the values of a step over its inputs of the types `kinds`. Raises RefusedRecord; `where` names the
    option."""
    count = len(inputs[0])
    columns = [column(kind, values) for kind, values in zip(kinds, inputs, strict=True)]
    return ScriptRun(is_javascript, where).of(step, columns, np.arange(count))


def column(kind: LogicalType, values: pa.Array) -> pa.Array:
    """Return the values of an input as events show them."""
    return texts(kind, values) if kind.connect == "string" else plain(values)


def truth(values: pa.Array) -> Flags:
    """Return a flag for each value: false for null, false, zero, NaN and the empty text, else true."""
    if pa.types.is_string(values.type):
        values = pc.greater(pc.binary_length(values), 0)
    elif pa.types.is_null(values.type):
        return np.zeros(len(values), np.bool_)
    elif not pa.types.is_boolean(values.type):
        values = pc.and_(pc.not_equal(values, _zero(values.type)), pc.equal(values, values))
    found: Flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found


class ScriptRun:
    """A run over a block, by the rules of JavaScript or of Groovy."""

    def __init__(self, is_javascript: bool, where: str) -> None:
        self._is_javascript = is_javascript
        self._where = where

    def of(self, step: Operation, columns: list[pa.Array], rows: Rows) -> pa.Array:
        match step.kind:
            case "input":
                return columns[step.literal]
            case "refused":
                if len(rows):
                    raise RefusedRecord(str(step.literal), int(rows[0]))
                return pa.nulls(0)
            case "literal":
                return pa.repeat(_scalar(step), len(rows))
            case "both" | "either":
                return self._logic(step, columns, rows)
            case "both of values" | "either of values":
                return self._logic_of_values(step, columns, rows)
            case "choice":
                return self._choice(step, columns, rows)
        found = [self.of(part, columns, rows) for part in step.parts]
        try:
            return self._done(step, found, rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, ArithmeticError):
            # for example a product of decimals with too many digits
            fault = f"{self._where} cannot compute {step.name} at character {step.at + 1}"
            raise RefusedRecord(fault, int(rows[0])) from None

    def _done(self, step: Operation, found: list[pa.Array], rows: Rows) -> pa.Array:
        """Return the values of an operation over the values of its operands."""
        match step.kind:
            case "not":
                return pa.array(~truth(found[0]))
            case "truth":
                return pa.array(truth(found[0]))
            case "null":
                return found[0].is_null()
            case "result":
                self._no_null(step, found[0], rows)
                return found[0]
            case "equal":
                return self._equal(*_alike(found))
            case "compare":
                # of two doubles of Java, as the processor compares them
                plainly = all(pa.types.is_float64(values.type) for values in found)
                return self._compared(step, *_alike(found), plainly=plainly)
            case "count":
                left, right = found if step.name == "minus" else _alike(found)
                return self._counted(step, left, right, rows)
            case "shown":
                self._no_null(step, found[0], rows)
                return self._text(found[0])
            case "join":
                shown = [self._text(part) for part in found]
                return pc.binary_join_element_wise(*shown, "", null_handling="replace", null_replacement="null")
            case "among":
                return _among(found[0], step.literal)
        return self._called(step, found[0], rows)

    def _logic(self, step: Operation, columns: list[pa.Array], rows: Rows) -> pa.Array:
        """Return the values of `&&` or `||`: the second operand counts where the first does not decide."""
        found = truth(self.of(step.parts[0], columns, rows)).copy()
        open_rows = np.flatnonzero(found == (step.kind == "both"))
        if len(open_rows):
            found[open_rows] = truth(self._in(step.parts[1], columns, rows, open_rows))
        return pa.array(found)

    def _logic_of_values(self, step: Operation, columns: list[pa.Array], rows: Rows) -> pa.Array:
        """Return the operand that decides, which may be null, for `&&` and `||` of JavaScript."""
        first = self.of(step.parts[0], columns, rows)
        open_rows = np.flatnonzero(truth(first) == step.kind.startswith("both"))
        if not len(open_rows):
            return first
        second = self._in(step.parts[1], columns, rows, open_rows)
        places = np.arange(len(rows))
        places[open_rows] = len(rows) + np.arange(len(open_rows))
        return pa.concat_arrays([first.cast(pa.bool_()), second.cast(pa.bool_())]).take(pa.array(places))

    def _choice(self, step: Operation, columns: list[pa.Array], rows: Rows) -> pa.Array:
        chosen = truth(self.of(step.parts[0], columns, rows))
        if all(part.kind in _HARMLESS for part in step.parts[1:]):
            found = [self.of(part, columns, rows) for part in step.parts[1:]]
            return pc.if_else(pa.array(chosen), *found)
        yes, no = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        parts = [self._in(step.parts[1], columns, rows, yes), self._in(step.parts[2], columns, rows, no)]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
        order = np.argsort(np.concatenate([yes, no]), kind="stable")
        return pa.concat_arrays([part.cast(kind) for part in parts]).take(pa.array(order))

    def _in(self, step: Operation, columns: list[pa.Array], rows: Rows, some: Rows) -> pa.Array:
        """Return the values of a step in some of the rows."""
        if len(some) == len(rows):
            return self.of(step, columns, rows)
        taken = pa.array(some)
        return self.of(step, [column.take(taken) for column in columns], rows[some])

    def _compared(self, step: Operation, left: pa.Array, right: pa.Array, *, plainly: bool) -> pa.Array:
        texts_of = TEXT in (step.parts[0].of, step.parts[1].of)
        if self._is_javascript and texts_of:
            # JavaScript compares null with a text as numbers
            known = [pa.types.is_string(side.type) for side in (left, right)]
            if not all(known) or left.null_count or right.null_count:
                return _of_numbers_or_texts(step.name, left, right)
        if self._is_javascript and not texts_of:
            left, right = (_doubles(pc.fill_null(side, _zero(side.type))) for side in _named((left, right)))
        elif pa.types.is_floating(left.type) and pa.types.is_floating(right.type) and not plainly:
            left, right = _total(left), _total(right)
        left, right = _named((left, right))
        if pa.types.is_string(left.type):
            left, right = _in_order(left, right)
        found = pc.fill_null(COMPARED[step.name](left, right), False)
        if self._is_javascript or not (left.null_count or right.null_count):
            return found
        # null is the least of all in Groovy
        only_left = pc.and_(left.is_null(), right.is_valid())
        only_right = pc.and_(right.is_null(), left.is_valid())
        both = pc.and_(left.is_null(), right.is_null())
        is_less = step.name[0] == "<"
        ordered = pc.or_(only_left if is_less else only_right, both if step.name[1:] else pc.and_(both, False))
        return pc.or_(found, ordered)

    def _equal(self, left: pa.Array, right: pa.Array) -> pa.Array:
        if pa.types.is_floating(left.type) and not self._is_javascript:
            left, right = _total(left), _total(right)
        left, right = _named((left, right))
        same = pc.fill_null(pc.equal(left, right), False)
        if not (left.null_count and right.null_count):
            return same
        return pc.or_(same, pc.and_(left.is_null(), right.is_null()))

    def _counted(self, step: Operation, left: pa.Array, right: pa.Array, rows: Rows) -> pa.Array:
        if self._is_javascript:
            left, right = (_doubles(pc.fill_null(side, _zero(side.type))) for side in _named((left, right)))
        self._no_null(step, left, rows)
        self._no_null(step, right, rows)
        if step.name == "minus":
            return pc.negate(_wide(left))
        if step.name != "%":
            return _COUNTED[step.name](_wide(left), _wide(right))
        if pa.types.is_floating(left.type):
            with np.errstate(invalid="ignore"):
                return pa.array(np.fmod(left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False)))
        zero = pc.index(pc.equal(right, _zero(right.type)), True).as_py()
        if zero >= 0:
            raise RefusedRecord(f"{self._where} divides by zero at character {step.at + 1}", int(rows[zero]))
        if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
            return pa.array([Decimal(a) % Decimal(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)])
        left, right = _wide(left), _wide(right)
        return pc.subtract(left, pc.multiply(pc.divide(left, right), right))

    def _called(self, step: Operation, values: pa.Array, rows: Rows) -> pa.Array:
        self._no_null(step, values, rows)
        match step.name:
            case "matches":
                return matching(step.literal[0], values)
            case "trim":
                return script_texts.trim(values, self._is_javascript)
            case "replace":
                return script_texts.replaced(values, step.literal[0], step.literal[1], self._is_javascript)
            case "substring":
                end = int(step.literal[1]) if step.literal[1:] else None
                found, none = script_texts.part(values, int(step.literal[0]), end, self._is_javascript)
                wrong = pc.index(none, True).as_py() if len(none) else -1
                if wrong >= 0:
                    fault = f"{self._where} takes more of a text than it has at character {step.at + 1}"
                    raise RefusedRecord(fault, int(rows[wrong]))
                return found
        return _CALLED[step.name](values, *step.literal)

    def _text(self, values: pa.Array) -> pa.Array:
        """Return the texts of the values, as a concatenation shows them."""
        if pa.types.is_string(values.type):
            return values
        if self._is_javascript and pa.types.is_floating(values.type):
            return script_texts.number_texts(_doubles(values))
        return texts(LogicalType("plain"), values)

    def _no_null(self, step: Operation, values: pa.Array, rows: Rows) -> None:
        if values.null_count:
            row = pc.index(values.is_null(), True).as_py()
            raise RefusedRecord(f"{self._where} uses {step.name} of null at character {step.at + 1}", int(rows[row]))


def _among(values: pa.Array, items: list[Any]) -> pa.Array:
    if not pa.types.is_string(values.type) and not pa.types.is_boolean(values.type):
        whole = pa.types.is_integer(values.type) and all(isinstance(item, int) for item in items)
        values = pc.cast(values, pa.int64() if whole else pa.float64(), safe=False)
        items = [int(item) if whole else float(item) for item in items]
    return pc.fill_null(pc.is_in(values, pa.array(items, values.type)), False)


def _alike(pair: list[pa.Array]) -> list[pa.Array]:
    """Return both columns as doubles if one of them is floating, as Java compares and computes."""
    if not any(pa.types.is_floating(values.type) for values in pair):
        return pair
    return [
        pa.nulls(len(values), pa.float64()) if pa.types.is_null(values.type) else _doubles(values) for values in pair
    ]


def _named(pair: Sequence[pa.Array]) -> list[pa.Array]:
    """Return both arrays; nulls without a type get the type of the other array."""
    left, right = pair
    if pa.types.is_null(left.type):
        return [pa.nulls(len(left), right.type), right]
    return [left, pa.nulls(len(right), left.type) if pa.types.is_null(right.type) else right]


def _doubles(values: pa.Array) -> pa.Array:
    """Return numbers as doubles: for decimals the nearest, and 0 for nulls without a type."""
    if pa.types.is_null(values.type):
        return pa.repeat(0.0, len(values))
    if pa.types.is_decimal(values.type):
        return by_distinct(float, pa.float64(), values)
    return pc.cast(values, pa.float64(), safe=False)


def _wide(values: pa.Array) -> pa.Array:
    """Return whole numbers with at least 32 bits, as Java computes with them."""
    narrow = pa.types.is_integer(values.type) and values.type.bit_width < 32
    return values.cast(pa.int32()) if narrow else values


def _total(values: pa.Array) -> pa.Array:
    """Return doubles as whole numbers that sort as Java's Double.compare does: NaN is the greatest, and 0 above -0."""
    doubles = _doubles(values)
    plain_nan = pc.if_else(pc.is_nan(doubles), pa.scalar(float("nan")), doubles)
    bits = pc.fill_null(plain_nan, 0.0).to_numpy(zero_copy_only=False).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(ordered, mask=np.asarray(values.is_null()))


def _in_order(left: pa.Array, right: pa.Array) -> list[pa.Array]:
    """Return texts as bytes that sort like their UTF-16; texts that are all ASCII are returned unchanged."""
    if script_texts.is_ascii(left) and script_texts.is_ascii(right):
        return [left, right]
    return [script_texts.ordered(side) for side in (left, right)]


def _of_numbers_or_texts(sign: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare texts, as JavaScript does where some are null: null is 0, and the other text is read as a number."""
    compared = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[sign]

    def ordered(pair: tuple[str | None, str | None]) -> bool:
        first, second = pair
        if first is not None and second is not None:
            sides = [text.encode("utf-16-be", "surrogatepass") for text in (first, second)]
            return bool(compared(*sides))
        return bool(compared(*(0.0 if text is None else script_texts.read_number(text) for text in pair)))

    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([ordered(pair) for pair in pairs], pa.bool_())


def _zero(of: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, of) if pa.types.is_null(of) else pa.scalar(Decimal(0) if pa.types.is_decimal(of) else 0, of)


def _scalar(step: Operation) -> pa.Scalar:
    value = step.literal
    if isinstance(value, bool) or value is None or isinstance(value, str | float | Decimal):
        return pa.scalar(value)
    narrow = -(1 << 31) <= value < 1 << 31 and not isinstance(value, LongLiteral)
    return pa.scalar(int(value), pa.int32() if narrow else pa.int64())


def matching(pattern: str, values: pa.Array) -> pa.Array:
    """Return a boolean for each text: true if a regular expression of Java matches the whole text."""
    linear = linear_expression(pattern)
    if linear is not None:
        return pc.match_substring_regex(values, linear)
    return by_distinct(compile_expression(pattern, ignore_case=False).fullmatch, pa.bool_(), values)
