"""Large transactions sent while in progress give the messages that protocol 1 would send after their commit."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from typing import Any

import pytest

from tailrace.connectors.postgres.log.endings import classify
from tailrace.connectors.postgres.log.in_progress import (
    AfterCommit,
    StreamedTransactions,
    TooMuchInProgress,
    UnclearTransaction,
)
from tailrace.errors import DecodeError

TOP, FIRST, SECOND = 700, 701, 702


def start(xid: int = TOP, first: bool = True) -> bytes:
    return struct.pack(">cIB", b"S", xid, first)


def abort(sub: int, top: int = TOP) -> bytes:
    return struct.pack(">cII", b"A", top, sub)


def commit(xid: int = TOP) -> bytes:
    return struct.pack(">cIBqqq", b"c", xid, 0, 1000, 1010, 5)


def within(kind: bytes, xid: int, rest: bytes) -> bytes:
    return kind + struct.pack(">I", xid) + rest


def oid(number: int, rest: bytes = b"") -> bytes:
    return struct.pack(">I", number) + rest


def streamed(*parts: bytes, **more: Any) -> StreamedTransactions:
    """Return one block of these messages."""
    one = StreamedTransactions(**more)
    one.start(start())
    for place, part in enumerate(parts):
        one.add(part, 10 * place)
    one.stop()
    return one


def bodies(one: StreamedTransactions) -> list[bytes]:
    """Return the messages handed out at the commit, between Begin and Commit."""
    found = [body for body, _ in one.commit(commit(), 1010)]
    assert found[0] == struct.pack(">cqqI", b"B", 1000, 5, TOP)
    assert found[-1] == struct.pack(">cBqqq", b"C", 0, 1000, 1010, 5)
    return found[1:-1]


def test_the_origin_stands_behind_the_begin() -> None:
    origin = b"O" + struct.pack(">q", 0) + b"elsewhere\0"
    one = streamed(origin, within(b"R", TOP, oid(9)), within(b"I", TOP, oid(9, b"a")))
    assert bodies(one) == [origin, b"R" + oid(9), b"I" + oid(9, b"a")]


def test_what_was_rolled_back_is_left_out_but_for_a_relation_that_others_need() -> None:
    one = streamed(
        within(b"R", FIRST, oid(9, b"shared")),
        within(b"Y", FIRST, oid(4)),
        within(b"I", FIRST, oid(9, b"gone")),
        within(b"R", FIRST, oid(8, b"unneeded")),
        within(b"I", TOP, oid(9, b"stays")),
        within(b"R", SECOND, oid(7, b"truncated")),
        within(b"T", TOP, struct.pack(">IBI", 1, 0, 7)),
        within(b"R", SECOND, oid(6, b"old")),
        within(b"R", TOP, oid(6, b"new")),
        within(b"I", TOP, oid(6, b"of new")),
    )
    one.abort(abort(FIRST))
    one.abort(abort(SECOND))
    assert bodies(one) == [
        b"R" + oid(9, b"shared"),
        b"I" + oid(9, b"stays"),
        b"R" + oid(7, b"truncated"),
        b"T" + struct.pack(">IBI", 1, 0, 7),
        b"R" + oid(6, b"new"),
        b"I" + oid(6, b"of new"),
    ]


def test_blocks_of_several_transactions_do_not_mix() -> None:
    one = streamed(within(b"I", TOP, oid(9, b"1")))
    one.start(start(800))
    one.add(within(b"I", 800, oid(9, b"other")), 50)
    one.stop()
    one.start(start(first=False))
    one.add(within(b"I", TOP, oid(9, b"2")), 60)
    one.stop()
    one.abort(abort(800, 800))
    assert bodies(one) == [b"I" + oid(9, b"1"), b"I" + oid(9, b"2")]
    with pytest.raises(DecodeError):
        list(one.commit(commit(800), 0))


def test_messages_beside_a_rollback_are_not_guessed_at() -> None:
    message = within(b"M", TOP, struct.pack(">BQ", 1, 5) + b"p\0" + struct.pack(">I", 1) + b"x")
    assert bodies(streamed(message)) == [b"M" + message[5:]]
    one = streamed(message, within(b"I", FIRST, oid(9)))
    one.abort(abort(FIRST))
    with pytest.raises(UnclearTransaction):
        bodies(one)


def test_a_commit_of_an_unknown_transaction_is_no_empty_one() -> None:
    with pytest.raises(DecodeError, match="700"):
        list(StreamedTransactions().commit(commit(), 0))


def test_what_is_in_progress_is_bounded_over_all_transactions() -> None:
    message = within(b"I", TOP, oid(9, b"x" * 100))
    record = 16 + len(message) - 4
    one = streamed(message, message, limit=3 * record)
    one.start(start(800))
    one.add(message, 50)
    with pytest.raises(TooMuchInProgress, match=r"max\.queue\.size\.in\.bytes"):
        one.add(message, 60)
    one.abort(abort(800, 800))
    assert one.size == 2 * record
    assert len(bodies(one)) == 2
    assert one.size == 0


def test_a_full_disk_ends_the_session_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Full:
        """A file on a full disk: closing it fails too, because of buffered data."""

        closed = False

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            self.closed = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def file(*_: object, **__: object) -> Full:
        made.append(Full())
        return made[-1]

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", file)
    one = StreamedTransactions()
    one.start(start(800))
    one.stop()
    one.start(start())
    with pytest.raises(AfterCommit, match="No space left") as failed:
        one.add(within(b"I", TOP, oid(9)), 0)
    assert classify(failed.value, "slot") is None
    one.close()
    assert [full.closed for full in made] == [True, True]
