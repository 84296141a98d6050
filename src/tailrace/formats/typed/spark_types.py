"""The Arrow types that Spark supports, and arrays in them. Worker, driver.

Spark's decimals have 38 digits, its timestamps and intervals microseconds. Its type for times of day is off by default,
so times of day are texts.
"""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.typed import is_variant
from tailrace.values.decimals import spark_decimal, spark_decimals

_NANOSECONDS = pa.timestamp("ns")
_DURATION = pa.duration("us")


class NotHeld(Exception):
    """Values of the field at this path do not fit the type declared for it."""

    def __init__(self, path: str, kind: pa.DataType, declared: pa.DataType) -> None:
        super().__init__(path, kind, declared)
        self.path, self.kind, self.declared = path, kind, declared


def held(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Spark holds values of `kind`, with every part nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, held(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(pa.field("key", held(kind.key_type), nullable=False), pa.field("value", held(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", held(kind.value_type)))
    if pa.types.is_decimal(kind):
        return spark_decimal(kind)
    if pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_duration(kind):
        return _DURATION
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def conform(values: pa.Array, kind: pa.DataType, path: str = "") -> pa.Array:
    """Return the values in the type `kind`. Raises NotHeld if a value does not fit.

    Structs are matched by field names, exactly or else without case, as Spark does: missing fields become null, extra
    fields are left out. A list, a struct or a map in the place of a string is JSON.
    """
    if is_variant(kind):
        from tailrace.formats.typed.variant import variants

        return variants(conform(values, held(values.type)))
    if values.type.equals(kind):
        return values
    if pa.types.is_null(values.type) or values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, kind, path)
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        return _map(values, kind, path)
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(_offsets(values), conform(values.flatten(), kind.value_type, path), kind)
    if pa.types.is_string(kind) and pa.types.is_nested(values.type):
        return _json_texts(values)
    return _scalar(values, kind, path)


def _json_texts(values: pa.Array) -> pa.Array:
    """Return lists, structs and maps as JSON; bytes are base64 there, other values without a form in JSON texts."""
    found = values.to_pylist(maps_as_pydicts="lossy")
    texts = (None if one is None else json.dumps(one, ensure_ascii=False, default=_json_text) for one in found)
    return pa.array(texts, pa.string())


def _json_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _struct(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    parts = []
    for field in kind:
        place = _place(values.type, kind, field.name)
        if place < 0:
            parts.append(pa.nulls(len(values), field.type))
        else:
            parts.append(conform(values.field(place), field.type, f"{path}.{field.name}" if path else field.name))
    if not parts:
        return pa.array([{} if is_valid else None for is_valid in values.is_valid().to_pylist()], kind)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null() if values.null_count else None)


def _place(values: pa.StructType, kind: pa.StructType, name: str) -> int:
    """Return the index of the field of `values` for the field `name` of `kind`; -1 without one."""
    place: int = values.get_field_index(name)
    if place >= 0:
        return place
    alike = [
        index
        for index, field in enumerate(values)
        if field.name.casefold() == name.casefold() and kind.get_field_index(field.name) < 0
    ]
    return alike[0] if len(alike) == 1 else -1


def _offsets(values: pa.Array) -> pa.Array:
    """Return where the elements of each list begin in the result of `flatten`; null for a null list."""
    lengths = pc.fill_null(pc.list_value_length(values), 0) if values.null_count else pc.list_value_length(values)
    starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    if not values.null_count:
        return starts
    known = pa.concat_arrays([values.is_valid(), pa.array([True])])
    return pc.if_else(known, starts, pa.scalar(None, pa.int32()))


def _map(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    entry = pa.struct([pa.field("key", values.type.key_type, nullable=False), pa.field("value", values.type.item_type)])
    lists = values.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    entries = lists.flatten()
    keys, items = conform(entries.field(0), kind.key_type, path), conform(entries.field(1), kind.item_type, path)
    return pa.MapArray.from_arrays(_offsets(lists), keys, items, kind)


def _scalar(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    if pa.types.is_decimal(values.type):
        values = spark_decimals(values)
        if values.type.equals(kind):
            return values
    if values.type == _NANOSECONDS and pa.types.is_timestamp(kind):
        values = pc.floor_temporal(values, unit="microsecond")
    # Spark's times have fewer digits, and this loss is accepted
    shorter = pa.types.is_temporal(values.type) and values.type.id == kind.id
    try:
        found = values.cast(kind, safe=not shorter) if _is_alike(values.type, kind) else None
        # Arrow rounds some numbers, and cuts the time off a timestamp, also in a safe cast
        if found is not None and (shorter or _is_text(values.type) or _is_text(kind) or _is_same(values, found)):
            return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # a value that does not fit, or two types between which Arrow cannot cast
        pass
    raise NotHeld(path, values.type, kind)


def _is_alike(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return True if a value of one type can mean the same in the other.

    Arrow would also cast numbers to booleans and times, and times with a zone to times without a zone.
    """
    if _is_text(kind) or _is_text(other) or (_is_number(kind) and _is_number(other)):
        return True
    times = pa.types.is_date, pa.types.is_timestamp
    if any(test(kind) for test in times) and any(test(other) for test in times):
        return getattr(kind, "tz", None) == getattr(other, "tz", None)
    return bool(kind.id == other.id)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_same(values: pa.Array, found: pa.Array) -> bool:
    """Return True if a cast of `found` back to the type of `values` gives the same values."""
    back = found.cast(values.type, safe=False)
    same = pc.equal(back, values)
    if pa.types.is_floating(values.type):
        same = pc.or_(same, pc.is_nan(values))
    return bool(pc.all(same, min_count=0).as_py())
