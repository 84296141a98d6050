"""Variants, Spark's binary form of values of any shape, made of Arrow arrays by column and of documents. Worker."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.typed import VARIANT

_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_DATE, _INSTANT, _LOCAL, _BINARY, STRING = 11, 12, 13, 15, 16
_NUMBERS = {"int8": 3, "int16": 4, "int32": 5, "int64": 6, "double": 7, "float": 14}
DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
"""Decimal kinds: the maximum of digits, the kind, its bytes."""
SHORT = 64
"""Strings of fewer bytes store their length in the first byte."""
_Bytes = npt.NDArray[np.uint8]


def variants(values: pa.Array) -> pa.Array:
    """Return the values as variants; null for null."""
    names = sorted(set(_names(values)), key=place_of)
    ids = {name: number for number, name in enumerate(names)}
    made = _encoded(values, ids)
    parts = [made, pa.repeat(pa.scalar(metadata(tuple(names)), pa.binary()), len(values))]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=values.is_null() if values.null_count else None)


def place_of(name: str) -> bytes:
    """Return the sort key of a field name: Spark searches an object's fields in the order of Java's strings."""
    return name.encode("utf-16-be", "surrogatepass")


def metadata(names: Sequence[str]) -> bytes:
    """Return the dictionary of these names, which are in the order of `place_of`."""
    texts = [name.encode() for name in names]
    bounds = np.cumsum([0, *map(len, texts)]).astype("<u4")
    return struct.pack("<BI", 1 | 3 << 6, len(texts)) + bounds.tobytes() + b"".join(texts)


def _names(values: pa.Array) -> Iterator[str]:
    """Yield the names of all fields of objects made from the values."""
    kind = values.type
    if pa.types.is_struct(kind):
        for place, field in enumerate(kind):
            yield field.name
            yield from _names(values.field(place))
    elif pa.types.is_map(kind):
        entries = _entries(values).flatten()
        yield from map(str, pc.unique(entries.field(0)).to_pylist())
        yield from _names(entries.field(1))
    elif pa.types.is_list(kind):
        yield from _names(values.flatten())


def _entries(values: pa.Array) -> pa.Array:
    """Return the entries of maps as lists of structs."""
    kind = values.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return values.cast(pa.list_(pa.field("entries", entry, nullable=False)))


def _encoded(values: pa.Array, ids: Mapping[str, int]) -> pa.Array:
    """Return one value each, as bytes; a null is the variant of null."""
    made = _present(values, ids)
    return pc.if_else(values.is_valid(), made, pa.scalar(_NULL, pa.binary())) if values.null_count else made


def _present(values: pa.Array, ids: Mapping[str, int]) -> pa.Array:
    """Return one value each, as bytes; arbitrary bytes for a null."""
    kind = values.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar(_NULL, pa.binary()), len(values))
    if pa.types.is_struct(kind):
        return _objects(values, ids)
    if pa.types.is_map(kind):
        return _maps(values, ids)
    if pa.types.is_list(kind):
        return _arrays(values, ids)
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar(_TRUE, pa.binary()), pa.scalar(_FALSE, pa.binary())).fill_null(_NULL)
    if pa.types.is_binary(kind):
        return _long(values, _BINARY)
    number = _number_of(kind)
    if number is not None:
        return _fixed(number, _numbers(values))
    if pa.types.is_decimal128(kind):
        return _decimals(values)
    if pa.types.is_duration(kind):
        return _fixed(_NUMBERS["int64"], _numbers(values.cast(pa.duration("us"), safe=False)))
    return _strings(values if pa.types.is_string(kind) else values.cast(pa.string()))


def _number_of(kind: pa.DataType) -> int | None:
    """Return the variant kind of a type whose bytes are those of a number."""
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _LOCAL if kind.tz is None else _INSTANT
    return _DATE if pa.types.is_date32(kind) else _NUMBERS.get(str(kind))


def _numbers(values: pa.Array) -> _Bytes:
    """Return the bytes of numbers, one row each."""
    width = values.type.bit_width // 8
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    return data[values.offset * width : (values.offset + len(values)) * width].reshape(-1, width)


def _fixed(kind: int, data: _Bytes, scale: int | None = None) -> pa.Array:
    """Return values that all have the same number of bytes."""
    front = [kind << 2] if scale is None else [kind << 2, scale]
    made = np.empty((len(data), len(front) + data.shape[1]), np.uint8)
    made[:, : len(front)] = front
    made[:, len(front) :] = data
    return _rows(made)


def _rows(data: _Bytes) -> pa.Array:
    """Return the rows of a matrix as bytes."""
    bounds = np.arange(len(data) + 1, dtype=np.int32) * np.int32(data.shape[1])
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(bounds), pa.py_buffer(data.tobytes())])


def _decimals(values: pa.Array) -> pa.Array:
    kind, width = next((kind, width) for digits, kind, width in DECIMALS if values.type.precision <= digits)
    return _fixed(kind, _numbers(values)[:, :width], values.type.scale)


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(values), 0).cast(pa.int64()).to_numpy()
    return found


def _strings(values: pa.Array) -> pa.Array:
    lengths = _lengths(values)
    short = lengths < SHORT
    if not short.all():
        front = pc.if_else(pa.array(short), _rows(_short(lengths)), _rows(_front(lengths, STRING)))
    else:
        front = _rows(_short(lengths))
    return _joined(front, values.cast(pa.binary()).fill_null(b""))


def _short(lengths: npt.NDArray[np.int64]) -> _Bytes:
    return ((lengths << 2 | 1) & 0xFF).astype(np.uint8).reshape(-1, 1)


def _long(values: pa.Array, kind: int) -> pa.Array:
    return _joined(_rows(_front(_lengths(values), kind)), values.fill_null(b""))


def _front(lengths: npt.NDArray[np.int64], kind: int) -> _Bytes:
    made = np.empty((len(lengths), 5), np.uint8)
    made[:, 0] = kind << 2
    made[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return made


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"")


def _objects(values: pa.Array, ids: Mapping[str, int]) -> pa.Array:
    places = sorted(range(values.type.num_fields), key=lambda place: ids[values.type.field(place).name])
    parts = [_encoded(values.field(place), ids) for place in places]
    ends = np.zeros((len(values), len(parts) + 1), np.int64)
    for number, part in enumerate(parts):
        ends[:, number + 1] = ends[:, number] + _lengths(part)
    numbers = [ids[values.type.field(place).name] for place in places]
    constant = np.frombuffer(object_front(numbers), np.uint8)
    front = np.empty((len(values), len(constant) + 4 * ends.shape[1]), np.uint8)
    front[:, : len(constant)] = constant
    front[:, len(constant) :] = ends.astype("<u4").view(np.uint8).reshape(len(values), 4 * ends.shape[1])
    return _joined(_rows(front), *parts)


def object_front(numbers: Iterable[int]) -> bytes:
    """Return the bytes before the offsets of an object with these fields."""
    listed = np.array(list(numbers), "<u4")
    return struct.pack("<BI", 2 | 3 << 2 | 3 << 4 | 1 << 6, len(listed)) + listed.tobytes()


def _arrays(values: pa.Array, ids: Mapping[str, int]) -> pa.Array:
    elements = _encoded(values.flatten(), ids)
    counts = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()).to_numpy()
    first = np.concatenate([[0], np.cumsum(counts)])
    ends = np.concatenate([[0], np.cumsum(_lengths(elements))])
    of = np.repeat(np.arange(len(counts)), counts + 1)
    offsets = (ends[np.arange(len(of)) - of] - ends[first[of]]).astype("<u4")
    bounds = (4 * (first + np.arange(len(first)))).astype(np.int32)
    front = np.empty((len(counts), 5), np.uint8)
    front[:] = np.frombuffer(array_front(0), np.uint8)
    front[:, 1:] = counts.astype("<u4").view(np.uint8).reshape(-1, 4)
    places = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(bounds), pa.py_buffer(offsets)])
    data = elements.buffers()[2] or pa.py_buffer(b"")
    start = int(np.frombuffer(elements.buffers()[1], np.int32)[elements.offset]) if len(elements) else 0
    inner = pa.py_buffer((ends[first] + start).astype(np.int32))
    return _joined(_rows(front), places, pa.Array.from_buffers(pa.binary(), len(counts), [None, inner, data]))


def array_front(count: int) -> bytes:
    """Return the bytes before the offsets of an array of `count` values."""
    return struct.pack("<BI", 3 | 3 << 2 | 1 << 4, count)


def _maps(values: pa.Array, ids: Mapping[str, int]) -> pa.Array:
    lists = _entries(values)
    entries = lists.flatten()
    keys = [ids[str(key)] for key in entries.field(0).to_pylist()]
    items = _encoded(entries.field(1), ids).to_pylist()
    made, low = [], 0
    for count in pc.fill_null(pc.list_value_length(lists), 0).to_pylist():
        # if two entries share a key, the last one counts
        found = dict(sorted(zip(keys[low : low + count], items[low : low + count], strict=True), key=_first))
        made.append(_map_object(found))
        low += count
    return pa.array(made, pa.binary())


def _first(entry: tuple[int, Any]) -> int:
    return entry[0]


def _map_object(found: Mapping[int, bytes]) -> bytes:
    ends = np.cumsum([0, *map(len, found.values())]).astype("<u4")
    return object_front(found) + ends.tobytes() + b"".join(found.values())


# --- documents --------------------------------------------------------------------------------------------------------


Value = None | bool | int | float | str | bytes | Decimal | datetime | Sequence[Any] | Mapping[str, Any]
"""A value of a document; moments have a time zone."""

_INTEGERS = (("<Bb", 3, 1 << 7), ("<Bh", 4, 1 << 15), ("<Bi", 5, 1 << 31), ("<Bq", 6, 1 << 63))
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def document_variants(values: Iterable[Value], present: Iterable[bool]) -> pa.Array:
    """Return each value as a variant; null if it is not `present`. Raises ValueError for an unsupported value."""
    made = [_variant(value) if there else None for value, there in zip(values, present, strict=True)]
    bodies = pa.array([b"" if variant is None else variant[0] for variant in made], pa.binary())
    names = pa.array([b"" if variant is None else variant[1] for variant in made], pa.binary())
    mask = pa.array([variant is None for variant in made], pa.bool_())
    return pa.StructArray.from_arrays([bodies, names], fields=list(VARIANT), mask=mask)


def _variant(value: Value) -> tuple[bytes, bytes]:
    names: set[str] = set()
    _collect(value, names)
    ids, dictionary = _dictionary(frozenset(names))
    return _document(value, ids), dictionary


@lru_cache(maxsize=1024)
def _dictionary(names: frozenset[str]) -> tuple[Mapping[str, int], bytes]:
    """Return the numbers of the names, and their dictionary; most documents of a collection have the same names."""
    ordered = tuple(sorted(names, key=place_of))
    return {name: number for number, name in enumerate(ordered)}, metadata(ordered)


def _collect(value: Value, names: set[str]) -> None:
    if isinstance(value, Mapping):
        names.update(value)
        for part in value.values():
            _collect(part, names)
    elif isinstance(value, list | tuple):
        for part in value:
            _collect(part, names)


def _document(value: Value, ids: Mapping[str, int]) -> bytes:
    encode = _ENCODERS.get(type(value))
    if encode is not None:
        return encode(value)
    if isinstance(value, Mapping):
        found = {ids[name]: _document(part, ids) for name, part in value.items()}
        numbers = tuple(sorted(found))
        parts = [found[number] for number in numbers]
        return b"".join((_document_front(numbers), _ends(parts), *parts))
    if isinstance(value, list | tuple):
        items = [_document(part, ids) for part in value]
        return b"".join((array_front(len(items)), _ends(items), *items))
    raise ValueError(f"a value of the type {type(value).__name__}")


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    front = bytes((len(data) << 2 | 1,)) if len(data) < SHORT else struct.pack("<BI", STRING << 2, len(data))
    return front + data


_document_front = lru_cache(maxsize=4096)(object_front)


def _ends(parts: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(parts) + 1}I", 0, *accumulate(map(len, parts)))


def _integer(value: int) -> bytes:
    for form, kind, limit in _INTEGERS:
        if -limit <= value < limit:
            return struct.pack(form, kind << 2, value)
    raise ValueError("an integer of more than 64 bits")


def _decimal(value: Decimal) -> bytes:
    """Return a decimal of at most 38 digits, else its text."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -38 or len(digits) + max(exponent, 0) > 38:
        return _text(str(value))
    whole = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    scale = max(-exponent, 0)
    count = max(len(str(whole)), scale)
    kind, width = next((kind, width) for most, kind, width in DECIMALS if count <= most)
    signed: int = -whole if sign else whole
    return bytes([kind << 2, scale]) + signed.to_bytes(width, "little", signed=True)


_ENCODERS: Mapping[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"\x00",
    bool: lambda value: b"\x04" if value else b"\x08",
    str: _text,
    int: _integer,
    float: lambda value: struct.pack("<Bd", 7 << 2, value),
    bytes: lambda value: struct.pack("<BI", 15 << 2, len(value)) + value,
    Decimal: _decimal,
    datetime: lambda value: struct.pack("<Bq", 12 << 2, (value - _EPOCH) // _MICROSECOND),
}
