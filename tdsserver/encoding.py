"""SQL Server's types on the wire: TYPE_INFO and values of columns ([MS-TDS] 2.2.5.4 and 2.2.5.5)."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable

from tdsserver import values
from tdsserver.errors import SqlError
from tdsserver.sqltype import MAX, UDTS, UTF8, SqlType, code_page, codec, decimal_length, locale, scaled_length

COLLATION = bytes([0x09, 0x04, 0xD0, 0x00, 0x34])
"""SQL_Latin1_General_CP1_CI_AS: LCID 1033, ignoring case, kana and width; sort order 52."""
Encoder = Callable[[object], bytes]
_INTEGERS = {"tinyint": "<B", "smallint": "<h", "int": "<i", "bigint": "<q"}
_FLOATS = {"real": "<f", "float": "<d"}
_PARTIAL = b"\xff\xff"
NULL_PARTIAL = b"\xff" * 8
_POINTER = b"\x10" + b"pointer of text\0" + b"stamp\0\0\0"


def us(text: str) -> bytes:
    """Return a US_VARCHAR."""
    return struct.pack("<H", len(text.encode("utf-16-le")) // 2) + text.encode("utf-16-le")


def bs(text: str) -> bytes:
    """Return a B_VARCHAR."""
    return bytes([len(text.encode("utf-16-le")) // 2]) + text.encode("utf-16-le")


def type_info(kind: SqlType) -> bytes:
    """Return the TYPE_INFO of a column."""
    name = kind.name
    if name in _INTEGERS:
        return b"\x26" + bytes([struct.calcsize(_INTEGERS[name])])
    if name in _FLOATS:
        return b"\x6d" + bytes([struct.calcsize(_FLOATS[name])])
    fixed = {
        "bit": b"\x68\x01",
        "money": b"\x6e\x08",
        "smallmoney": b"\x6e\x04",
        "datetime": b"\x6f\x08",
        "smalldatetime": b"\x6f\x04",
        "date": b"\x28",
        "uniqueidentifier": b"\x24\x10",
        "xml": b"\xf1\x00",
        "text": b"\x23\xff\xff\xff\x7f" + COLLATION,
        "ntext": b"\x63\xfe\xff\xff\x7f" + COLLATION,
        "image": b"\x22\xff\xff\xff\x7f",
        "timestamp": b"\xad\x08\x00",
    }
    if name in fixed:
        return fixed[name]
    if name in ("decimal", "numeric"):
        code = 0x6A if name == "decimal" else 0x6C
        return bytes([code, decimal_length(kind.precision), kind.precision, kind.scale])
    if name in ("time", "datetime2", "datetimeoffset"):
        return bytes([{"time": 0x29, "datetime2": 0x2A, "datetimeoffset": 0x2B}[name], kind.scale])
    if name in UDTS:
        limit = 892 if name == "hierarchyid" else 0xFFFF
        assembly = {"hierarchyid": "SqlHierarchyId", "geometry": "SqlGeometry", "geography": "SqlGeography"}[name]
        full = (
            f"Microsoft.SqlServer.Types.{assembly}, Microsoft.SqlServer.Types, Version=11.0.0.0, Culture=neutral,"
            " PublicKeyToken=89845dcd8080cc91"
        )
        return b"\xf0" + struct.pack("<H", limit) + bs("master") + bs("sys") + bs(name) + us(full)
    code, width = {
        "char": (0xAF, 1),
        "varchar": (0xA7, 1),
        "nchar": (0xEF, 2),
        "nvarchar": (0xE7, 2),
        "sysname": (0xE7, 2),
        "binary": (0xAD, 1),
        "varbinary": (0xA5, 1),
    }[name]
    size = _PARTIAL if kind.length == MAX else struct.pack("<H", kind.length * width)
    return bytes([code]) + size + (_collation(kind.collation) if kind.is_text else b"")


def _collation(name: str | None) -> bytes:
    """Return the five bytes of a collation. Only locale and code page are those of its name."""
    page = code_page(name)
    if page == 1252:
        return COLLATION
    flags = 0x24D00000 if page == UTF8 else 0x20D00000
    return struct.pack("<IB", locale(name) | flags, 0)


def column(name: str, kind: SqlType) -> bytes:
    """Return one column of COLMETADATA."""
    # Nullable; updatable unknown. Only the user type distinguishes rowversion from binary(8).
    found = struct.pack("<IH", 80 if kind.name == "timestamp" else 0, 0x0009) + type_info(kind)
    if kind.name in ("text", "ntext", "image"):
        found += b"\x01" + us("t")
    return found + bs(name)


def encoder(kind: SqlType) -> Encoder:
    """Return the function that encodes storage values of a type."""
    found = _encoder(kind)
    null = _null(kind)
    return lambda value: null if value is None else found(value)


def _null(kind: SqlType) -> bytes:
    if kind.name in ("text", "ntext", "image"):
        return b"\x00"
    if kind.name == "xml" or kind.name in ("geometry", "geography", "hierarchyid"):
        return NULL_PARTIAL
    if kind.is_text or kind.is_binary:
        return NULL_PARTIAL if kind.length == MAX else b"\xff\xff"
    return b"\x00"


def _encoder(kind: SqlType) -> Encoder:
    name = kind.name
    if name in _INTEGERS or name in _FLOATS:
        form = (_INTEGERS | _FLOATS)[name]
        pack = struct.Struct("<B" + form[1]).pack
        size = struct.calcsize(form)
        return lambda value: pack(size, value)
    if kind.is_text:
        return _text(kind)
    if kind.is_binary:
        return _binary(kind)
    if name == "bit":
        return lambda value: b"\x01\x01" if value else b"\x01\x00"
    if name == "uniqueidentifier":
        return lambda value: b"\x10" + values.guid(_raw(value)).bytes_le
    if name in ("decimal", "numeric"):
        size = decimal_length(kind.precision)
        return lambda value: _decimal(_number(value), kind.scale, size)
    if name in ("money", "smallmoney"):
        return lambda value: _money(_number(value), name == "money")
    return _temporal(kind)


def _raw(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)


def _number(value: object) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def partial(data: bytes) -> bytes:
    """Return a PLP_BODY in one chunk."""
    chunk = struct.pack("<I", len(data)) + data if data else b""
    return struct.pack("<Q", len(data)) + chunk + b"\0\0\0\0"


def _text(kind: SqlType) -> Encoder:
    page = codec(kind)
    if kind.name in ("text", "ntext"):
        return lambda value: _POINTER + _long(str(value).encode(page, "replace"))
    if kind.name == "xml" or kind.length == MAX:
        return lambda value: partial(str(value).encode(page, "replace"))

    def found(value: object) -> bytes:
        data = str(value).encode(page, "replace")
        return struct.pack("<H", len(data)) + data

    return found


def _long(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _binary(kind: SqlType) -> Encoder:
    if kind.name == "image":
        return lambda value: _POINTER + _long(_raw(value))
    if kind.name in UDTS or kind.length == MAX:
        return lambda value: partial(_raw(value))

    def found(value: object) -> bytes:
        data = _raw(value)
        return struct.pack("<H", len(data)) + data

    return found


def _decimal(value: decimal.Decimal, scale: int, size: int) -> bytes:
    with decimal.localcontext(prec=80):
        number = int(value.scaleb(scale))
    return bytes([size, 0 if number < 0 else 1]) + abs(number).to_bytes(size - 1, "little")


def _money(value: decimal.Decimal, wide: bool) -> bytes:
    number = int(value.scaleb(4))
    if not wide:
        return b"\x04" + struct.pack("<i", number)
    return b"\x08" + struct.pack("<iI", number >> 32, number & 0xFFFFFFFF)


def _temporal(kind: SqlType) -> Encoder:
    name, scale = kind.name, kind.scale
    if name == "date":
        return lambda value: b"\x03" + _whole(value).to_bytes(3, "little")
    if name == "datetime":

        def date_and_ticks(value: object) -> bytes:
            day, clock = divmod(_whole(value), values.DAY)
            return struct.pack("<BiI", 8, day - values.EPOCH_1900, (clock * 300 + 5_000_000) // 10_000_000)

        return date_and_ticks
    if name == "smalldatetime":

        def date_and_minutes(value: object) -> bytes:
            day, clock = divmod(_whole(value), values.DAY)
            return struct.pack("<BHH", 4, day - values.EPOCH_1900, clock // 600_000_000)

        return date_and_minutes
    step, size = int(10 ** (7 - scale)), scaled_length(scale)
    if name == "time":
        return lambda value: bytes([size]) + (_whole(value) // step).to_bytes(size, "little")
    if name == "datetime2":

        def clock_and_date(value: object) -> bytes:
            day, clock = divmod(_whole(value), values.DAY)
            return bytes([size + 3]) + (clock // step).to_bytes(size, "little") + day.to_bytes(3, "little")

        return clock_and_date
    if name == "datetimeoffset":

        def clock_date_zone(value: object) -> bytes:
            utc, minutes = values.split_offset(_whole(value))
            day, clock = divmod(utc, values.DAY)
            moment = (clock // step).to_bytes(size, "little") + day.to_bytes(3, "little")
            return bytes([size + 5]) + moment + struct.pack("<h", minutes)

        return clock_date_zone
    raise SqlError(50001, f"The test server does not send {kind}.")
