"""Binary JSON of MySQL's log, and its partial updates, become the text that a client of the server sees."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tailrace.connectors.binlog.log.json_documents import document_text, parsed, updated_text
from tailrace.connectors.binlog.schema.table_map import ColumnType
from tailrace.errors import DecodeError

REPLACE, INSERT, REMOVE = 0, 1, 2


def encoded(value: Any) -> tuple[int, bytes]:
    """Return the kind of a value and its bytes, as MySQL stores it; objects must have their names in order."""
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        return 9, struct.pack("<q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        length = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
        return 12, length + data
    names = list(value) if isinstance(value, dict) else []
    members = list(value.values()) if isinstance(value, dict) else value
    at = 4 + 4 * len(names) + 3 * len(members)
    entries, rest = b"", b""
    for name in names:
        entries += struct.pack("<HH", at + len(rest), len(name.encode()))
        rest += name.encode()
    for kind, data in map(encoded, members):
        entries += bytes([kind]) + (data + b"\0" if kind == 4 else struct.pack("<H", at + len(rest)))
        rest += b"" if kind == 4 else data
    body = struct.pack("<HH", len(members), at + len(rest)) + entries + rest
    return (0 if isinstance(value, dict) else 2), body


def binary(value: Any) -> bytes:
    kind, data = encoded(value)
    return bytes([kind]) + data


def change(operation: int, path: str, value: Any = None) -> bytes:
    """Return a difference: an operation, a path and, unless it removes, a value."""
    found = bytes([operation, len(path.encode())]) + path.encode()
    if operation == REMOVE:
        return found
    data = binary(value)
    return found + bytes([len(data)]) + data


def test_a_document_is_written_compactly() -> None:
    value = {"a": [1, -2, 1.5, None, True], 'b"\n': {}, "c": "ü" * 100}
    assert document_text(binary(value)) == '{"a":[1,-2,1.5,null,true],"b\\"\\n":{},"c":"' + "ü" * 100 + '"}'
    assert document_text(b"") == "{}"
    assert document_text(binary(1e300)).startswith("1000000000000000052504760255204420248704468581108159154915854115")


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (ColumnType.NEWDECIMAL, bytes([4, 2, 0x8C, 34]), "12.34"),
        (ColumnType.DATE, (((2024 * 13 + 2) << 5 | 29) << 17 << 24).to_bytes(8, "little"), '"2024-02-29"'),
        (ColumnType.DATETIME, ((((2024 * 13 + 2) << 5 | 29) << 17 | 3 << 12 | 4 << 6 | 5) << 24 | 500_000)
         .to_bytes(8, "little"), '"2024-02-29 03:04:05.5"'),
        (ColumnType.TIME, (-((12 << 12 | 34 << 6 | 56) << 24)).to_bytes(8, "little", signed=True), '"-12:34:56"'),
        (ColumnType.BLOB, b"\x00\xff", '"AP8="'),
    ],
)  # fmt: skip
def test_values_of_other_types_are_shown_as_the_server_shows_them(kind: int, data: bytes, expected: str) -> None:
    assert document_text(bytes([15, kind, len(data)]) + data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x0d",
        b"\x04\x07",
        b"\x0c\x05abc",
        b"\x0c\xff\xff\xff\xff\xff\xff",
        b"\x0c\x02\xff\xfe",
        b"\x09\x01",
        b"\x02\x01\x00\xff\x00",
        # an array that contains itself
        b"\x02\x01\x00\x07\x00\x02\x00\x00",
    ],
)
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="does not follow the server's format"):
        parsed(data)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"a": 1}, [change(REPLACE, "$.a", "x")], '{"a":"x"}'),
        ({"a": 1}, [change(REPLACE, "$", [2])], "[2]"),
        ({"a": [1, {"b": 2}]}, [change(REPLACE, "$.a[1].b", 3)], '{"a":[1,{"b":3}]}'),
        ({"a": [[1, 2]]}, [change(REPLACE, "$.a[0][1]", 9)], '{"a":[[1,9]]}'),
        ({"b": 1, "aa": 2}, [change(INSERT, "$.c", 3)], '{"b":1,"c":3,"aa":2}'),
        ({"b": 1}, [change(INSERT, "$.a", 3)], '{"a":3,"b":1}'),
        ([1, 2], [change(INSERT, "$[1]", 9)], "[1,9,2]"),
        ([1, 2], [change(INSERT, "$[2]", 9)], "[1,2,9]"),
        ([1, 2], [change(REPLACE, "$[0]", 9)], "[9,2]"),
        ([1, 2, 3], [change(REMOVE, "$[1]"), change(REMOVE, "$[1]")], "[1]"),
        ({"a": 1, "b": 2}, [change(REMOVE, "$.a")], '{"b":2}'),
        ({"a b": {"c.d": 1}}, [change(REPLACE, '$."a b"."c.d"', 2)], '{"a b":{"c.d":2}}'),
        ({'a"b': 1}, [change(REMOVE, r'$."a\"b"')], "{}"),
        ({"a": 1}, [change(REPLACE, "$.a", 2), change(INSERT, "$.b", []), change(INSERT, "$.b[0]", None)],
         '{"a":2,"b":[null]}'),
        ({"a": 1}, [], '{"a":1}'),
    ],
)  # fmt: skip
def test_a_partial_update_changes_the_document_before_it(before: Any, changes: list[bytes], after: str) -> None:
    assert updated_text(binary(before), b"".join(changes)) == after


@pytest.mark.parametrize(
    "differences",
    [
        change(REPLACE, "$.none", 1),
        change(REMOVE, "$.none"),
        change(REPLACE, "$.a.b", 1),
        change(REPLACE, "$[0]", 1),
        change(REPLACE, "$.l[7]", 1),
        change(REPLACE, "$.l.a", 1),
        change(INSERT, "$", 1),
        change(REPLACE, "a", 1),
        change(REPLACE, "$a", 1),
        change(REPLACE, "$.l[x]", 1),
        change(REPLACE, '$."a', 1),
        change(REPLACE, "$.a", 1)[:-1],
    ],
)
def test_a_partial_update_of_another_document_is_refused(differences: bytes) -> None:
    with pytest.raises(DecodeError):
        updated_text(binary({"a": 1, "l": [1]}), differences)
