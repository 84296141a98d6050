"""Text of single values of the log, in plain Python; kernels write whole columns for `decoder`. Worker.

The texts are those of the server's text protocol with `time_zone='+00:00'`, except for JSON and for floating-point
numbers, which have all their digits.
"""

from __future__ import annotations

import datetime
import ipaddress
import struct
import zlib
from collections.abc import Callable

from tailrace.connectors.binlog.log.forms import ColumnForm, ValueKind
from tailrace.connectors.binlog.log.json_documents import document_text
from tailrace.connectors.binlog.log.packed_values import date_text, datetime_text, decimal_text
from tailrace.connectors.binlog.schema.texts import text_of
from tailrace.errors import DecodeError

_EPOCH = datetime.datetime(1970, 1, 1)


def value_text(form: ColumnForm, data: bytes) -> bytes:
    """Return the text of a value from its bytes in the log, without a length prefix. Raises DecodeError."""
    try:
        return _TEXTS[form.kind](form, data)
    except (IndexError, ValueError, struct.error, zlib.error, OverflowError) as error:
        raise DecodeError(f"A value of the log is no {form.kind.name}.") from error


def _fraction(data: bytes, digits: int) -> str:
    """Return the fraction of a second from bytes of two digits each."""
    if not digits:
        return ""
    value = int.from_bytes(data, "big")
    if value >= 100 ** len(data):
        raise ValueError(value)
    return "." + f"{value:0{2 * len(data)}d}"[:digits]


def _integer(form: ColumnForm, data: bytes) -> bytes:
    return str(int.from_bytes(data, "little", signed=not form.meta)).encode()


def _float(form: ColumnForm, data: bytes) -> bytes:
    import numpy as np

    return _number(float(str(np.frombuffer(data, "<f4")[0])))


def _wide_float(form: ColumnForm, data: bytes) -> bytes:
    return _number(struct.unpack("<f", data)[0])


def _double(form: ColumnForm, data: bytes) -> bytes:
    return _number(struct.unpack("<d", data)[0])


def _number(value: float) -> bytes:
    return repr(value).encode()


def _decimal(form: ColumnForm, data: bytes) -> bytes:
    return decimal_text(data, form.meta >> 8, form.meta & 255).encode()


def _year(form: ColumnForm, data: bytes) -> bytes:
    return f"{1900 + data[0] if data[0] else 0:04d}".encode()


def _date(form: ColumnForm, data: bytes) -> bytes:
    return date_text(int.from_bytes(data, "little")).encode()


def _time(form: ColumnForm, data: bytes) -> bytes:
    size = len(data) - 3
    value = int.from_bytes(data, "big") - (1 << (8 * len(data) - 1))
    sign, value = ("-" if value < 0 else ""), abs(value)
    seconds, rest = value >> 8 * size, value & ((1 << 8 * size) - 1)
    fraction = _fraction(rest.to_bytes(size, "big"), form.meta)
    return f"{sign}{seconds >> 12 & 1023:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}{fraction}".encode()


def _datetime(form: ColumnForm, data: bytes) -> bytes:
    value = int.from_bytes(data[:5], "big") - (1 << 39)
    if value < 0:
        raise ValueError(value)
    return (datetime_text(value) + _fraction(data[5:], form.meta)).encode()


def _timestamp(form: ColumnForm, data: bytes) -> bytes:
    return (_moment(int.from_bytes(data[:4], "big")) + _fraction(data[4:], form.meta)).encode()


def _moment(seconds: int) -> str:
    if not seconds:
        return "0000-00-00 00:00:00"
    return (_EPOCH + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


def _old_time(form: ColumnForm, data: bytes) -> bytes:
    value = int.from_bytes(data, "little", signed=True)
    sign, value = ("-" if value < 0 else ""), abs(value)
    return f"{sign}{value // 10000:02d}:{value // 100 % 100:02d}:{value % 100:02d}".encode()


def _old_datetime(form: ColumnForm, data: bytes) -> bytes:
    digits = f"{int.from_bytes(data, 'little'):014d}"
    if len(digits) != 14:
        raise ValueError(digits)
    date, clock = digits[:8], digits[8:]
    return f"{date[:4]}-{date[4:6]}-{date[6:]} {clock[:2]}:{clock[2:4]}:{clock[4:]}".encode()


def _old_timestamp(form: ColumnForm, data: bytes) -> bytes:
    return _moment(int.from_bytes(data, "little")).encode()


def _bytes(form: ColumnForm, data: bytes) -> bytes:
    return b"\\x" + data.ljust(form.meta, b"\0").hex().encode()


def _text(form: ColumnForm, data: bytes) -> bytes:
    return text_of(data, form.charset)


def _label(form: ColumnForm, data: bytes) -> bytes:
    index = int.from_bytes(data, "little")
    return form.labels[index - 1].encode() if index else b""


def _labels(form: ColumnForm, data: bytes) -> bytes:
    bits = int.from_bytes(data, "little")
    if bits >> len(form.labels):
        raise ValueError(bits)
    return ",".join(label for place, label in enumerate(form.labels) if bits >> place & 1).encode()


def _json(form: ColumnForm, data: bytes) -> bytes:
    return document_text(data).encode()


def _vector(form: ColumnForm, data: bytes) -> bytes:
    import numpy as np

    numbers = [_number(float(str(one))).decode() for one in np.frombuffer(data, "<f4")]
    return f"[{','.join(numbers)}]".encode()


def _uuid(form: ColumnForm, data: bytes) -> bytes:
    digits = data.ljust(16, b"\0").hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def _inet4(form: ColumnForm, data: bytes) -> bytes:
    return str(ipaddress.IPv4Address(data.ljust(4, b"\0"))).encode()


def _inet6(form: ColumnForm, data: bytes) -> bytes:
    raw = data.ljust(16, b"\0")
    found = ipaddress.IPv6Address(raw)
    # mapped and compatible addresses of IPv4 are printed as such
    if found.ipv4_mapped is not None:
        return f"::ffff:{found.ipv4_mapped}".encode()
    if raw[:12] == bytes(12) and raw[12:14] != bytes(2):
        return f"::{ipaddress.IPv4Address(raw[12:])}".encode()
    return str(found).encode()


def decompressed(data: bytes) -> bytes:
    """Return the bytes of a value of a COMPRESSED column of MariaDB."""
    if not data:
        return b""
    method, header = data[0] >> 4, data[0] & 7
    if method == 0 and not data[0] & 15:
        return data[1:]
    if method != 8:
        raise ValueError(method)
    length = int.from_bytes(data[1 : 1 + header], "big")
    raw = bool(data[0] & 8)
    found = zlib.decompress(data[1 + header :], -15 if raw else 15, length)
    if len(found) != length:
        raise ValueError(length)
    return found


def _compressed_text(form: ColumnForm, data: bytes) -> bytes:
    return text_of(decompressed(data), form.charset)


def _compressed_bytes(form: ColumnForm, data: bytes) -> bytes:
    return b"\\x" + decompressed(data).hex().encode()


_TEXTS: dict[ValueKind, Callable[[ColumnForm, bytes], bytes]] = {
    ValueKind.INTEGER: _integer, ValueKind.FLOAT: _float, ValueKind.FLOAT_AS_DOUBLE: _wide_float,
    ValueKind.DOUBLE: _double,
    ValueKind.DECIMAL: _decimal, ValueKind.YEAR: _year, ValueKind.DATE: _date, ValueKind.TIME: _time,
    ValueKind.DATETIME: _datetime,
    ValueKind.TIMESTAMP: _timestamp, ValueKind.OLD_TIME: _old_time, ValueKind.OLD_DATETIME: _old_datetime,
    ValueKind.OLD_TIMESTAMP: _old_timestamp, ValueKind.BITS: _bytes, ValueKind.TEXT: _text, ValueKind.BYTES: _bytes,
    ValueKind.LABEL: _label,
    ValueKind.LABELS: _labels, ValueKind.JSON: _json, ValueKind.VECTOR: _vector, ValueKind.UUID: _uuid,
    ValueKind.INET4: _inet4,
    ValueKind.INET6: _inet6, ValueKind.COMPRESSED_TEXT: _compressed_text, ValueKind.COMPRESSED_BYTES: _compressed_bytes,
    ValueKind.NOTHING: lambda form, data: b"",
}  # fmt: skip
