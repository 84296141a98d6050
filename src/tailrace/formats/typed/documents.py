"""Plain values as variants, one document at a time, for sources without columns. Worker."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tailrace.columns.typed import VARIANT
from tailrace.formats.typed.variant import DECIMALS, SHORT, STRING, array_front, metadata, object_front, place_of

Value = None | bool | int | float | str | bytes | Decimal | datetime | Sequence[Any] | Mapping[str, Any]
"""A value of a document; moments have a time zone."""

_INTEGERS = (("<Bb", 3, 1 << 7), ("<Bh", 4, 1 << 15), ("<Bi", 5, 1 << 31), ("<Bq", 6, 1 << 63))
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def document_variants(values: Iterable[Value], present: Iterable[bool]) -> pa.Array:
    """Return each value as a variant; null if it is not `present`. Raises ValueError for an unsupported value."""
    made = [_variant(value) if there else None for value, there in zip(values, present, strict=True)]
    bodies = pa.array([b"" if one is None else one[0] for one in made], pa.binary())
    names = pa.array([b"" if one is None else one[1] for one in made], pa.binary())
    mask = pa.array([one is None for one in made], pa.bool_())
    return pa.StructArray.from_arrays([bodies, names], fields=list(VARIANT), mask=mask)


def _variant(value: Value) -> tuple[bytes, bytes]:
    names: set[str] = set()
    _collect(value, names)
    ids, dictionary = _dictionary(frozenset(names))
    return _encoded(value, ids), dictionary


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


def _encoded(value: Value, ids: Mapping[str, int]) -> bytes:
    encode = _ENCODERS.get(type(value))
    if encode is not None:
        return encode(value)
    if isinstance(value, Mapping):
        found = {ids[name]: _encoded(part, ids) for name, part in value.items()}
        numbers = tuple(sorted(found))
        parts = [found[number] for number in numbers]
        return b"".join((_front(numbers), _ends(parts), *parts))
    if isinstance(value, list | tuple):
        items = [_encoded(part, ids) for part in value]
        return b"".join((array_front(len(items)), _ends(items), *items))
    raise ValueError(f"a value of the type {type(value).__name__}")


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    front = bytes((len(data) << 2 | 1,)) if len(data) < SHORT else struct.pack("<BI", STRING << 2, len(data))
    return front + data


_front = lru_cache(maxsize=4096)(object_front)


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
