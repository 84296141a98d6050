"""Fuzz targets: messages of pgoutput, and their replication envelope.

An input is pieces: the bytes of the first piece choose what to do, the others are messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Image, Transactions
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.log import gears
from tailrace.connectors.postgres.log.indexing import Indexer
from tailrace.connectors.postgres.protocol import decoder, scan
from tailrace.connectors.postgres.protocol.pgoutput import (
    UNAVAILABLE,
    Delete,
    Insert,
    Row,
    Update,
    Value,
    parse,
)
from tailrace.connectors.postgres.protocol.position import START, RowPositions, Segment
from tailrace.errors import DecodeError, TailraceError
from tailrace.log.rows.frames import gather
from tailrace.log.rows.numbering import Numbering
from tailrace.process.runtime import THREADS
from tests.fuzz.guarded import Guarded
from tests.fuzz.machine import Difference, Target
from tests.fuzz.mutation import framed, frames
from tests.property import logs
from tests.property.plain_decoder import plain_decode

_GUARDED = Guarded()
_OID = 10
_WORDS = (
    b"t\x00\x00\x00\x01x", b"n", b"u", b"b\x00\x00\x00\x01x", b"\x00\x02", b"N", b"K", b"O", b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"I", b"U", b"D", b"T", b"B", b"C", b"M", b"R", b"Y", b"S", b"E", b"A",
    b"c", b"\x00\x00\x00\x0a", b"w" + bytes(24), b"k" + bytes(17),
)  # fmt: skip


# --- protocol 1 ------------------------------------------------------------------------------------------------------


def _segment(messages: Sequence[bytes], width: int, oid: int) -> Segment:
    columns = tuple(Column(f"column_{index}", "text", 25) for index in range(width))
    count = len(messages)
    return Segment(
        table=TableSchema(TableId("db", "public", "things"), columns, (), oid=oid),
        data=_GUARDED.copy(b"".join(messages)),
        offsets=_GUARDED.numbers(np.cumsum([0, *map(len, messages)])),
        by_row=RowPositions(
            transaction=np.zeros(count, dtype=np.int32),
            ordinal=np.arange(count, dtype=np.int64),
            lsn=np.arange(count, dtype=np.int64) * 8,
        ),
        transactions=Transactions(*(np.array([number], dtype=np.int64) for number in (1, 2, 3, -1))),
    )


def _image(image: Image | None) -> object:
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


def _outcome(decode: Callable[[Segment], ChangeBatch], segment: Segment) -> object:
    try:
        batch = decode(segment)
    except DecodeError as error:
        return error.message, error.offset
    return batch.op.tobytes(), _image(batch.before), _image(batch.after)


def _row(message: bytes, width: int) -> Insert | Update | Delete | None:
    """Return the message if it is a change of a table with that number of columns."""
    try:
        change = parse(message)
    except DecodeError:
        return None
    if not isinstance(change, Insert | Update | Delete):
        return None
    rows = [row for row in (getattr(change, "old", None), getattr(change, "new", None)) if row is not None]
    return change if all(len(row) == width for row in rows) else None


def _restored(old: Row, new: Row) -> list[tuple[Value, Value]]:
    return [(was, was if now is UNAVAILABLE else now) for was, now in zip(old, new, strict=True)]


def _keys(segment: Segment, messages: Sequence[bytes], width: int) -> None:
    """Compare the keys by which segments are cut, and the updates that change nothing."""
    changes = [_row(message, width) for message in messages]
    places = np.arange(width, dtype=np.int32)
    rows = _GUARDED.numbers(number for number, change in enumerate(changes) if change is not None)
    scan.key_hashes(segment.data, segment.offsets, rows, places, width)
    updates = _GUARDED.numbers(number for number, change in enumerate(changes) if isinstance(change, Update))
    same = scan.unchanged(segment.data, segment.offsets, updates, places, width).tolist()
    for number, found in zip(updates.tolist(), same, strict=True):
        change = changes[number]
        assert isinstance(change, Update)
        whole = change.old is not None and change.old_kind == "O"
        wanted = whole and all(
            was == now or now is UNAVAILABLE for was, now in zip(change.old or (), change.new, strict=True)
        )
        if found != wanted:
            raise Difference(f"unchanged\n{messages[number]!r}: {found}, plainly {wanted}")
    # In the other messages, too, an error is reported and not followed.
    for number in range(len(messages)):
        for call in (scan.key_hashes, scan.unchanged):
            _error(lambda call=call, number=number: call(  # type: ignore[misc]
                segment.data, segment.offsets, np.array([number]), places, width))  # fmt: skip


def _error(call: Callable[[], object]) -> str | None:
    try:
        call()
    except TailraceError as error:
        return error.message
    return None


def _indexed(messages: Sequence[bytes], cut: int, numbered: bool) -> object:
    """Return the planner's index of the messages, in two runs."""
    numbering = Numbering(logs.SCHEMAS, frozenset()) if numbered else None
    compared = None if numbered else lambda version: (np.arange(2, dtype=np.int32), 2)
    indexer = Indexer(START, logs.Known(), None, numbering, lambda prefix: True, compared)
    found = []
    for part in (messages[:cut], messages[cut:]):
        if not part:
            continue
        data, offsets = _GUARDED.copy(b"".join(part)), _GUARDED.numbers(np.cumsum([0, *map(len, part)]))
        step = indexer.index(data, offsets, np.arange(len(part), dtype=np.int64))
        indexer.keep(step)
        run = step.run.compacted()
        found.append((len(run), run.size(0, len(run)), tuple(run.version.tolist())[:6]))
    return tuple(found)


def _run_messages(data: bytes) -> object:
    head, *messages = frames(data) or [b""]
    if len(head) < 4:
        return None
    width, oid = head[0] % 5, (0, _OID)[head[1] & 1]
    for message in messages:
        _error(lambda message=message: parse(message))  # type: ignore[misc]
    segment = _segment(messages, width, oid)
    fast, plain = _outcome(decoder.decode, segment), _outcome(plain_decode, segment)
    if fast != plain:
        raise Difference(f"decode\n{messages!r}: {fast!r}, plainly {plain!r}")
    if _error(lambda: scan.scan(segment.data, segment.offsets)) is None:
        order = _GUARDED.numbers(reversed(range(len(messages))))
        copy, _ = gather(segment.data, segment.offsets, order)
        if copy.tobytes() != b"".join(reversed(messages)):
            raise Difference("gather")
    _keys(segment, messages, width)
    word = fast if isinstance(fast[0], str) else fast[0]  # type: ignore[index]
    return word, _indexed(messages, head[2] % (len(messages) + 1), bool(head[3] & 1))


def _transactions() -> list[list[tuple[str, int, int]]]:
    return [
        [("I", 10, 1), ("U", 10, 1), ("M", 20, 2), ("D", 10, 1)],
        [("L", 0, 1), ("T", 10, 1), ("I", 30, 2)],
        [("A", 0, 1)],
        [],
        [("I", 20, 3)] * 4,
    ]


def _row_of(*values: bytes | None) -> bytes:
    texts = (b"n" if value is None else b"u" if value == b"?" else logs.text(value.decode()) for value in values)
    return struct.pack(">H", len(values)) + b"".join(texts)


def _messages() -> list[bytes]:
    messages, _ = logs.log(_transactions())
    full = b"U" + struct.pack(">I", _OID) + b"O" + _row_of(b"1", b"old") + b"N" + _row_of(b"1", b"?")
    origin = b"O" + bytes(8) + b"elsewhere\0"
    kind = b"Y" + struct.pack(">I", 99) + b"public\0mood\0"
    return [*messages, full, origin, kind, b"D" + struct.pack(">I", _OID) + b"O" + _row_of(b"1", None)]


def _seeds() -> list[bytes]:
    rows = [message for message in _messages() if message[:1] in (b"I", b"U", b"D")]
    own = [message for message in rows if message[1:5] == struct.pack(">I", _OID)]
    wide = [b"I" + struct.pack(">I", _OID) + b"N" + _row_of(*[b"x" * 40] * count) for count in range(5)]
    return [
        framed([bytes([2, 1, 3, 0]), *own]),
        framed([bytes([2, 0, 7, 1]), *rows]),
        *(framed([bytes([2, 1, 5, number]), *logs.log(_transactions())[0]]) for number in (0, 1)),
        *(framed([bytes([2, 1, 0, 0]), message]) for message in _messages()),
        *(framed([bytes([count, 1, 0, 0]), message]) for count, message in enumerate(wide)),
    ]


MESSAGES = Target("pgoutput", _run_messages, _seeds, _WORDS)


# --- the envelope, and protocol 2 ------------------------------------------------------------------------------------


class _Session:
    """The part of a connection that the streaming gear needs: arrived messages, and no way to answer."""

    socket = -1

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.pgconn = self
        self._left = iter(messages)

    def get_copy_data(self, _: int) -> tuple[int, bytes]:
        message = next(self._left, None)
        # No message is empty: libpq returns 0 if none has arrived.
        return (0, b"") if not message else (len(message), message)

    def consume_input(self) -> None: ...
    def put_copy_data(self, _: bytes) -> None: ...
    def flush(self) -> int:
        return 0

    def close(self) -> None: ...


_BELL = THREADS.bell()


def _polled(messages: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """Return the messages of protocol 1 that the gear yields."""
    session: Any = _Session(messages)
    gear = gears.Streaming(session, 1e9, _BELL)
    gear._last_status = 1e18
    found: list[tuple[bytes, int]] = []
    try:
        while (run := gear.poll(0.0, lambda: True)) is not None:
            bounds = run.offsets.tolist()
            texts = [run.data[low:high].tobytes() for low, high in pairwise(bounds)]
            found += zip(texts, run.lsn.tolist(), strict=True)
    finally:
        gear.close()
    return found


def _plainly(messages: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Return the same in a plain way, for messages without an error: transactions in progress are lists."""
    held: dict[int, list[tuple[int, bytes, int]]] = {}
    current = None
    for message in messages:
        if message[:1] != b"w":
            continue
        lsn = int.from_bytes(message[1:9], "big", signed=True)
        payload = message[25:]
        kind = payload[:1]
        if current is not None and kind == b"E":
            current = None
        elif current is not None and kind == b"O":
            held[current].append((current, payload, lsn))
        elif current is not None:
            held[current].append((int.from_bytes(payload[1:5], "big"), kind + payload[5:], lsn))
        elif kind == b"S":
            current = int.from_bytes(payload[1:5], "big")
            held.setdefault(current, [])
        elif kind == b"A":
            top, sub = (int.from_bytes(payload[at : at + 4], "big") for at in (1, 5))
            if top == sub:
                held.pop(top, None)
            elif top in held:
                held[top] = [one if one[0] != sub or one[1][:1] == b"R" else (sub, b"", 0) for one in held[top]]
        elif kind == b"c":
            xid = int.from_bytes(payload[1:5], "big")
            flags, commit, end, at = struct.unpack(">Bqqq", payload[5:])
            yield struct.pack(">cqqI", b"B", commit, at, xid), lsn
            yield from ((body, place) for _, body, place in held.pop(xid) if body)
            yield struct.pack(">cBqqq", b"C", flags, commit, end, at), lsn
        else:
            yield payload, lsn


def _is_plain(messages: Sequence[bytes]) -> bool:
    """Return True if nothing is rolled back in part, since the gear then decides which Relation messages are kept."""
    return not any(message[25:26] == b"A" for message in messages)


def _run_envelope(data: bytes) -> object:
    head, *messages = frames(data) or [b""]
    if head[:1] == b"\x01":
        return _run_rows(head[1:], messages)
    # An empty message ends the arrived messages.
    messages = messages[: messages.index(b"")] if b"" in messages else messages
    found = _polled(messages)
    if _is_plain(messages):
        wanted = list(_plainly(messages))
        if found != wanted:
            raise Difference(f"streamed\n{messages!r}\n{found!r}\nplainly {wanted!r}")
    return tuple(body[:1] for body, _ in found[:12]), _indexed([body for body, _ in found], len(found) // 2, False)


def _run_rows(positions: bytes, messages: Sequence[bytes]) -> object:
    """Compare the rows of the catch-up gear, each with an LSN of eight bytes if the server is sound."""
    parts = [positions[at : at + 9] for at in range(0, len(positions), 9)]
    # The first byte is the length of the LSN.
    lsns = [part[1 : 1 + part[0] % 10] if part else b"" for part in parts][: len(messages)]
    lsns += [bytes(8)] * (len(messages) - len(lsns))
    batch = pa.record_batch([pa.array(lsns, pa.binary()), pa.array(list(messages), pa.binary())], names=["lsn", "data"])
    if not batch.num_rows:
        return None
    run = gears._from_arrow(batch)
    wanted = [int.from_bytes(lsn, "big", signed=True) for lsn in lsns]
    if run.data.tobytes() != b"".join(messages) or run.lsn.tolist() != wanted:
        raise Difference(f"rows\n{lsns!r} {messages!r}")
    return len(messages)


def _wrapped(payload: bytes, lsn: int = 8) -> bytes:
    return b"w" + struct.pack(">qqq", lsn, lsn, 0) + payload


def _with_xid(message: bytes, xid: int) -> bytes:
    return message if message[:1] == b"O" else message[:1] + struct.pack(">I", xid) + message[1:]


def _envelopes() -> list[bytes]:
    messages, lsns = logs.log(_transactions())
    whole = [_wrapped(message, lsn) for message, lsn in zip(messages, lsns, strict=True)]
    inner = [message for message in messages if message[:1] not in (b"B", b"C")]
    start = _wrapped(b"S" + struct.pack(">IB", 700, 1))
    stop = _wrapped(b"E")
    commit = _wrapped(b"c" + struct.pack(">IBqqq", 700, 0, 5000, 5005, 9))
    body = [_wrapped(_with_xid(message, 700), 100 + place) for place, message in enumerate(inner[:4])]
    sub = [_wrapped(_with_xid(message, 701), 200 + place) for place, message in enumerate(inner[:2])]
    alive = b"k" + struct.pack(">qqb", 9, 0, 1)
    gone = _wrapped(b"A" + struct.pack(">II", 700, 701))
    rolled = _wrapped(b"A" + struct.pack(">II", 700, 700))
    positions = b"".join(bytes([8]) + struct.pack(">q", number) for number in range(4))
    return [
        framed([b"\x00", *whole, alive]),
        framed([b"\x00", start, *body, stop, alive, start, *sub, stop, commit]),
        framed([b"\x00", start, *body, stop, start, *sub, stop, gone, commit]),
        framed([b"\x00", start, *body, stop, rolled, *whole[:5]]),
        framed([b"\x01" + positions, *messages[:4]]),
        *(framed([b"\x00", one]) for one in (alive, start, stop, commit, gone, rolled)),
    ]


ENVELOPE = Target("envelope", _run_envelope, _envelopes, _WORDS)
