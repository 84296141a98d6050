"""The values of a compiled condition in SQL, a column at a time. Worker.

A value may be null, that is unknown. The result of an operation with null is null, unless another operand decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.records.transform import RefusedRecord, by_distinct
from tailrace.scripting.script_run import BOOLEAN, DECIMAL, FLOATING, TEXT, WHOLE, Operation, column, matching

_FLAGS = re.compile(r"(?:\(\?[a-zA-Z]+\))?")
_WIDE = pa.decimal256(76, 38)
_TYPES = {BOOLEAN: pa.bool_(), WHOLE: pa.int64(), FLOATING: pa.float64(), TEXT: pa.string(), DECIMAL: _WIDE}
_TEXTS: dict[str, Callable[..., Any]] = {
    "length": pc.utf8_length,
    "trim": partial(pc.utf8_trim, characters=" "),
    "ltrim": partial(pc.utf8_ltrim, characters=" "),
    "rtrim": partial(pc.utf8_rtrim, characters=" "),
}
_CASES: dict[str, tuple[Callable[..., Any], Callable[[str], str]]] = {
    "lower": (pc.ascii_lower, str.lower),
    "upper": (pc.ascii_upper, str.upper),
}
_FOUND: dict[str, Callable[..., Any]] = {
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "contains": pc.match_substring,
}


def run(step: Operation, kinds: Sequence[LogicalType], where: str, *inputs: pa.Array) -> pa.Array:
    """Return the values of a step over its inputs of the types `kinds`. Raises RefusedRecord; `where` names the
    option."""
    columns = [column(kind, values) for kind, values in zip(kinds, inputs, strict=True)]
    try:
        return values_of(step, columns, len(inputs[0]))
    except pa.ArrowInvalid:
        # for example decimals with too many digits
        raise RefusedRecord(f"{where} cannot be computed of the values of this block", 0) from None


def values_of(step: Operation, columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return the values of a step in each of `count` rows."""
    if step.kind == "input":
        return columns[step.literal]
    if step.kind == "literal":
        return pa.repeat(pa.scalar(step.literal, _TYPES.get(step.of, pa.null())), count)
    found = [values_of(part, columns, count) for part in step.parts]
    match step.kind:
        case "and":
            return reduce(pc.and_kleene, found)
        case "or":
            return reduce(pc.or_kleene, found)
        case "not":
            return pc.invert(found[0])
        case "null":
            return found[0].is_null()
        case "is":
            return pc.fill_null(found[0] if step.literal else pc.invert(found[0]), False)
        case "as":
            return _as(found[0], step.of)
        case "compare":
            return _compared(step.name, found[0], found[1])
        case "among":
            return _among(found[0], step.literal)
        case "case":
            return _case(found)
    return _called(step, found)


def _as(values: pa.Array, of: str) -> pa.Array:
    """Return values as another kind of number; nulls may become any kind."""
    kind = _TYPES[of]
    if values.type == kind:
        return values
    if of == FLOATING and pa.types.is_decimal(values.type):
        # float() gives the nearest double
        return by_distinct(float, kind, values)
    if of == FLOATING and pa.types.is_integer(values.type):
        return pc.cast(values, kind, safe=False)
    if of == DECIMAL and pa.types.is_integer(values.type):
        return values.cast(pa.decimal128(19, 0)).cast(kind)
    return values.cast(kind)


def _compared(sign: str, left: pa.Array, right: pa.Array) -> pa.Array:
    match sign:
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case "<=":
            return pc.invert(_less(right, left))
        case ">=":
            return pc.invert(_less(left, right))
        case "!=":
            return pc.invert(_equal(left, right))
    same = _equal(left, right)
    if sign == "=":
        return same
    return pc.or_(pc.fill_null(same, False), pc.and_(left.is_null(), right.is_null()))


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return a boolean for each pair of values: true if they are equal. NaN equals itself."""
    same = pc.equal(left, right)
    return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right))) if pa.types.is_floating(left.type) else same


def _less(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return a boolean for each pair of values: true if the left is less. NaN is the greatest."""
    less = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return less
    return pc.or_(less, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _among(values: pa.Array, items: Sequence[Any]) -> pa.Array:
    known = [item for item in items if item is not None]
    found = pc.is_in(values, pa.array(known, values.type))
    unknown = values.is_null() if len(known) == len(items) else pc.invert(found)
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _case(found: list[pa.Array]) -> pa.Array:
    """Return the value of the first condition that is true; the last value if no condition is."""
    made = found[-1]
    for when, then in zip(reversed(found[:-1:2]), reversed(found[1::2]), strict=True):
        made = pc.if_else(pc.fill_null(when, False), then, made)
    return made


def _called(step: Operation, found: list[pa.Array]) -> pa.Array:
    values = found[0]
    match step.kind:
        case "coalesce":
            return pc.coalesce(*found)
        case "concat":
            return pc.binary_join_element_wise(*found, "", null_handling="emit_null")
        case "like":
            return pc.match_substring_regex(values, step.literal)
        case "rlike":
            return matching(step.literal, values)
        case "substring":
            return by_distinct(partial(_substring, *step.literal), pa.string(), values)
    if step.kind in _FOUND:
        return _FOUND[step.kind](values, step.literal)
    if step.kind in _TEXTS:
        return _as(_TEXTS[step.kind](values), step.of)
    ascii_case, any_case = _CASES[step.kind]
    is_ascii = pc.all(pc.string_is_ascii(values)).as_py() in (True, None)
    return ascii_case(values) if is_ascii else by_distinct(any_case, pa.string(), values)


def _substring(start: int, size: int | None, text: str) -> str:
    """Return a part of a text. Characters count from 1, or back from the end; places before the text are empty."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if size is None else first + size
    return text[max(first, 0) : max(last, 0)]


def like_expression(pattern: str, escape: str) -> str:
    """Return the regular expression of a LIKE pattern. Raises ValueError for an escape before no character."""
    parts: list[str] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            following = next(chars, "")
            if following not in ("_", "%", escape):
                raise ValueError("escapes what is no sign of a pattern")
            parts.append(re.escape(following))
        else:
            parts.append({"_": ".", "%": ".*"}.get(char) or re.escape(char))
    return rf"(?s)\A{''.join(parts)}\z"


def flags_of(expression: str) -> tuple[str, str]:
    """Return the flags at the head of an expression, which must stay there, and the rest."""
    found = _FLAGS.match(expression)
    assert found is not None
    return found[0], expression[found.end() :]


def known(step: Operation) -> Any:
    """Return the value of a step without inputs."""
    found = values_of(step, [], 1)[0].as_py()
    return Decimal(found) if step.of == DECIMAL and found is not None else found
