"""Row forms: the layout of a table's columns in its rows, and the meaning of their bytes. Planner and worker.

A form combines a table map, which has the types, with the table's definition, which has what the map may lack: signs,
character sets, labels, and the UUIDs and addresses that the log shows as texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import IntEnum

from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap
from tailrace.errors import DecodeError


class ValueKind(IntEnum):
    """Kinds of values by their bytes in a row."""

    INTEGER = 0
    FLOAT = 1
    FLOAT_AS_DOUBLE = 2
    DOUBLE = 3
    DECIMAL = 4
    YEAR = 5
    DATE = 6
    TIME = 7
    DATETIME = 8
    TIMESTAMP = 9
    OLD_TIME = 10
    OLD_DATETIME = 11
    OLD_TIMESTAMP = 12
    BITS = 13
    TEXT = 14
    BYTES = 15
    LABEL = 16
    LABELS = 17
    JSON = 18
    VECTOR = 19
    UUID = 20
    INET4 = 21
    INET6 = 22
    COMPRESSED_TEXT = 23
    COMPRESSED_BYTES = 24
    NOTHING = 25


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column of a row.

    `width` is the number of bytes of a value; for values after a length prefix it is minus the bytes of the prefix.
    `meta` depends on the kind: the sign of an INTEGER (1: unsigned), precision * 256 + scale of a DECIMAL, the digits
    of fractions, the number of bytes to which a value is padded with zeros. `charset` is the character set of a text,
    `labels` are the labels of ENUM and SET, in UTF-8.
    """

    kind: ValueKind
    width: int
    meta: int = 0
    charset: str = ""
    labels: tuple[str, ...] = ()


RowForm = tuple[ColumnForm, ...]


@dataclass(frozen=True, slots=True)
class BinlogTable(TableSchema):
    """A table at one version, with the form of its rows in the log."""

    form: RowForm = ()


def formed(table: TableSchema, given: TableMap) -> BinlogTable:
    """Return the table with the form of its rows. Raises DecodeError if the map and the definition disagree."""
    if len(table.columns) != len(given):
        raise DecodeError(
            f"The log has {len(given)} columns of {table.id.database}.{table.id.table}, and its definition "
            f"{len(table.columns)}."
        )
    form = tuple(column_form(given, place, column) for place, column in enumerate(table.columns))
    known = {one.name: getattr(table, one.name) for one in fields(TableSchema)}
    return BinlogTable(**known, form=form)


_CHARSET = re.compile(r" character set (\w+)")
_FIXED = {
    ColumnType.TINY: 1, ColumnType.SHORT: 2, ColumnType.INT24: 3, ColumnType.LONG: 4, ColumnType.LONGLONG: 8,
    ColumnType.FLOAT: 4, ColumnType.DOUBLE: 8,
    ColumnType.YEAR: 1, ColumnType.DATE: 3, ColumnType.NEWDATE: 3, ColumnType.TIME: 3, ColumnType.DATETIME: 8,
    ColumnType.TIMESTAMP: 4, ColumnType.NULL: 0,
}  # fmt: skip
_OLD = {
    ColumnType.TIME: ValueKind.OLD_TIME, ColumnType.DATETIME: ValueKind.OLD_DATETIME,
    ColumnType.TIMESTAMP: ValueKind.OLD_TIMESTAMP,
    ColumnType.YEAR: ValueKind.YEAR, ColumnType.DATE: ValueKind.DATE, ColumnType.NEWDATE: ValueKind.DATE,
    ColumnType.NULL: ValueKind.NOTHING,
}  # fmt: skip
# kinds, and the number of bytes before the fraction
_FRACTIONAL = {
    ColumnType.TIME2: (ValueKind.TIME, 3),
    ColumnType.DATETIME2: (ValueKind.DATETIME, 5),
    ColumnType.TIMESTAMP2: (ValueKind.TIMESTAMP, 4),
}
_BLOBS = (ColumnType.BLOB, ColumnType.TINY_BLOB, ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_width(precision: int, scale: int) -> int:
    whole, part = precision - scale, scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + part // 9 * 4 + _DIGIT_BYTES[part % 9]


def width_of(kind: ColumnType, meta: int) -> int:
    """Return the `width` of a ColumnForm for a type in the log, without the table's definition."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _FRACTIONAL:
        return _FRACTIONAL[kind][1] + (meta + 1) // 2
    if kind is ColumnType.NEWDECIMAL:
        return decimal_width(meta >> 8, meta & 255)
    if kind is ColumnType.BIT:
        return (meta + 7) // 8
    if kind in (ColumnType.ENUM, ColumnType.SET):
        return meta
    if kind in (ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING, ColumnType.VARCHAR_COMPRESSED):
        return -1 if meta < 256 else -2
    if kind in (*_BLOBS, ColumnType.JSON, ColumnType.GEOMETRY, ColumnType.VECTOR, ColumnType.BLOB_COMPRESSED):
        if not 1 <= meta <= 4:
            raise DecodeError(f"A length of {meta} bytes stands before values of the type {kind.name}.")
        return -meta
    raise DecodeError(f"Values of the type {kind.name} are not known in rows of the log.")


def column_form(given: TableMap, place: int, column: Column) -> ColumnForm:
    kind, meta = given.types[place], given.meta[place]
    width = width_of(kind, meta)
    name = column.type_name.lower()
    if kind in (ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG):
        unsigned = given.unsigned[place]
        return ColumnForm(ValueKind.INTEGER, width, int(_is_unsigned(name) if unsigned is None else unsigned))
    if kind is ColumnType.FLOAT:
        return ColumnForm(ValueKind.FLOAT_AS_DOUBLE if re.match(r"float\(\d+,", name) else ValueKind.FLOAT, width)
    if kind is ColumnType.DOUBLE:
        return ColumnForm(ValueKind.DOUBLE, width)
    if kind is ColumnType.NEWDECIMAL:
        return ColumnForm(ValueKind.DECIMAL, width, meta)
    if kind in _FRACTIONAL:
        return ColumnForm(_FRACTIONAL[kind][0], width, meta)
    if kind in _OLD:
        return ColumnForm(_OLD[kind], width)
    if kind is ColumnType.BIT:
        return ColumnForm(ValueKind.BITS, width)
    if kind in (ColumnType.ENUM, ColumnType.SET):
        return ColumnForm(
            ValueKind.LABEL if kind is ColumnType.ENUM else ValueKind.LABELS, width, labels=column.enum_labels
        )
    if kind is ColumnType.JSON:
        return ColumnForm(ValueKind.JSON, width)
    if kind is ColumnType.VECTOR or name.startswith("vector"):
        return ColumnForm(ValueKind.VECTOR, width)
    if kind is ColumnType.GEOMETRY:
        return ColumnForm(ValueKind.BYTES, width)
    return _text_form(kind, meta, width, name)


def _text_form(kind: ColumnType, meta: int, width: int, name: str) -> ColumnForm:
    first = re.split(r"[^a-z0-9]", name, maxsplit=1)[0]
    special = {"uuid": (ValueKind.UUID, 16), "inet4": (ValueKind.INET4, 4), "inet6": (ValueKind.INET6, 16)}.get(first)
    if special is not None:
        return ColumnForm(special[0], width, special[1])
    found = _CHARSET.search(name)
    charset = found[1] if found else "binary"
    if kind in (ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED):
        is_text = charset != "binary"
        return ColumnForm(ValueKind.COMPRESSED_TEXT if is_text else ValueKind.COMPRESSED_BYTES, width, charset=charset)
    if charset != "binary":
        return ColumnForm(ValueKind.TEXT, width, charset=charset)
    # the log has a BINARY without its trailing zeros
    return ColumnForm(ValueKind.BYTES, width, meta if kind is ColumnType.STRING else 0)


def _is_unsigned(name: str) -> bool:
    return " unsigned" in name or " zerofill" in name or name.startswith("serial")
