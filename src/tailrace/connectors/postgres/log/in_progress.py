"""Large transactions that the server streams before their commit (protocol 2), kept until then. Planner."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from tailrace.errors import ConnectionFailed, DecodeError
from tailrace.log.spool import spool_failed

_BEGIN = struct.Struct(">cqqI")
_COMMIT = struct.Struct(">cBqqq")
_STREAM_START = struct.Struct(">cIB")
_STREAM_ABORT = struct.Struct(">cII")
_STREAM_COMMIT = struct.Struct(">cIBqqq")
_LENGTH = struct.Struct(">qI")
# Messages that carry a transaction id inside a stream block.
_STREAMED_KINDS = frozenset(b"RYIUDTM")
_ORIGIN, _RELATION, _TRUNCATE, _MESSAGE = b"ORTM"
_ROWS = frozenset(b"IUD")


@dataclass(slots=True)
class _InProgress:
    """A transaction that is streamed before its commit: a file of its messages, each with its subtransaction's id."""

    file: IO[bytes]
    aborted: set[int] = field(default_factory=set)
    has_messages: bool = False
    size: int = 0


class AfterCommit(ConnectionFailed):
    """Transactions in progress cannot be accepted: the server must send them after their commit."""


class UnclearTransaction(AfterCommit):
    """A large transaction for which the server does not say which messages were rolled back."""


class TooMuchInProgress(AfterCommit):
    """Transactions in progress are larger than their limit, or than the disk has room for."""


class StreamedTransactions:
    """Large transactions that the server sends while they are in progress, kept until their commit.

    Each transaction has a spooled file: in memory up to `memory_limit` bytes, then on disk. A record of the file is the
    message's LSN and length, the id of the subtransaction that wrote it, and the message without that id. The
    transactions belong to one session: the next session sends them again. If the files exceed `limit` bytes, or a file
    cannot be written, TooMuchInProgress is raised and ends the session.
    """

    def __init__(self, limit: int = 512 << 20, memory_limit: int = 8 << 20) -> None:
        self._limit = limit
        self._memory_limit = min(limit, memory_limit)
        self._open: dict[int, _InProgress] = {}
        self.current: int | None = None
        # bytes in all the files
        self.size = 0

    def start(self, message: bytes) -> None:
        (self.current,) = unpacked(_STREAM_START, message)[1:2]
        assert self.current is not None
        if self.current not in self._open:
            # closed at the transaction's end
            file = tempfile.SpooledTemporaryFile(self._memory_limit, prefix="tailrace-transaction-")  # noqa: SIM115
            self._open[self.current] = _InProgress(file)

    def stop(self) -> None:
        self.current = None

    def add(self, message: bytes, lsn: int) -> None:
        assert self.current is not None
        kind = message[0] if message else 0
        transaction = self._open[self.current]
        if kind == _ORIGIN:
            # the only message without an id; it follows the first Stream Start, as it would follow a Begin
            subtransaction, body = struct.pack(">I", self.current), message
        elif kind in _STREAMED_KINDS and len(message) >= 5:
            subtransaction, body = message[1:5], message[:1] + message[5:]
        else:
            raise DecodeError(f"a message {chr(kind)} inside a stream block")
        transaction.has_messages |= kind == _MESSAGE
        record = _LENGTH.pack(lsn, len(body)) + subtransaction + body
        if self.size + len(record) > self._limit:
            raise TooMuchInProgress(
                f"Transactions in progress take more than {self._limit} bytes.",
                "max.queue.size.in.bytes sets the limit.",
            )
        try:
            transaction.file.write(record)
        except OSError as error:
            raise _unkept(error, len(record)) from error
        transaction.size += len(record)
        self.size += len(record)

    def abort(self, message: bytes) -> None:
        _, top, sub = unpacked(_STREAM_ABORT, message)
        transaction = self._open.get(top)
        if transaction is None:
            return
        if top == sub:
            self._forget(top)
        else:
            transaction.aborted.add(sub)

    def commit(self, message: bytes, lsn: int) -> Iterator[tuple[bytes, int]]:
        """Yield the committed transaction's messages as protocol 1 would have sent them, each with its LSN.

        Raises UnclearTransaction when the transaction has logical messages and subtransactions that were rolled back:
        the server sends logical messages with the id of the whole transaction.
        """
        _, xid, flags, commit_lsn, end_lsn, at = unpacked(_STREAM_COMMIT, message)
        transaction = self._open.get(xid)
        if transaction is None:
            raise DecodeError(f"the commit of the transaction {xid}, of which no stream block came")
        if transaction.has_messages and transaction.aborted:
            raise UnclearTransaction(f"The server does not say which messages the transaction {xid} has rolled back.")
        yield _BEGIN.pack(b"B", commit_lsn, at, xid), lsn
        try:
            yield from _surviving(transaction)
        except OSError as error:
            raise _unkept(error) from error
        yield _COMMIT.pack(b"C", flags, commit_lsn, end_lsn, at), lsn
        self._forget(xid)

    def _forget(self, xid: int) -> None:
        transaction = self._open.pop(xid)
        self.size -= transaction.size
        _close(transaction.file)

    def close(self) -> None:
        for xid in list(self._open):
            self._forget(xid)


def _unkept(error: OSError, size: int = 0) -> TooMuchInProgress:
    failed = spool_failed(error, size)
    return TooMuchInProgress(failed.message, failed.remedy)


def unpacked(form: struct.Struct, message: bytes) -> tuple[Any, ...]:
    """Return the fields of a message, its kind first. Raises DecodeError if its length does not fit `form`."""
    if len(message) != form.size:
        raise DecodeError(f"a replication message of kind {message[:1]!r} has {len(message)} bytes, not {form.size}")
    return form.unpack(message)


def _surviving(transaction: _InProgress) -> Iterator[tuple[bytes, int]]:
    """Yield the messages of a transaction without those of subtransactions that were rolled back.

    A Relation message describes all changes of its table up to the next Relation message, in whichever subtransaction
    it was sent. A Relation message of a subtransaction that was rolled back is therefore yielded if a surviving change
    needs it.
    """
    file = transaction.file
    file.seek(0)
    held: dict[bytes, tuple[bytes, int]] = {}
    while head := file.read(_LENGTH.size + 4):
        position, length = _LENGTH.unpack_from(head)
        body = file.read(length)
        kind = body[0]
        if int.from_bytes(head[_LENGTH.size :], "big") in transaction.aborted:
            if kind == _RELATION:
                held[body[1:5]] = body, position
            continue
        if held:
            for oid in _tables(body):
                relation = held.pop(oid, None)
                if relation is not None and kind != _RELATION:
                    yield relation
        yield body, position


def _tables(body: bytes) -> list[bytes]:
    """Return the oids of the tables of a message, as bytes."""
    if body[0] == _TRUNCATE:
        return [body[at : at + 4] for at in range(6, len(body), 4)]
    return [body[1:5]] if body[0] in _ROWS or body[0] == _RELATION else []


def _close(file: IO[bytes]) -> None:
    # data that is still to be written does not matter any more
    with suppress(OSError):
        file.close()
