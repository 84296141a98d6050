"""Any malformed message of a broken or hostile server is a DecodeError."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.connectors.postgres.log import gears
from tailrace.connectors.postgres.log.indexing import Indexer
from tailrace.connectors.postgres.protocol.position import START
from tailrace.errors import ConnectionFailed, DecodeError
from tailrace.process.runtime import THREADS
from tests.fuzz.pgoutput import _Session
from tests.property import logs

START_OF_STREAM = b"S" + struct.pack(">IB", 700, 1)
BEGIN = b"B" + struct.pack(">qqI", 100, 5, 700)
COMMIT = b"C" + struct.pack(">Bqqq", 0, 100, 105, 5)
CHANGE = logs.message(("I", 10, 1))


def wrapped(payload: bytes) -> bytes:
    return b"w" + struct.pack(">qqq", 8, 8, 0) + payload


def poll(*messages: bytes) -> None:
    session: Any = _Session(messages)
    bell = THREADS.bell()
    gear = gears.Streaming(session, 1e9, bell)
    gear._last_status = 1e18
    try:
        while gear.poll(0.0, lambda: True) is not None:
            pass
    finally:
        gear.close()
        bell.close()


@pytest.mark.parametrize(
    "message",
    [
        b"w",
        b"w" + bytes(23),
        b"k",
        b"k" + bytes(16),
        b"k" + bytes(18),
        b"x",
        wrapped(b"S"),
        wrapped(b"S\0\0"),
        wrapped(b"A" + bytes(7)),
        wrapped(b"A" + bytes(9)),
        wrapped(b"c"),
        wrapped(b"c" + bytes(30)),
    ],
)
def test_a_message_of_the_wrong_length_is_a_decode_error(message: bytes) -> None:
    with pytest.raises(DecodeError):
        poll(message)


def test_a_short_message_in_a_stream_block_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        poll(wrapped(START_OF_STREAM), wrapped(b"I\0"))


def index(messages: Sequence[bytes], numbered: bool = False) -> None:
    numbering = gears_numbering() if numbered else None
    indexer = Indexer(START, logs.Known(), None, numbering)
    offsets = np.cumsum([0, *map(len, messages)]).astype(np.int64)
    indexer.index(np.frombuffer(b"".join(messages), np.uint8), offsets, np.arange(len(messages), dtype=np.int64))


def gears_numbering() -> Any:
    from tailrace.log.rows.numbering import Numbering

    return Numbering(logs.SCHEMAS, frozenset())


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize(
    "messages",
    [
        [COMMIT],
        [BEGIN, BEGIN, COMMIT],
        [BEGIN, COMMIT, COMMIT],
        [COMMIT, BEGIN],
        [BEGIN, logs.relation(10), COMMIT, CHANGE],
        [BEGIN, COMMIT, CHANGE, BEGIN, COMMIT],
        [CHANGE],
    ],
)
def test_transactions_that_do_not_begin_and_end_in_turns_are_decode_errors(
    messages: list[bytes], numbered: bool
) -> None:
    with pytest.raises(DecodeError):
        index(messages, numbered)


def test_the_order_of_sound_transactions_is_taken() -> None:
    index([BEGIN, logs.relation(10), CHANGE, COMMIT, BEGIN, COMMIT, BEGIN, CHANGE])


@pytest.mark.parametrize("lsn", [b"", b"1234567", b"123456789", None])
def test_rows_without_an_lsn_are_decode_errors(lsn: bytes | None) -> None:
    batch = pa.record_batch([pa.array([lsn], pa.binary()), pa.array([b"B"], pa.binary())], names=["lsn", "data"])
    with pytest.raises(DecodeError):
        gears._from_arrow(batch)


@pytest.mark.parametrize("rows", [[], [None]])
def test_a_copy_of_the_slot_that_is_gone_is_a_lost_session(rows: list[int | None]) -> None:
    class Gone:
        def execute(self, sql: str) -> None: ...

        def query(self, sql: str) -> list[pa.RecordBatch]:
            return [pa.record_batch([pa.array(rows, pa.int64())], names=["position"])]

    gone: Any = Gone()
    with pytest.raises(ConnectionFailed):
        gears.CatchUp(gone, "slot", "publication", "copy", {}).position()
