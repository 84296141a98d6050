"""pgoutput.parse: each message of the protocol, field by field, and each possible fault."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from tailrace.columns.batch import Transactions
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.protocol import decoder, pgoutput, scan
from tailrace.connectors.postgres.protocol.pgoutput import (
    UNAVAILABLE,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Update,
    parse,
)
from tailrace.connectors.postgres.protocol.position import RowPositions, Segment
from tailrace.errors import DecodeError
from tests.property.plain_decoder import plain_decode

ONE = b"\x00\x02t\x00\x00\x00\x011n"  # the tuple ("1", null)
TWO = b"\x00\x02t\x00\x00\x00\x02\xc3\xa9u"  # the tuple ("é", unchanged)

MESSAGES = [
    (struct.pack(">cQqI", b"B", 2**64 - 1, -5, 2**32 - 1), Begin(2**64 - 1, -5, 2**32 - 1)),
    (struct.pack(">cBQQq", b"C", 0, 10, 20, 30), Commit(0, 10, 20, 30)),
    (struct.pack(">cQ", b"O", 7) + b"node\0", Origin(7, "node")),
    (
        b"R"
        + struct.pack(">I", 2**32 - 1)
        + b"public\0t\xc3\xa4\0d\x00\x01"
        + b"\x01id\0"
        + struct.pack(">Ii", 23, -1),
        Relation(2**32 - 1, "public", "tä", "d", (RelationColumn(1, "id", 23, -1),)),
    ),
    (b"Y\x00\x00\x40\x00public\0mood\0", Type(0x4000, "public", "mood")),
    (b"I\x00\x00\x00\x07N" + ONE, Insert(7, (b"1", None))),
    (b"U\x00\x00\x00\x07N" + TWO, Update(7, None, None, ("é".encode(), UNAVAILABLE))),
    (b"U\x00\x00\x00\x07K" + ONE + b"N" + TWO, Update(7, "K", (b"1", None), ("é".encode(), UNAVAILABLE))),
    (b"U\x00\x00\x00\x07O" + ONE + b"N" + ONE, Update(7, "O", (b"1", None), (b"1", None))),
    (b"D\x00\x00\x00\x07K" + ONE, Delete(7, "K", (b"1", None))),
    (b"D\x00\x00\x00\x07O" + ONE, Delete(7, "O", (b"1", None))),
    (b"T\x00\x00\x00\x02\x03\x00\x00\x00\x07\x00\x00\x00\x08", Truncate(3, (7, 8))),
    (struct.pack(">cBQ", b"M", 1, 99) + b"prefix\0\x00\x00\x00\x02\x00\xff", Message(1, 99, "prefix", b"\x00\xff")),
]
NAMES = [f"{type(message).__name__}-{index}" for index, (_, message) in enumerate(MESSAGES)]


@pytest.mark.parametrize(("data", "message"), MESSAGES, ids=NAMES)
def test_every_message_of_the_protocol_is_parsed_field_by_field(data: bytes, message: object) -> None:
    assert parse(data) == message


@pytest.mark.parametrize(("data", "message"), MESSAGES, ids=NAMES)
def test_a_message_cut_short_anywhere_is_an_error_with_an_offset_within_it(data: bytes, message: object) -> None:
    for length in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            parse(data[:length])
        assert 0 <= caught.value.offset <= length


@pytest.mark.parametrize(("data", "message"), MESSAGES, ids=NAMES)
def test_bytes_behind_a_message_are_an_error_at_the_first_of_them(data: bytes, message: object) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(data + b"\0\0")
    assert caught.value.offset == len(data)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"Z", 0),
        (b"I\x00\x00\x00\x07K" + ONE, 5),
        (b"U\x00\x00\x00\x07X" + ONE, 5),
        (b"U\x00\x00\x00\x07K" + ONE + b"K" + ONE, 15),
        (b"D\x00\x00\x00\x07N" + ONE, 5),
        (b"I\x00\x00\x00\x07N\x00\x01x", 8),
        (b"I\x00\x00\x00\x07N\x00\x01b\x00\x00\x00\x01\x01", 8),
        (b"I\x00\x00\x00\x07N\x00\x01t\xff\xff\xff\xff1", 13),
        (b"Y\x00\x00\x40\x00\xff\0mood\0", 5),
        (b"T\xff\xff\xff\xff\x00\x00\x00\x00\x01", 10),
    ],
)
def test_an_error_points_to_the_byte_that_is_wrong(data: bytes, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(data)
    assert caught.value.offset == offset


def test_unavailable_stays_itself_across_processes() -> None:
    assert pickle.loads(pickle.dumps(parse(b"I\x00\x00\x00\x07N" + TWO))).new[1] is UNAVAILABLE


def segment(*messages: bytes, names: str = "ab", oid: int = 7) -> Segment:
    table = TableSchema(
        TableId("db", "public", "things"), tuple(Column(name, "text", 25) for name in names), ("a",), oid=oid
    )
    count = len(messages)
    return Segment(
        table=table,
        data=np.frombuffer(b"".join(messages), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, messages)], dtype=np.int64),
        by_row=RowPositions(
            transaction=np.zeros(count, dtype=np.int32),
            ordinal=np.arange(count, dtype=np.int64),
            lsn=np.arange(100, 100 + count, dtype=np.int64),
        ),
        transactions=Transactions(*(np.array([number], dtype=np.int64) for number in (1, 2, 3, -1))),
    )


INSERT = b"I\x00\x00\x00\x07N" + ONE
BOTH = pytest.mark.parametrize("decode", [decoder.decode, plain_decode], ids=["fast", "plain"])


@BOTH
def test_operations_and_images_follow_the_messages(decode) -> None:
    batch = decode(
        segment(
            INSERT,
            b"U\x00\x00\x00\x07N" + ONE,
            b"U\x00\x00\x00\x07K" + ONE + b"N" + TWO,
            b"U\x00\x00\x00\x07O\x00\x02nt\x00\x00\x00\x03old" + b"N" + TWO,
            b"D\x00\x00\x00\x07K" + ONE,
            b"T\x00\x00\x00\x02\x00\x00\x00\x00\x06\x00\x00\x00\x07",
        )
    )
    assert batch.op.tobytes() == b"cuuudt"
    assert batch.lsn.tolist() == [100, 101, 102, 103, 104, 105]
    assert batch.before.present.tolist() == [False, False, True, True, True, False]
    assert batch.before.columns[0].to_pylist() == [None, None, b"1", None, b"1", None]
    assert batch.before.columns[1].to_pylist() == [None, None, None, b"old", None, None]
    assert batch.after.present.tolist() == [True, True, True, True, False, False]
    accented = "é".encode()
    assert batch.after.columns[0].to_pylist() == [b"1", b"1", accented, accented, None, None]
    # Row 2 lacks the unchanged value; row 3 takes it from the whole old row.
    assert batch.after.columns[1].to_pylist() == [None, None, None, b"old", None, None]
    assert batch.after.unavailable[0] is None
    assert batch.after.unavailable[1].tolist() == [False, False, True, False, False, False]


@BOTH
def test_images_that_no_row_has_are_none(decode) -> None:
    inserts, deletes, nothing = decode(segment(INSERT)), decode(segment(b"D\x00\x00\x00\x07O" + ONE)), decode(segment())
    assert inserts.before is None
    assert inserts.after.present is None
    assert deletes.after is None
    assert (nothing.before, nothing.after, len(nothing)) == (None, None, 0)


@BOTH
@pytest.mark.parametrize(
    ("bad", "offset", "says"),
    [
        (b"I\x00\x00\x00\x07N\x00\x01n", 6, "1 columns; public.things has 2"),
        (b"U\x00\x00\x00\x07K" + ONE + b"N\x00\x03nnn", 16, "3 columns; public.things has 2"),
        (b"I\x00\x00\x00\x08N" + ONE, 1, "Relation 8 is not public.things"),
        (b"T\x00\x00\x00\x01\x00\x00\x00\x00\x08", 1, "does not name public.things"),
        (b"Y" + bytes(4) + b"a\0b\0", 0, "A Type message"),
        (INSERT[:-1], 14, "ends within its column kind"),
        (b"", 0, "ends within its kind"),
    ],
)
def test_the_first_wrong_message_is_named_by_its_place_in_the_segment(decode, bad, offset, says) -> None:
    with pytest.raises(DecodeError, match=says) as caught:
        decode(segment(INSERT, bad, b"worse"))
    assert caught.value.offset == len(INSERT) + offset


@BOTH
def test_a_table_without_an_oid_takes_any_relation(decode) -> None:
    batch = decode(segment(INSERT, b"T\x00\x00\x00\x01\x00\x00\x00\x00\x08", oid=0))
    assert batch.op.tobytes() == b"ct"


@BOTH
@pytest.mark.parametrize("offsets", [[0, 15], [0, 16, 15], [-1, 0, 15], [0, 15, 31], []])
def test_offsets_that_do_not_cut_the_data_are_an_error(decode, offsets) -> None:
    bad = segment(INSERT, INSERT)
    bad.offsets = np.array(offsets, dtype=np.int64)
    with pytest.raises(DecodeError):
        decode(bad)


@BOTH
def test_a_column_too_large_for_one_batch_says_that_the_batch_must_be_smaller(decode, monkeypatch) -> None:
    monkeypatch.setattr(pgoutput, "MAX_COLUMN_BYTES", 2)
    assert len(decode(segment(INSERT, INSERT))) == 2
    with pytest.raises(DecodeError, match=r"Column a of public\.things has 3 bytes.*must be smaller"):
        decode(segment(INSERT, INSERT, INSERT))


def test_scan_names_the_message_that_is_too_short() -> None:
    good = segment(INSERT)
    kinds, relations = scan.scan(good.data, good.offsets)
    assert (kinds.tobytes(), relations.tolist()) == (b"I", [7])
    for bad, offset in ((b"", len(INSERT)), (b"R\x00", len(INSERT) + 1)):
        short = segment(INSERT, bad)
        with pytest.raises(DecodeError) as caught:
            scan.scan(short.data, short.offsets)
        assert caught.value.offset == offset


def test_a_key_hash_never_changes() -> None:
    # Batches planned before an upgrade are replayed after it, so the hash must never change.
    made = segment(INSERT)
    hashes, _ = scan.key_hashes(made.data, made.offsets, np.array([0]), np.array([0, 1]), 2)
    assert hashes.tolist() == [11271334539423717946]


def test_rows_that_may_leave_their_key_are_flagged() -> None:
    other = ONE.replace(b"1", b"2")
    messages = {
        INSERT: False,
        b"U\x00\x00\x00\x07N" + ONE: False,
        b"U\x00\x00\x00\x07K" + ONE + b"N" + ONE: True,
        b"U\x00\x00\x00\x07O" + ONE + b"N" + ONE: False,
        b"U\x00\x00\x00\x07O" + other + b"N" + ONE: True,
        b"U\x00\x00\x00\x07N\x00\x02un": True,
        b"D\x00\x00\x00\x07K" + ONE: False,
        b"D\x00\x00\x00\x07K\x00\x02nn": True,
    }
    made = segment(*messages)
    hashes, moved = scan.key_hashes(made.data, made.offsets, np.arange(len(made)), np.array([0]), 2)
    assert moved.tolist() == list(messages.values())
    assert len(set(hashes[[0, 1, 2, 3, 4, 6]])) == 1


def test_indexes_that_do_not_exist_are_refused() -> None:
    made = segment(INSERT)
    with pytest.raises(IndexError):
        scan.gather(made.data, made.offsets, np.array([1]))
    with pytest.raises(IndexError):
        scan.key_hashes(made.data, made.offsets, np.array([-1]), np.array([0]), 2)
    with pytest.raises(IndexError):
        scan.key_hashes(made.data, made.offsets, np.array([0]), np.array([2]), 2)


def test_a_row_without_a_key_column_or_of_another_width_is_an_error() -> None:
    made = segment(INSERT, b"D\x00\x00\x00\x07K\x00\x01n", b"E")
    for row, offset in ((1, len(INSERT) + 6), (2, len(INSERT) + 9)):
        with pytest.raises(DecodeError) as caught:
            scan.key_hashes(made.data, made.offsets, np.array([0, row]), np.array([0]), 2)
        assert caught.value.offset == offset
