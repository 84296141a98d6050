"""Parts of events of the log, as the protocols of MySQL and MariaDB describe them."""

from __future__ import annotations

import struct
import zlib
from uuid import UUID

import pyarrow as pa
import pytest

from tailrace.connectors.binlog.log import events
from tailrace.connectors.binlog.log.events import EventType, Gtid
from tailrace.errors import DecodeError

SOURCE = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


def test_a_rotation_names_the_next_file() -> None:
    assert events.rotation(struct.pack("<Q", 4) + b"binlog.000002") == ("binlog.000002", 4)


@pytest.mark.parametrize(
    ("rest", "commit_us"),
    [
        (b"", 0),
        # logical timestamps alone
        (b"\2" + bytes(16), 0),
        (b"\2" + bytes(16) + (1_700_000_000_000_000).to_bytes(7, "little"), 1_700_000_000_000_000),
        # at a replica: the time of the commit there, and behind it that at the source
        (b"\2" + bytes(16) + (1_700_000_000_000_001 | 1 << 55).to_bytes(7, "little")
         + (1_700_000_000_000_000).to_bytes(7, "little"), 1_700_000_000_000_000),
    ],
)  # fmt: skip
def test_an_id_of_mysql_has_the_time_of_its_first_commit(rest: bytes, commit_us: int) -> None:
    assert events.gtid(b"\1" + SOURCE.bytes + struct.pack("<q", 7) + rest) == Gtid(str(SOURCE), 7, commit_us)


def varied(value: int) -> bytes:
    """Return a number of few bits as MySQL's serialization writes it."""
    return bytes([value << 1]) if value < 128 else struct.pack("<H", value << 2 | 1)


def tagged(*fields: bytes) -> bytes:
    data = b"".join(fields)
    return varied(1) + varied(3 + len(data)) + varied(20) + data


ID = varied(1) + b"".join(map(varied, SOURCE.bytes))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([varied(0) + varied(1), ID, varied(2) + varied(10)], Gtid(str(SOURCE), 5)),
        ([ID, varied(2) + varied(10), varied(3) + varied(2) + b"ab"], Gtid(f"{SOURCE}:ab", 5)),
        ([ID, varied(2) + varied(10), varied(6) + varied(40)], Gtid(str(SOURCE), 5, 20)),
        ([ID, varied(2) + varied(10), varied(6) + varied(40), varied(7) + varied(9)], Gtid(str(SOURCE), 5, 9)),
    ],
)
def test_an_id_with_a_tag_has_numbered_fields(fields: list[bytes], expected: Gtid) -> None:
    assert events.tagged_gtid(tagged(*fields)) == expected


@pytest.mark.parametrize("fields", [[ID], [ID, varied(2) + varied(9)], [ID, varied(2) + varied(10), varied(77)]])
def test_an_id_with_a_tag_needs_a_number_and_known_fields(fields: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        events.tagged_gtid(tagged(*fields))


@pytest.mark.parametrize(
    ("flags", "rest", "expected"),
    [
        (0, b"", Gtid("3-9", 5)),
        (1, b"", Gtid("3-9", 5, is_alone=True)),
        (2, bytes(8) + b"\2", Gtid("3-9", 5, alters="start")),
        (0, b"\4" + bytes(8), Gtid("3-9", 5, alters="commit")),
        (0, b"\x08" + bytes(8), Gtid("3-9", 5, alters="rollback")),
        (0, b"\1\1", Gtid("3-9", 5)),
        (64, b"\1\0\0\0\2\1abc\2", Gtid("3-9", 5, alters="start", is_xa=True)),
        (128, b"\1\0\0\0\2\1abc", Gtid("3-9", 5)),
    ],
)
def test_an_id_of_mariadb_tells_what_follows(flags: int, rest: bytes, expected: Gtid) -> None:
    assert events.mariadb_gtid(struct.pack("<QIB", 5, 3, flags) + rest, 9) == expected


def test_a_list_of_mariadb_has_the_last_id_of_each_domain() -> None:
    body = struct.pack("<I", 2 | 1 << 28) + struct.pack("<IIQ", 0, 1, 100) + struct.pack("<IIQ", 2, 3, 7)
    assert events.gtid_list(body) == "0-1-100,2-3-7"


def test_a_statement_comes_with_its_database_and_status() -> None:
    sql = b"create table t (a int)"
    head = struct.pack("<IIBHH", 12, 0, 1, 1146, 3) + b"abc" + b"d\0"
    assert events.query(head + sql) == events.Query(12, "d", b"abc", sql, 1146)
    squeezed = bytes([0x81, len(sql)]) + zlib.compress(sql)
    assert events.query(head + squeezed, is_compressed=True).sql == sql


@pytest.mark.parametrize(
    "data",
    [b"\x01\x05" + zlib.compress(b"short"), b"\x91\x05", b"\x80\x05", b"\x81\x09" + zlib.compress(b"short"), b""],
)
def test_data_that_mariadb_has_not_compressed_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        events.inflated(data)


INNER = b"some events" * 9


def payload(data: bytes, **fields: int) -> bytes:
    numbers = {"size": 1, "algorithm": 2, "plain": 3}
    texts = {name: bytes([value]) if value < 251 else struct.pack("<BH", 252, value) for name, value in fields.items()}
    return b"".join(bytes([numbers[name], len(text)]) + text for name, text in texts.items()) + b"\0" + data


def test_a_compressed_transaction_of_mysql_has_its_events() -> None:
    data = pa.Codec("zstd").compress(INNER, asbytes=True)
    assert events.payload(payload(data, size=len(data), algorithm=0, plain=len(INNER))) == INNER
    assert events.payload(payload(INNER, algorithm=255)) == INNER


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (payload(INNER, size=5, algorithm=255), "does not follow"),
        (payload(INNER, algorithm=1), "compressed in a way that is not known .1."),
        (payload(INNER, algorithm=0), "does not follow"),
        (payload(INNER, algorithm=0, plain=9), "cannot be decompressed"),
        (b"\1\2\5\0" + INNER, "does not follow"),
    ],
)
def test_a_compressed_transaction_that_does_not_add_up_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        events.payload(body)


def test_a_heartbeat_says_up_to_where_the_log_is_sent() -> None:
    assert events.heartbeat(EventType.HEARTBEAT, b"binlog.000002", 500) == ("binlog.000002", 500)
    body = b"\1\x0dbinlog.000003" + b"\2\5\xfe\0\0\0\0"[:2] + b"\xfd\0\0\x02\0" + b"\0ignored"
    assert events.heartbeat(EventType.HEARTBEAT_V2, body, 500) == ("binlog.000003", 2 << 16)
    assert events.heartbeat(EventType.HEARTBEAT_V2, b"\1\1f", 500) == ("f", 500)


def test_a_prepared_transaction_has_its_id_as_statements_write_it() -> None:
    body = struct.pack("<?III", True, 1, 2, 1) + b"abc"
    assert events.xa_prepare(body) == (True, b"X'6162',X'63',1")
    with pytest.raises(DecodeError):
        events.xa_prepare(body[:-1])
