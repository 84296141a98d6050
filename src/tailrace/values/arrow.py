"""Typed columns: the Arrow type of each semantic type, and the texts of a column as an array of it. Workers.

What a semantic type is in Arrow stands in the module of its family, in one line (`stored`); a type without one is what
its Connect type is. Numbers are stored as events show them: a Date's infinity is the end of an int32. A value that
the Arrow type cannot hold, as a time of 24:00:00, counts as one that cannot be converted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.assembly.json_text import Verbatim
from tailrace.buffers import Bytes, readonly
from tailrace.columns.logical import STRING, LogicalType
from tailrace.values.conversion import ColumnPlan, Conversion, Family, Typed, plain_value
from tailrace.values.texts import LOST, NULL, VALUE, Flags, Shown, Texts, without_bad_text

_MOST_KNOWN = 100_000
_INTEGERS = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64()}
_PLAIN: dict[str, pa.DataType] = {
    **_INTEGERS,
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class _Stored:
    """How the values of a semantic type lie in Arrow: their type, the type that they are made of, and the way there.

    `value` takes what a plain conversion gives; it raises ValueError where the Arrow type cannot hold that.
    """

    of: Callable[[LogicalType], pa.DataType]
    made_of: Callable[[LogicalType], pa.DataType]
    value: Callable[[Any, LogicalType], Any]


_STORED: dict[str, _Stored] = {}


def stored(
    name: str,
    of: pa.DataType | Callable[[LogicalType], pa.DataType],
    value: Callable[[Any, LogicalType], Any] | None = None,
    made_of: pa.DataType | None = None,
) -> None:
    """Say what the semantic type `name` is in Arrow: the type, for some from what the schema says.

    `value` makes what Arrow takes of what the plain conversion gives; None stands for the value itself. `made_of` is
    the type of that where it is not `of`.
    """

    def type_of(logical: LogicalType) -> pa.DataType:
        return of if isinstance(of, pa.DataType) else of(logical)

    made = type_of if made_of is None else lambda logical: made_of
    _STORED[name] = _Stored(type_of, made, value or _plain_stored)


def arrow_type_of(logical: LogicalType) -> pa.DataType:
    """The Arrow type that holds the values of `logical`."""
    known = _STORED.get(logical.name or "")
    return _nested(logical, arrow_type_of) if known is None else known.of(logical)


def _made_of(logical: LogicalType) -> pa.DataType:
    known = _STORED.get(logical.name or "")
    return _nested(logical, _made_of) if known is None else known.made_of(logical)


def _nested(logical: LogicalType, of: Callable[[LogicalType], pa.DataType]) -> pa.DataType:
    """The Arrow type of a Connect type, its parts by `of`."""
    plain = _PLAIN.get(logical.connect)
    if plain is not None:
        return plain
    if logical.connect == "struct":
        return pa.struct([pa.field(part.name, of(part.type), part.type.optional) for part in logical.fields])
    if logical.items is None:
        raise ValueError(f"a logical type {logical.connect} needs items")
    if logical.connect == "map":
        return pa.map_(of(logical.keys or STRING), pa.field("value", of(logical.items), logical.items.optional))
    return pa.list_(pa.field("element", of(logical.items), logical.items.optional))


def arrow_value(value: Any, logical: LogicalType) -> Any:
    """What Arrow takes for a value of a plain conversion. ValueError where the Arrow type cannot hold it."""
    if value is None:
        return None
    known = _STORED.get(logical.name or "")
    return _plain_stored(value, logical) if known is None else known.value(value, logical)


def _plain_stored(value: Any, logical: LogicalType) -> Any:
    connect = logical.connect
    if connect in _INTEGERS:
        number, bits = int(value), _INTEGERS[connect].bit_width
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(f"beyond {bits} bits")
        return number
    if connect in ("float", "double"):
        return float(value)
    if connect == "bytes":
        return base64.b64decode(value)
    if connect == "struct":
        return {part.name: arrow_value(value[part.name], part.type) for part in logical.fields}
    if logical.items is None:
        return value
    if connect == "map":
        keys, items = logical.keys or STRING, logical.items
        pairs = value.items() if isinstance(value, dict) else value
        return [(arrow_value(key, keys), arrow_value(item, items)) for key, item in pairs]
    return [arrow_value(item, logical.items) for item in value]


def arrow_array(values: list[Any], logical: LogicalType) -> pa.Array:
    """An array of what `arrow_value` gave."""
    made = pa.array(values, _made_of(logical))
    of = arrow_type_of(logical)
    return made if made.type == of else made.cast(of)


def arrow_type(plan: ColumnPlan) -> pa.DataType:
    """The Arrow type of a column's values."""
    return arrow_type_of(plan.schema)


def arrow(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None = None) -> pa.Array:
    """A column of the server's texts, a `binary` array, as an array of `arrow_type(plan)`.

    A null is what the plan shows for it, and so is a text that cannot be converted; `unavailable` marks unchanged
    TOAST values, which are what the plan shows for those.
    """
    return typed(plan, column, unavailable)[0]


def typed(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None = None) -> tuple[pa.Array, Flags]:
    """As `arrow`, and which texts could not be converted: those that have no JSON, and those beyond the Arrow type."""
    conversion = plan.conversion
    if plan.shape is not None and not conversion.by_value:
        column = plan.shape.column(column)
    texts, bad = without_bad_text(column, unavailable)
    found = typed_of(conversion, texts)
    outcome = found.outcome if len(found.outcome) else np.zeros(len(column), np.uint8)
    lost = outcome == LOST
    if bad is not None:
        lost = lost | bad
    return _filled(found.values, outcome, plan), lost


def _filled(values: pa.Array, outcome: Bytes, plan: ColumnPlan) -> pa.Array:
    """The values, and what the plan shows in the rows that have none."""
    if not outcome.any():
        return values
    null, unavailable = (_literal(text, plan.schema) for text in (plan.null, plan.unavailable))
    if null is None and unavailable is None:
        rows = pa.array(np.arange(len(values)), mask=outcome != VALUE)
        return values.take(rows)
    count = len(values)
    places = np.array([0, count, count + 1, count], np.int64)[outcome]
    rows = np.where(outcome == VALUE, np.arange(count), places)
    return pa.concat_arrays([values, arrow_array([null, unavailable], plan.schema)]).take(pa.array(rows))


def _literal(text: bytes, logical: LogicalType) -> Any:
    """What Arrow takes for a value that a plan has as JSON."""
    return arrow_value(json.loads(text, parse_float=Verbatim), logical)


def typed_of(conversion: Conversion, texts: Texts) -> Typed:
    """The values of texts by the conversion's family."""
    logical = conversion.logical
    found = conversion.family.arrow(texts, logical, arrow_type_of(logical))
    return found or _plainly(conversion, texts)


def _plainly(conversion: Conversion, texts: Texts) -> Typed:
    """As `typed_of`, value by value; equal texts are converted once."""
    outcome = np.zeros(len(texts), np.uint8)
    outcome[: len(texts.state)] = texts.state
    known: dict[bytes, tuple[int, Any]] = {}
    values: list[Any] = [None] * len(texts)
    for row, text in enumerate(texts.column.to_pylist()):
        if outcome[row] == VALUE:
            found = known.get(text) or _plain(conversion, text)
            if len(known) < _MOST_KNOWN:
                known[text] = found
            outcome[row], values[row] = found
    return Typed(arrow_array(values, conversion.logical), readonly(outcome))


def _plain(conversion: Conversion, text: bytes) -> tuple[int, Any]:
    outcome, value = plain_value(conversion, text)
    try:
        return outcome, arrow_value(value, conversion.logical)
    except ValueError:
        return LOST, None


def with_numbers(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers in the place of its dates and timestamps, as Python has no values for all of them."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_numbers(kind.value_type)).with_nullable(True))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(with_numbers(part.type)).with_nullable(True) for part in kind])
    return kind


def numbers_of(made_by: Callable[..., Any], texts: Texts, argument: int, of: pa.DataType) -> Typed:
    """The numbers that a kernel makes of texts, as an array of the type `of`, which has 32 or 64 bits."""
    out, outcome = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.uint8)
    made_by(texts.data, texts.bounds, texts.state, argument, out, outcome)
    numbers: npt.NDArray[Any] = out.astype(np.int32) if of.bit_width == 32 else out
    return Typed(pa.Array.from_buffers(of, len(texts), [None, pa.py_buffer(numbers)]), readonly(outcome))


def strings_of(family: Family, texts: Texts) -> Typed | None:
    """The strings that the family writes as JSON, where these have nothing to escape."""
    found = family.json(texts, Shown("", b"n", b"u", b""))
    if found is None:
        return None
    fragment = found[0]
    sizes = np.diff(fragment.offsets)
    outcome = np.zeros(len(texts), np.uint8)
    outcome[: len(texts.state)] = texts.state
    outcome[(sizes == 1) & (outcome == VALUE)] = NULL
    outcome[sizes == 0] = LOST
    buffers = [None, pa.py_buffer(fragment.offsets), pa.py_buffer(fragment.data)]
    quoted = pa.Array.from_buffers(pa.binary(), len(texts), buffers)
    return Typed(pc.binary_slice(quoted, 1, -1).cast(pa.string()), readonly(outcome))
