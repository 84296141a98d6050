"""Typed columns: the Arrow type of each semantic type, and columns of texts as Arrow arrays. Worker.

The module of a family defines the Arrow type of its semantic types in one line (`stored`); other types follow from
their Connect type. Numbers are the same as in events: an infinite Date is an end of the range of int32. A value that
the Arrow type cannot hold, such as 24:00:00, counts as unconvertible.
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

from tailrace.columns.logical import STRING, LogicalType
from tailrace.kernels.buffers import Bytes, readonly
from tailrace.values.conversion import ColumnPlan, Conversion, Family, TypedColumn, plain_value
from tailrace.values.json_text import Verbatim
from tailrace.values.texts import LOST, NULL, VALUE, Flags, ShownValues, Texts, without_bad_text

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
    """The Arrow form of a semantic type: its type, the type from which it is cast, and the conversion.

    `value` takes the result of a plain conversion. It raises ValueError if the Arrow type cannot hold it.
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
    """Define the Arrow type of the semantic type `name`, which may depend on the schema.

    `value` converts the result of the plain conversion for Arrow; None keeps it. `made_of` is the type of its result if
    that is not `of`.
    """

    def type_of(logical: LogicalType) -> pa.DataType:
        return of if isinstance(of, pa.DataType) else of(logical)

    made = type_of if made_of is None else lambda logical: made_of
    _STORED[name] = _Stored(type_of, made, value or _plain_stored)


def arrow_type_of(logical: LogicalType) -> pa.DataType:
    """Return the Arrow type that holds the values of `logical`."""
    known = _STORED.get(logical.name or "")
    return _nested(logical, arrow_type_of) if known is None else known.of(logical)


def _made_of(logical: LogicalType) -> pa.DataType:
    known = _STORED.get(logical.name or "")
    return _nested(logical, _made_of) if known is None else known.made_of(logical)


def _nested(logical: LogicalType, of: Callable[[LogicalType], pa.DataType]) -> pa.DataType:
    """Return the Arrow type of a Connect type, its parts by `of`."""
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
    """Return Arrow's form of a plain conversion's result. Raises ValueError if the Arrow type cannot hold it."""
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
    """Return an array of results of `arrow_value`."""
    made = pa.array(values, _made_of(logical))
    of = arrow_type_of(logical)
    return made if made.type == of else made.cast(of)


def arrow_type(plan: ColumnPlan) -> pa.DataType:
    """Return the Arrow type of a column's values."""
    return arrow_type_of(plan.schema)


def arrow(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None = None) -> pa.Array:
    """Return a column of the server's texts, a `binary` array, as an array of `arrow_type(plan)`.

    A null, or a text that cannot be converted, becomes the plan's null. `unavailable` marks unchanged TOAST values,
    which become the plan's placeholder.
    """
    return typed(plan, column, unavailable)[0]


def typed(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None = None) -> tuple[pa.Array, Flags]:
    """Return the result of `arrow`, and a mask of the texts that have no JSON form or do not fit the Arrow type."""
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
    """Return the values, with the plan's null or placeholder in rows without one."""
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
    """Return Arrow's form of a value that a plan has as JSON."""
    return arrow_value(json.loads(text, parse_float=Verbatim), logical)


def typed_of(conversion: Conversion, texts: Texts) -> TypedColumn:
    """Return the values of texts, converted by the conversion's family."""
    logical = conversion.logical
    found = conversion.family.arrow(texts, logical, arrow_type_of(logical))
    return found or _plainly(conversion, texts)


def _plainly(conversion: Conversion, texts: Texts) -> TypedColumn:
    """Return the values of texts, converted one at a time; equal texts are converted once."""
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
    return TypedColumn(arrow_array(values, conversion.logical), readonly(outcome))


def _plain(conversion: Conversion, text: bytes) -> tuple[int, Any]:
    outcome, value = plain_value(conversion, text)
    try:
        return outcome, arrow_value(value, conversion.logical)
    except ValueError:
        return LOST, None


def with_numbers(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers in place of its dates and timestamps, some of which Python cannot represent."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_numbers(kind.value_type)).with_nullable(True))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(with_numbers(part.type)).with_nullable(True) for part in kind])
    return kind


def numbers_of(made_by: Callable[..., Any], texts: Texts, argument: int, of: pa.DataType) -> TypedColumn:
    """Return the numbers that a kernel makes of texts, as an array of the 32-bit or 64-bit type `of`."""
    out, outcome = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.uint8)
    made_by(texts.data, texts.bounds, texts.state, argument, out, outcome)
    numbers: npt.NDArray[Any] = out.astype(np.int32) if of.bit_width == 32 else out
    return TypedColumn(pa.Array.from_buffers(of, len(texts), [None, pa.py_buffer(numbers)]), readonly(outcome))


def strings_of(family: Family, texts: Texts) -> TypedColumn | None:
    """Return the strings that the family writes as JSON; valid only if they need no escapes."""
    found = family.json(texts, ShownValues("", b"n", b"u", b""))
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
    return TypedColumn(pc.binary_slice(quoted, 1, -1).cast(pa.string()), readonly(outcome))
