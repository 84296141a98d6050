"""The compiled decoder and scanner equal their plain counterparts, on a server's messages and on any other bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailrace.columns.batch import ChangeBatch, Image, Transactions
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.protocol import scan
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.protocol.pgoutput import (
    UNAVAILABLE,
    Delete,
    Insert,
    Row,
    Truncate,
    Update,
    Value,
    parse,
)
from tailrace.connectors.postgres.protocol.position import RowPositions, Segment
from tailrace.errors import DecodeError
from tailrace.log.rows import frames
from tests.extent import examples
from tests.property.plain_decoder import plain_decode

OID = 0xF000_0001
Change = Insert | Update | Delete | Truncate

# No deadline: the first call compiles.
checked = settings(deadline=None, max_examples=examples(150))

# Short alphabets make equal values, and so equal keys and unchanged columns, likely.
texts = st.one_of(
    st.sampled_from([b"", b"1", b"2", b"12"]), st.text(max_size=40).map(str.encode), st.binary(max_size=300)
)
values = st.one_of(st.none(), texts, texts, st.just(UNAVAILABLE))


def rows(width: int) -> st.SearchStrategy[Row]:
    return st.tuples(*[values] * width)


def changes(width: int, oid: int = OID) -> st.SearchStrategy[Change]:
    row, kind, relation = rows(width), st.sampled_from("KO"), st.just(oid)
    other_ids = st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
    return st.one_of(
        st.builds(Insert, relation, row),
        st.builds(Update, relation, st.none(), st.none(), row),
        st.builds(Update, relation, kind, row, row),
        st.builds(Delete, relation, kind, row),
        st.builds(lambda options, ids: Truncate(options, (*ids, oid)), st.integers(0, 3), other_ids),
    )


def written(change: Change) -> bytes:
    """Return the message as the server writes it: logicalrep_write_insert and its neighbours in proto.c."""
    match change:
        case Insert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + written_row(new)
        case Update(relation, kind, old, new):
            before = b"" if kind is None or old is None else kind.encode() + written_row(old)
            return b"U" + struct.pack(">I", relation) + before + b"N" + written_row(new)
        case Delete(relation, kind, old):
            return b"D" + struct.pack(">I", relation) + kind.encode() + written_row(old)
        case Truncate(options, ids):
            return b"T" + struct.pack(f">IB{len(ids)}I", len(ids), options, *ids)


def written_row(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(written_value, row))


def written_value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, bytes):
        return b"t" + struct.pack(">I", len(value)) + value
    return b"u"


def cut(messages: list[bytes], width: int, oid: int, identity: str = "d") -> Segment:
    columns = tuple(Column(f"column_{index}", "text", 25) for index in range(width))
    count = len(messages)
    return Segment(
        table=TableSchema(TableId("db", "public", "things"), columns, (), identity, oid),
        data=np.frombuffer(b"".join(messages), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, messages)], dtype=np.int64),
        by_row=RowPositions(
            transaction=np.zeros(count, dtype=np.int32),
            ordinal=np.arange(count, dtype=np.int64),
            lsn=np.arange(count, dtype=np.int64) * 8,
        ),
        transactions=Transactions(*(np.array([number], dtype=np.int64) for number in (1, 2, 3, -1))),
    )


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    width = draw(st.one_of(st.integers(0, 5), st.sampled_from([1, 9, 70])))
    messages = [written(change) for change in draw(st.lists(changes(width), max_size=20))]
    return cut(messages, width, draw(st.sampled_from([OID, 0])), draw(st.sampled_from("df")))


@st.composite
def damaged_segments(draw: st.DrawFn) -> Segment:
    """Draw segments of valid messages, some of which are cut, lengthened, changed in a byte, or replaced by noise."""
    width = draw(st.integers(0, 3))
    messages = []
    for change in draw(st.lists(changes(width), min_size=1, max_size=5)):
        message = written(change)
        match draw(st.sampled_from(["right", "right", "cut", "longer", "changed", "changed", "noise"])):
            case "cut":
                message = message[: draw(st.integers(0, len(message)))]
            case "longer":
                message += draw(st.binary(min_size=1, max_size=3))
            case "changed":
                # Half of the damage falls on the first bytes, which hold the structure.
                reach = draw(st.sampled_from([len(message), min(len(message), 14)]))
                place = draw(st.integers(0, reach - 1))
                byte = draw(st.one_of(st.sampled_from(b"IUDTNKOntub\x00\x01\xff"), st.integers(0, 255)))
                message = message[:place] + bytes([byte]) + message[place + 1 :]
            case "noise":
                message = draw(st.binary(max_size=40))
        messages.append(message)
    return cut(messages, width, draw(st.sampled_from([OID, 0])))


def plain_image(image: Image | None) -> object:
    if image is None:
        return None
    for column in image.columns:
        column.validate(full=True)
    return (
        None if image.present is None else image.present.tolist(),
        [column.to_pylist() for column in image.columns],
        [column.null_count for column in image.columns],
        [None if flags is None else flags.tolist() for flags in image.unavailable],
    )


def plain_batch(batch: ChangeBatch) -> object:
    return (
        batch.table.replica_identity,
        batch.op.tobytes(),
        batch.lsn.tolist(),
        batch.transaction.tolist(),
        batch.ordinal.tolist(),
        plain_image(batch.before),
        plain_image(batch.after),
    )


def failure(call: Callable[[], object]) -> DecodeError | None:
    try:
        call()
    except DecodeError as error:
        return error
    return None


def outcome(decoder: Callable[[Segment], ChangeBatch], segment: Segment) -> object:
    try:
        return plain_batch(decoder(segment))
    except DecodeError as error:
        return error.message, error.offset


@checked
@given(segments())
def test_the_fast_decoder_equals_the_plain_one(segment: Segment) -> None:
    assert plain_batch(decode(segment)) == plain_batch(plain_decode(segment))


@checked
@given(damaged_segments())
def test_damage_gives_both_decoders_the_same_error_at_the_same_byte(segment: Segment) -> None:
    assert outcome(decode, segment) == outcome(plain_decode, segment)


@checked
@given(st.lists(st.binary(max_size=30), max_size=4), st.integers(0, 2))
def test_noise_gives_both_decoders_the_same_error(messages: list[bytes], width: int) -> None:
    segment = cut(messages, width, 0)
    assert outcome(decode, segment) == outcome(plain_decode, segment)


@checked
@given(st.integers(0, 4).flatmap(changes))
def test_what_is_written_is_what_parse_reads(change: Change) -> None:
    assert parse(written(change)) == change


@checked
@given(st.sampled_from([b"", *(bytes([kind]) for kind in b"BCORYIUDTMS")]), st.binary(max_size=60))
def test_parse_raises_nothing_but_decode_errors(kind: bytes, rest: bytes) -> None:
    error = failure(lambda: parse(kind + rest))
    assert error is None or 0 <= error.offset <= len(kind + rest)


@checked
@given(st.lists(st.binary(max_size=8), max_size=8))
def test_scan_reads_kinds_and_relation_ids(messages: list[bytes]) -> None:
    segment = cut(messages, 0, 0)
    wrong = [message for message in messages if not message or (message[0] in b"RIUD" and len(message) < 5)]
    error = failure(lambda: scan.scan(segment.data, segment.offsets))
    if wrong:
        first = messages.index(wrong[0])
        assert error is not None
        assert error.offset == segment.offsets[first] + min(1, len(messages[first]))
        return
    kinds, relations = scan.scan(segment.data, segment.offsets)
    assert kinds.tolist() == [message[0] for message in messages]
    assert relations.dtype == np.uint32
    assert relations.tolist() == [int.from_bytes(message[1:5]) if message[0] in b"RIUD" else 0 for message in messages]


@checked
@given(st.lists(st.binary(max_size=8), min_size=1, max_size=8), st.data())
def test_gather_joins_the_chosen_messages(messages: list[bytes], data: st.DataObject) -> None:
    segment = cut(messages, 0, 0)
    chosen = data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=12))
    copy, offsets = frames.gather(segment.data, segment.offsets, np.array(chosen, dtype=np.int64))
    found = [copy[start:end].tobytes() for start, end in pairwise(offsets)]
    assert found == [messages[index] for index in chosen]
    assert (offsets[0], offsets[-1]) == (0, len(copy))


def plain_hash(key: list[Value]) -> int:
    hashed = 0xCBF29CE484222325
    for value in key:
        length = len(value) if isinstance(value, bytes) else (2**64 - 1 if value is None else 2**64 - 2)
        hashed = (hashed ^ length) * 0x100000001B3 % 2**64
        for byte in value if isinstance(value, bytes) else b"":
            hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashed = (hashed ^ (hashed >> 33)) * factor % 2**64
    return hashed ^ (hashed >> 33)


@dataclass
class Keyed:
    hash: int
    moved: bool


def plain_key(message: bytes, indexes: list[int], width: int) -> Keyed:
    change = parse(message)
    if not isinstance(change, Insert | Update | Delete):
        raise DecodeError("not a row")
    tuples = [getattr(change, side) for side in ("old", "new") if getattr(change, side, None) is not None]
    if any(len(row) != width for row in tuples):
        raise DecodeError("other width")
    key = [tuples[-1][index] for index in indexes]
    moved = UNAVAILABLE in key
    if isinstance(change, Update) and change.old is not None:
        moved |= change.old_kind == "K" or key != [change.old[index] for index in indexes]
    if isinstance(change, Delete) and change.old_kind == "K":
        moved |= None in key
    return Keyed(plain_hash(key), moved)


@checked
@given(st.one_of(segments(), damaged_segments()), st.data())
def test_key_hashes_cover_the_key_and_flag_every_row_that_may_leave_it(segment: Segment, data: st.DataObject) -> None:
    width, count = len(segment.table.columns), len(segment)
    indexes = data.draw(st.lists(st.integers(0, width - 1), unique=True, max_size=3)) if width else []
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=6)) if count else []
    messages = [segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes() for row in chosen]
    places, keys = np.array(chosen, dtype=np.int64), np.array(indexes, dtype=np.int32)
    wrong = failure(lambda: [plain_key(message, indexes, width) for message in messages])
    error = failure(lambda: scan.key_hashes(segment.data, segment.offsets, places, keys, width))
    if wrong is None:
        assert error is None
        expected = [plain_key(message, indexes, width) for message in messages]
        hashes, moved = scan.key_hashes(segment.data, segment.offsets, places, keys, width)
        assert hashes.tolist() == [keyed.hash for keyed in expected]
        assert moved.tolist() == [keyed.moved for keyed in expected]
    elif error is not None:  # Damage after the key is left for the decoder to find.
        assert 0 <= error.offset <= len(segment.data)


keys_of_two = st.tuples(texts | st.none(), texts | st.none())


@checked
@given(keys_of_two, keys_of_two)
def test_different_keys_have_different_hashes(one: Row, other: Row) -> None:
    assume(one != other)
    segment = cut([written(Insert(OID, one)), written(Insert(OID, other))], 2, OID)
    hashes, moved = scan.key_hashes(segment.data, segment.offsets, np.arange(2), np.arange(2, dtype=np.int32), 2)
    assert hashes[0] != hashes[1]
    assert not moved.any()
