"""The values of a compiled condition, a column at a time. Worker.

A step is an operation over the columns of a block. Its operands are computed where they count alone: the second one of
`&&` only in the rows where the first one is true, so that a null or a zero that a condition looks out for is no fault.
"""

from __future__ import annotations

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
from tailrace.records.transform import Refused, by_distinct
from tailrace.transforms.casts import plain, texts

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

BOOLEAN, WHOLE, FLOATING, DECIMAL, TEXT = "boolean", "whole", "floating", "decimal", "text"
"""What the values of a step are."""

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
    "equalsIgnoreCase": lambda values, text: pc.equal(pc.utf8_lower(values), text.lower()),
    "toLowerCase": pc.utf8_lower,
    "toUpperCase": pc.utf8_upper,
    "trim": lambda values: pc.utf8_trim(values, "".join(map(chr, range(33)))),
    "length": pc.utf8_length,
    "isEmpty": lambda values: pc.equal(pc.binary_length(values), 0),
    "replace": pc.replace_substring,
}
_HARMLESS = ("input", "literal")
CALLED = frozenset(_CALLED) | {"matches", "substring"}
"""The methods of texts."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `kind` says which, `name` its operator or method; `of` is what its values are."""

    kind: str
    of: str
    name: str = ""
    parts: tuple[Step, ...] = ()
    literal: Any = None
    at: int = 0


def run(step: Step, kinds: Sequence[LogicalType], null_is_zero: bool, where: str, *inputs: pa.Array) -> pa.Array:
    """The values of a step over its inputs, whose types are `kinds`. Raises Refused; `where` names the option."""
    count = len(inputs[0])
    columns = [column(kind, values) for kind, values in zip(kinds, inputs, strict=True)]
    return Run(null_is_zero, where).of(step, columns, np.arange(count))


def column(kind: LogicalType, values: pa.Array) -> pa.Array:
    """The values of an input as events show them."""
    return texts(kind, values) if kind.connect == "string" else plain(values)


def truth(values: pa.Array) -> Flags:
    """Which values count as true: neither null nor false, zero or empty."""
    if pa.types.is_string(values.type):
        values = pc.greater(pc.binary_length(values), 0)
    elif not pa.types.is_boolean(values.type):
        values = pc.not_equal(values, _zero(values.type))
    found: Flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found


class Run:
    """One run over a block; `null_is_zero` where null counts as 0, as in JavaScript."""

    def __init__(self, null_is_zero: bool, where: str) -> None:
        self._null_is_zero = null_is_zero
        self._where = where

    def of(self, step: Step, columns: list[pa.Array], rows: Rows) -> pa.Array:
        match step.kind:
            case "input":
                return columns[step.literal]
            case "refused":
                if len(rows):
                    raise Refused(str(step.literal), int(rows[0]))
                return pa.nulls(0)
            case "literal":
                return pa.repeat(_scalar(step), len(rows))
            case "both" | "either":
                return self._logic(step, columns, rows)
            case "choice":
                return self._choice(step, columns, rows)
        found = [self.of(part, columns, rows) for part in step.parts]
        try:
            return self._done(step, found, rows)
        except pa.ArrowInvalid:
            # as of decimals whose product has more digits than there are
            fault = f"{self._where} cannot compute {step.name} at character {step.at + 1}"
            raise Refused(fault, int(rows[0])) from None

    def _done(self, step: Step, found: list[pa.Array], rows: Rows) -> pa.Array:
        """The values of an operation over those of its operands."""
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
                return _equal(*_alike(found))
            case "compare":
                return self._compared(step, *_alike(found))
            case "count":
                left, right = _alike(found)
                return self._counted(step, left, right, rows)
            case "join":
                shown = [_text(part) for part in found]
                return pc.binary_join_element_wise(*shown, "", null_handling="replace", null_replacement="null")
            case "among":
                return _among(found[0], step.literal)
        return self._called(step, found[0], rows)

    def _logic(self, step: Step, columns: list[pa.Array], rows: Rows) -> pa.Array:
        """`&&` and `||`: the second operand counts where the first does not decide."""
        found = truth(self.of(step.parts[0], columns, rows)).copy()
        open_rows = np.flatnonzero(found == (step.kind == "both"))
        if len(open_rows):
            found[open_rows] = truth(self._in(step.parts[1], columns, rows, open_rows))
        return pa.array(found)

    def _choice(self, step: Step, columns: list[pa.Array], rows: Rows) -> pa.Array:
        chosen = truth(self.of(step.parts[0], columns, rows))
        if all(part.kind in _HARMLESS for part in step.parts[1:]):
            found = [self.of(part, columns, rows) for part in step.parts[1:]]
            return pc.if_else(pa.array(chosen), *found)
        yes, no = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        parts = [self._in(step.parts[1], columns, rows, yes), self._in(step.parts[2], columns, rows, no)]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
        order = np.argsort(np.concatenate([yes, no]), kind="stable")
        return pa.concat_arrays([part.cast(kind) for part in parts]).take(pa.array(order))

    def _in(self, step: Step, columns: list[pa.Array], rows: Rows, some: Rows) -> pa.Array:
        """The values of a step in some of the rows."""
        if len(some) == len(rows):
            return self.of(step, columns, rows)
        taken = pa.array(some)
        return self.of(step, [column.take(taken) for column in columns], rows[some])

    def _compared(self, step: Step, left: pa.Array, right: pa.Array) -> pa.Array:
        if self._null_is_zero and step.parts[0].of != TEXT:
            left, right = (pc.fill_null(side, _zero(side.type)) for side in (left, right))
        found = pc.fill_null(COMPARED[step.name](left, right), False)
        if self._null_is_zero or not (left.null_count or right.null_count):
            return found
        # null is the least of all in Groovy
        lower, higher = (pc.and_(one.is_null(), other.is_valid()) for one, other in ((left, right), (right, left)))
        both = pc.and_(left.is_null(), right.is_null())
        ordered = pc.or_(lower if step.name[0] == "<" else higher, both if step.name[1:] else pc.and_(both, False))
        return pc.or_(found, ordered)

    def _counted(self, step: Step, left: pa.Array, right: pa.Array, rows: Rows) -> pa.Array:
        if self._null_is_zero:
            left, right = (pc.fill_null(side, _zero(side.type)) for side in (left, right))
        self._no_null(step, left, rows)
        self._no_null(step, right, rows)
        if step.name != "%":
            return _COUNTED[step.name](left, right)
        zero = pc.index(pc.equal(right, _zero(right.type)), True).as_py()
        if zero >= 0:
            raise Refused(f"{self._where} divides by zero at character {step.at + 1}", int(rows[zero]))
        whole = pc.divide(left, right)
        whole = pc.trunc(whole) if pa.types.is_floating(whole.type) else whole
        return pc.subtract(left, pc.multiply(whole, right))

    def _called(self, step: Step, values: pa.Array, rows: Rows) -> pa.Array:
        self._no_null(step, values, rows)
        if step.name == "matches":
            return matching(step.literal[0], values)
        if step.name == "substring":
            start, *end = step.literal
            short = pc.utf8_length(values)
            wrong = pc.index(pc.less(short, max(step.literal)), True).as_py()
            if wrong >= 0:
                fault = f"{self._where} takes more of a text than it has at character {step.at + 1}"
                raise Refused(fault, int(rows[wrong]))
            return pc.utf8_slice_codeunits(values, start, *end)
        return _CALLED[step.name](values, *step.literal)

    def _no_null(self, step: Step, values: pa.Array, rows: Rows) -> None:
        if values.null_count:
            row = pc.index(values.is_null(), True).as_py()
            raise Refused(f"{self._where} uses {step.name} of null at character {step.at + 1}", int(rows[row]))


def _among(values: pa.Array, items: list[Any]) -> pa.Array:
    if not pa.types.is_string(values.type) and not pa.types.is_boolean(values.type):
        whole = pa.types.is_integer(values.type) and all(isinstance(item, int) for item in items)
        values = pc.cast(values, pa.int64() if whole else pa.float64(), safe=False)
        items = [int(item) if whole else float(item) for item in items]
    return pc.fill_null(pc.is_in(values, pa.array(items, values.type)), False)


def _alike(pair: list[pa.Array]) -> list[pa.Array]:
    """Numbers as doubles where one of them is a floating one, as Java compares and counts."""
    if not any(pa.types.is_floating(values.type) for values in pair):
        return pair
    return [pc.cast(values, pa.float64(), safe=False) for values in pair]


def _zero(of: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, of) if pa.types.is_null(of) else pa.scalar(Decimal(0) if pa.types.is_decimal(of) else 0, of)


def _scalar(step: Step) -> pa.Scalar:
    value = step.literal
    if isinstance(value, bool) or value is None or isinstance(value, str | float | Decimal):
        return pa.scalar(value)
    return pa.scalar(value, pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64())


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    same = pc.fill_null(pc.equal(left, right), False)
    if not (left.null_count and right.null_count):
        return same
    return pc.or_(same, pc.and_(left.is_null(), right.is_null()))


def _text(values: pa.Array) -> pa.Array:
    return values if pa.types.is_string(values.type) else texts(LogicalType("plain"), values)


def matching(pattern: str, values: pa.Array) -> pa.Array:
    """Which texts a regular expression of Java's matches as a whole."""
    linear = linear_expression(pattern)
    if linear is not None:
        return pc.match_substring_regex(values, linear)
    return by_distinct(compile_expression(pattern, ignore_case=False).fullmatch, pa.bool_(), values)
