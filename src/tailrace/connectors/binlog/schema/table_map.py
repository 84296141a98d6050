"""TableMap: the log's description of a table before its rows. Planner.

A map has the types of all columns of the row image. Depending on `binlog_row_metadata` it also has their names, signs,
collations, labels and the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tailrace.errors import DecodeError


class ColumnType(IntEnum):
    """Types of columns in the log."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_ONE = {
    ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.BLOB, ColumnType.TINY_BLOB, ColumnType.MEDIUM_BLOB,
    ColumnType.LONG_BLOB, ColumnType.JSON, ColumnType.GEOMETRY,
    ColumnType.VECTOR, ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2, ColumnType.BLOB_COMPRESSED,
}  # fmt: skip
_TWO = {
    ColumnType.VARCHAR, ColumnType.BIT, ColumnType.NEWDECIMAL, ColumnType.VAR_STRING, ColumnType.STRING,
    ColumnType.ENUM, ColumnType.SET,
    ColumnType.VARCHAR_COMPRESSED,
}  # fmt: skip
_NUMERIC = {
    ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG,
    ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.NEWDECIMAL, ColumnType.DECIMAL,
}  # fmt: skip
_TEXT = {
    ColumnType.VARCHAR, ColumnType.STRING, ColumnType.VAR_STRING, ColumnType.BLOB, ColumnType.TINY_BLOB,
    ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB,
    ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as a TABLE_MAP event describes it.

    `types` are the columns' real types, including ENUM and SET, for which the log has STRING. `meta` are their
    parameters: bytes of the length prefix (BLOB, JSON, GEOMETRY, VECTOR) or of the number (ENUM, SET), bytes of the
    text (VARCHAR, STRING), digits of fractions (TIME2, DATETIME2, TIMESTAMP2), bits (BIT), precision * 256 + scale
    (NEWDECIMAL).

    The fields of `binlog_row_metadata` have an element for each column, None if the log lacks it: `unsigned`,
    `collations` (ids, of texts, ENUM and SET), `names`, `labels` (of ENUM and SET), `geometry_types`, `dimensions` (of
    vectors), `visible`. `key` has the places of the primary key's columns, with the length of each prefix in characters
    (0: whole); None if unknown. `raw` are the event's bytes after the table's id, which are equal for equal maps.
    """

    database: str
    table: str
    types: tuple[ColumnType, ...]
    meta: tuple[int, ...]
    nullable: tuple[bool, ...]
    raw: bytes
    unsigned: tuple[bool | None, ...] = ()
    collations: tuple[int | None, ...] = ()
    names: tuple[str, ...] | None = None
    labels: tuple[tuple[bytes, ...] | None, ...] = ()
    geometry_types: tuple[int | None, ...] = ()
    dimensions: tuple[int | None, ...] = ()
    visible: tuple[bool, ...] | None = None
    key: tuple[tuple[int, int], ...] | None = None

    def __len__(self) -> int:
        return len(self.types)

    @property
    def is_full(self) -> bool:
        """True if the log names the columns (`binlog_row_metadata=FULL`)."""
        return self.names is not None


def parse(body: bytes, is_mariadb: bool) -> TableMap:
    """Return the table map from the body of a TABLE_MAP event after the table's id. Raises DecodeError."""
    try:
        return _parse(body, is_mariadb)
    except (IndexError, ValueError) as error:
        raise DecodeError("A table map event does not follow the protocol.") from error


def named(body: bytes) -> tuple[str, str]:
    """Return database and table of a table map, whose columns may be of unknown types. Raises DecodeError."""
    try:
        return _names(body)[:2]
    except (IndexError, ValueError) as error:
        raise DecodeError("A table map event does not follow the protocol.") from error


def _names(body: bytes) -> tuple[str, str, int]:
    """Return database and table, and the place after them."""
    at = 2
    names = []
    for _ in range(2):
        length = body[at]
        # the server writes names in its system character set, utf8mb3
        names.append(body[at + 1 : at + 1 + length].decode())
        if body[at + 1 + length]:
            raise ValueError
        at += length + 2
    return names[0], names[1], at


def _parse(body: bytes, is_mariadb: bool) -> TableMap:
    database, table, at = _names(body)
    count, at = packed(body, at)
    given = body[at : at + count]
    if len(given) != count:
        raise ValueError
    at += count
    size, at = packed(body, at)
    described = body[at : at + size]
    at += size
    types, meta = _described(given, described)
    bits = body[at : at + (count + 7) // 8]
    if len(bits) != (count + 7) // 8:
        raise ValueError
    nullable = tuple(bool(bits[place >> 3] >> (place & 7) & 1) for place in range(count))
    optional = _optional(body[at + len(bits) :], types, is_mariadb)
    return TableMap(database, table, types, meta, nullable, bytes(body), **optional)


def _described(given: bytes, described: bytes) -> tuple[tuple[ColumnType, ...], tuple[int, ...]]:
    """Return the real types and their parameters."""
    types, meta, at = [], [], 0
    for code in given:
        try:
            kind = ColumnType(code)
        except ValueError:
            raise DecodeError(f"A column of the log has the type {code}, which is not known.") from None
        found = 0
        if kind in _ONE:
            found = described[at]
            at += 1
        elif kind in _TWO:
            first, second = described[at], described[at + 1]
            at += 2
            if kind in (ColumnType.STRING, ColumnType.ENUM, ColumnType.SET):
                # the first byte has the real type and, for a long text, two bits of the length
                if first and first & 0x30 != 0x30:
                    kind, found = ColumnType(first | 0x30), second | ((first & 0x30) ^ 0x30) << 4
                else:
                    kind, found = ColumnType(first) if first else kind, second
            elif kind is ColumnType.NEWDECIMAL:
                found = first << 8 | second
            elif kind is ColumnType.BIT:
                found = second * 8 + first
            else:
                found = first | second << 8
        elif kind is ColumnType.TYPED_ARRAY:
            raise DecodeError("A column of the log is an array (of a multi-valued index), which cannot be read.")
        types.append(kind)
        meta.append(found)
    if at != len(described):
        raise ValueError
    return tuple(types), tuple(meta)


def _optional(body: bytes, types: tuple[ColumnType, ...], is_mariadb: bool) -> dict[str, Any]:
    """Return the fields that `binlog_row_metadata` adds."""
    count = len(types)
    # MariaDB logs a sign for YEAR, MySQL does not
    numeric = [
        place for place, kind in enumerate(types) if kind in _NUMERIC or (is_mariadb and kind is ColumnType.YEAR)
    ]
    # MariaDB treats geometries as texts with the collation `binary`
    texts = [place for place, kind in enumerate(types) if kind in _TEXT or (is_mariadb and kind is ColumnType.GEOMETRY)]
    labelled = [place for place, kind in enumerate(types) if kind in (ColumnType.ENUM, ColumnType.SET)]
    unsigned: list[bool | None] = [None] * count
    collations: list[int | None] = [None] * count
    labels: list[tuple[bytes, ...] | None] = [None] * count
    geometry: list[int | None] = [None] * count
    dimensions: list[int | None] = [None] * count
    found: dict[str, Any] = {}
    has_key = False
    at = 0
    while at < len(body):
        tag = body[at]
        length, at = packed(body, at + 1)
        value = body[at : at + length]
        if len(value) != length:
            raise ValueError
        at += length
        if tag == 1:
            for number, place in enumerate(numeric):
                unsigned[place] = bool(value[number >> 3] << (number & 7) & 0x80)
        elif tag in (2, 10):
            default, *pairs = _numbers(value)
            exceptions = dict(zip(pairs[::2], pairs[1::2], strict=True))
            for number, place in enumerate(texts if tag == 2 else labelled):
                collations[place] = exceptions.get(number, default)
        elif tag in (3, 11):
            for place, one in zip(texts if tag == 3 else labelled, _numbers(value), strict=True):
                collations[place] = one
        elif tag == 4:
            found["names"] = tuple(text.decode() for text in _texts(value, count))
        elif tag in (5, 6):
            kind, place = ColumnType.SET if tag == 5 else ColumnType.ENUM, 0
            for column in (column for column in labelled if types[column] is kind):
                several, place = packed(value, place)
                listed = []
                for _ in range(several):
                    size, place = packed(value, place)
                    listed.append(value[place : place + size])
                    place += size
                labels[column] = tuple(listed)
        elif tag == 7:
            places = [place for place, kind in enumerate(types) if kind is ColumnType.GEOMETRY]
            for place, one in zip(places, _numbers(value), strict=True):
                geometry[place] = one
        elif tag == 8:
            found["key"], has_key = tuple((place, 0) for place in _numbers(value)), True
        elif tag == 9:
            flat = _numbers(value)
            found["key"], has_key = tuple(zip(flat[::2], flat[1::2], strict=True)), True
        elif tag == 12:
            found["visible"] = tuple(bool(value[place >> 3] << (place & 7) & 0x80) for place in range(count))
        elif tag == 13:
            places = [place for place, kind in enumerate(types) if kind is ColumnType.VECTOR]
            for place, one in zip(places, _numbers(value), strict=True):
                dimensions[place] = one
    if "names" in found and not has_key:
        found["key"] = ()
    return found | {
        "unsigned": tuple(unsigned), "collations": tuple(collations), "labels": tuple(labels),
        "geometry_types": tuple(geometry), "dimensions": tuple(dimensions),
    }  # fmt: skip


def _numbers(value: bytes) -> list[int]:
    found, at = [], 0
    while at < len(value):
        one, at = packed(value, at)
        found.append(one)
    return found


def _texts(value: bytes, count: int) -> list[bytes]:
    found, at = [], 0
    for _ in range(count):
        length, at = packed(value, at)
        found.append(value[at : at + length])
        at += length
    if at != len(value):
        raise ValueError
    return found


def packed(body: bytes, at: int) -> tuple[int, int]:
    """Return the length-encoded number at `at`, and the place after it. Raises IndexError."""
    first = body[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or at + 1 + size > len(body):
        raise IndexError(at)
    return int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size
