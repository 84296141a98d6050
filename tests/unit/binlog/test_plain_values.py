"""Values of the log, one by one, become the text that the server shows."""

from __future__ import annotations

import ipaddress
import struct
import zlib

import pytest

from tailrace.connectors.binlog.log.forms import ColumnForm, ValueKind
from tailrace.connectors.binlog.log.plain_values import decompressed, value_text
from tailrace.errors import DecodeError


@pytest.mark.parametrize(
    ("kind", "meta", "data", "expected"),
    [
        (ValueKind.INTEGER, 0, b"\xff\xff", "-1"),
        (ValueKind.INTEGER, 1, b"\xff\xff", "65535"),
        (ValueKind.FLOAT, 0, struct.pack("<f", 0.1), "0.1"),
        (ValueKind.FLOAT_AS_DOUBLE, 0, struct.pack("<f", 0.1), "0.10000000149011612"),
        (ValueKind.DOUBLE, 0, struct.pack("<d", -1e22), "-1e+22"),
        (ValueKind.DECIMAL, 4 << 8 | 2, bytes([0x8C, 34]), "12.34"),
        (ValueKind.DECIMAL, 4 << 8 | 2, bytes([0x73, 221]), "-12.34"),
        (ValueKind.YEAR, 0, b"\x7c", "2024"),
        (ValueKind.YEAR, 0, b"\0", "0000"),
        (ValueKind.DATE, 0, (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), "2024-02-29"),
        (ValueKind.TIME, 0, ((1 << 23) + (838 << 12 | 59 << 6 | 59)).to_bytes(3, "big"), "838:59:59"),
        (ValueKind.TIME, 0, ((1 << 23) - (1 << 12)).to_bytes(3, "big"), "-01:00:00"),
        (ValueKind.TIME, 1, ((1 << 31) - 50).to_bytes(4, "big"), "-00:00:00.5"),
        (ValueKind.OLD_TIME, 0, (-123456).to_bytes(3, "little", signed=True), "-12:34:56"),
        (ValueKind.OLD_DATETIME, 0, (20240229030405).to_bytes(8, "little"), "2024-02-29 03:04:05"),
        (ValueKind.OLD_DATETIME, 0, bytes(8), "0000-00-00 00:00:00"),
        (ValueKind.OLD_TIMESTAMP, 0, (86_400).to_bytes(4, "little"), "1970-01-02 00:00:00"),
        (ValueKind.TIMESTAMP, 3, (1).to_bytes(4, "big") + (1230).to_bytes(2, "big"), "1970-01-01 00:00:01.123"),
        (ValueKind.TIMESTAMP, 0, bytes(4), "0000-00-00 00:00:00"),
        (ValueKind.BYTES, 4, b"\x01\xff", "\\x01ff0000"),
        (ValueKind.VECTOR, 0, struct.pack("<2f", 1.5, -2), "[1.5,-2.0]"),
        (ValueKind.UUID, 0, bytes.fromhex("123e4567e89b12d3a456426614174000"), "123e4567-e89b-12d3-a456-426614174000"),
        (ValueKind.INET4, 0, b"\x7f", "127.0.0.0"),
        (ValueKind.INET6, 0, ipaddress.IPv6Address("2001:db8::ff00:42:8329").packed, "2001:db8::ff00:42:8329"),
        (ValueKind.INET6, 0, ipaddress.IPv6Address("::ffff:192.0.2.128").packed, "::ffff:192.0.2.128"),
        (ValueKind.INET6, 0, bytes(12) + bytes([192, 0, 2, 128]), "::192.0.2.128"),
        (ValueKind.INET6, 0, bytes(15) + b"\x01", "::1"),
        (ValueKind.INET6, 0, b"", "::"),
        (ValueKind.NOTHING, 0, b"", ""),
    ],
)
def test_a_value_is_written_as_the_server_writes_it(kind: ValueKind, meta: int, data: bytes, expected: str) -> None:
    assert value_text(ColumnForm(kind, len(data), meta), data).decode() == expected


LABELS = ("a", "ü", "c")


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (ValueKind.LABEL, b"\x02", "ü"),
        # the value of an invalid insert without strict mode
        (ValueKind.LABEL, b"\x00", ""),
        (ValueKind.LABELS, b"\x05", "a,c"),
        (ValueKind.LABELS, b"\x00", ""),
    ],
)
def test_labels_are_found_by_their_places(kind: ValueKind, data: bytes, expected: str) -> None:
    assert value_text(ColumnForm(kind, 1, labels=LABELS), data).decode() == expected


def test_a_compressed_value_is_shown_as_it_was_before() -> None:
    text = "üb" * 50
    raw = text.encode()
    squeezed = zlib.compress(raw)
    whole = bytes([8 << 4 | 1, len(raw)]) + squeezed
    bare = bytes([8 << 4 | 8 | 2]) + len(raw).to_bytes(2, "big") + squeezed[2:-4]
    for data in (whole, bare, b"\0" + raw):
        assert value_text(ColumnForm(ValueKind.COMPRESSED_TEXT, -2, charset="utf8mb4"), data).decode() == text
        assert value_text(ColumnForm(ValueKind.COMPRESSED_BYTES, -2), data).decode() == "\\x" + raw.hex()
    assert decompressed(b"") == b""


@pytest.mark.parametrize(
    ("kind", "meta", "data"),
    [
        (ValueKind.COMPRESSED_BYTES, 0, b"\x70abc"),
        (ValueKind.COMPRESSED_BYTES, 0, b"\x81\x09" + zlib.compress(b"short")),
        (ValueKind.COMPRESSED_BYTES, 0, b"\x81\x05nothing"),
        (ValueKind.OLD_DATETIME, 0, b"\xff" * 8),
        (ValueKind.DATETIME, 0, bytes(5)),
        (ValueKind.DECIMAL, 4 << 8 | 2, b"\x8c"),
        (ValueKind.TIMESTAMP, 2, bytes(4) + b"\x64"),
        (ValueKind.LABEL, 0, b"\x09"),
        (ValueKind.LABELS, 0, b"\xff"),
        (ValueKind.DATE, 0, b"\xff\xff\xff"),
        (ValueKind.DOUBLE, 0, b"\x00"),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_the_kind(kind: ValueKind, meta: int, data: bytes) -> None:
    with pytest.raises(DecodeError, match=f"A value of the log is no {kind.name}"):
        value_text(ColumnForm(kind, len(data), meta, labels=LABELS), data)
