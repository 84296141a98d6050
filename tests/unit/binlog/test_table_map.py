"""Table maps of the log: types, parameters and the fields that binlog_row_metadata adds."""

from __future__ import annotations

import pytest

from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap, packed, parse
from tailrace.errors import DecodeError


def body(types: list[int], meta: bytes = b"", optional: bytes = b"", nullable: int = 0) -> bytes:
    """Return the body of an event for the table d.t after the table's id."""
    described = bytes([len(types), *types, len(meta)]) + meta
    return b"\1\0" + b"\1d\0" + b"\1t\0" + described + bytes([nullable]) + optional


def field(tag: int, value: bytes) -> bytes:
    return bytes([tag, len(value)]) + value


def mapped(types: list[int], meta: bytes = b"", *optional: bytes, is_mariadb: bool = False) -> TableMap:
    return parse(body(types, meta, b"".join(optional)), is_mariadb)


@pytest.mark.parametrize(
    ("code", "meta", "kind", "parameter"),
    [
        (ColumnType.LONG, b"", ColumnType.LONG, 0),
        (ColumnType.VARCHAR, b"\x2c\x01", ColumnType.VARCHAR, 300),
        (ColumnType.BLOB, b"\x02", ColumnType.BLOB, 2),
        (ColumnType.NEWDECIMAL, b"\x0a\x02", ColumnType.NEWDECIMAL, 10 << 8 | 2),
        (ColumnType.BIT, b"\x04\x01", ColumnType.BIT, 12),
        (ColumnType.DATETIME2, b"\x06", ColumnType.DATETIME2, 6),
        (ColumnType.STRING, b"\xf7\x02", ColumnType.ENUM, 2),
        (ColumnType.STRING, b"\xf8\x08", ColumnType.SET, 8),
        (ColumnType.STRING, b"\xfe\x28", ColumnType.STRING, 40),
        # CHAR(255) of utf8mb4 has 1020 bytes
        (ColumnType.STRING, b"\xce\xfc", ColumnType.STRING, 1020),
        (ColumnType.STRING, b"\x00\x05", ColumnType.STRING, 5),
    ],
)
def test_a_column_has_its_real_type_and_its_parameter(code: int, meta: bytes, kind: ColumnType, parameter: int) -> None:
    found = mapped([code], meta)
    assert (found.database, found.table, found.types, found.meta) == ("d", "t", (kind,), (parameter,))
    assert not found.is_full


def test_nulls_are_allowed_by_bits() -> None:
    assert parse(body([3, 3, 3], nullable=0b101), False).nullable == (True, False, True)


def test_fields_of_full_metadata_belong_to_columns_of_their_types() -> None:
    types = [ColumnType.LONG, ColumnType.VARCHAR, ColumnType.YEAR, ColumnType.STRING, ColumnType.STRING,
             ColumnType.GEOMETRY, ColumnType.VECTOR, ColumnType.BLOB]  # fmt: skip
    meta = b"\x0c\x00" + b"\xf7\x01" + b"\xf8\x01" + b"\x04" + b"\x04" + b"\x02"
    names = b"".join(b"\1" + letter for letter in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"))
    optional = [
        field(1, b"\x80"), field(2, b"\xfc\xff\x00" + b"\x01\x3f"), field(11, b"\x08\x21"), field(4, names),
        field(5, b"\x02\x01x\x01y"), field(6, b"\x01\x02zz"), field(7, b"\x01"), field(13, b"\x03"),
        field(9, b"\x01\x04\x00\x00"), field(12, b"\xfe"),
    ]  # fmt: skip
    found = mapped(types, meta, *optional)
    assert found.is_full
    assert found.names == tuple("abcdefgh")
    assert found.unsigned == (True, None, None, None, None, None, None, None)
    assert found.collations == (None, 255, None, 8, 33, None, None, 63)
    assert (found.labels[3], found.labels[4], found.labels[0]) == ((b"zz",), (b"x", b"y"), None)
    assert (found.geometry_types[5], found.dimensions[6]) == (1, 3)
    # a prefix of four characters of b, and all of a
    assert found.key == ((1, 4), (0, 0))
    assert found.visible == (True,) * 7 + (False,)


def test_signs_and_collations_are_counted_as_each_server_counts_them() -> None:
    types, meta = [ColumnType.YEAR, ColumnType.LONG, ColumnType.GEOMETRY, ColumnType.BLOB], b"\x04\x02"
    both = field(1, b"\x40"), field(3, b"\x3f\x08")
    assert mapped(types, meta, field(1, b"\x80"), field(3, b"\x08")).unsigned == (None, True, None, None)
    mariadb = mapped(types, meta, *both, is_mariadb=True)
    assert mariadb.unsigned == (False, True, None, None)
    assert mariadb.collations == (None, None, 63, 8)


def test_labels_may_have_collations_of_their_own() -> None:
    types, meta = [ColumnType.STRING, ColumnType.STRING], b"\xf7\x01\xf8\x01"
    assert mapped(types, meta, field(10, b"\x21\x01\x08")).collations == (33, 8)


def test_a_table_whose_columns_are_named_and_whose_key_is_not_has_none() -> None:
    names = field(4, b"\1a")
    assert mapped([3]).key is None
    assert mapped([3], b"", names).key == ()
    assert mapped([3], b"", names, field(8, b"\0")).key == ((0, 0),)


@pytest.mark.parametrize(
    "broken",
    [
        b"\1\0\1dx\1t\0\1\3\0\0",
        body([3, 3])[:-4],
        body([3])[:-1],
        body([15], b"\1"),
        body([3], b"\1"),
        body([3], b"", b"\1\5\x80"),
        body([3], b"", field(4, b"\1ab")),
        body([3], b"", field(1, b"")),
    ],
)
def test_a_map_that_breaks_off_is_refused(broken: bytes) -> None:
    with pytest.raises(DecodeError, match="does not follow the protocol"):
        parse(broken, False)


@pytest.mark.parametrize(("code", "words"), [(200, "the type 200, which is not known"), (20, "multi-valued index")])
def test_a_type_that_cannot_be_read_is_named(code: int, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        mapped([code])


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"\xfa", 250), (b"\xfc\xfb\x00", 251), (b"\xfd\x00\x00\x01", 1 << 16), (b"\xfe" + b"\xff" * 8, (1 << 64) - 1)],
)
def test_a_number_has_as_many_bytes_as_it_needs(data: bytes, expected: int) -> None:
    assert packed(data, 0) == (expected, len(data))
    if len(data) > 1:
        with pytest.raises(IndexError):
            packed(data[:-1], 0)
