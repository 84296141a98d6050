"""The two ways to read a slot, and the rule of the messages that both yield: protocol 1, in commit order.

*Streaming* is one lasting replication connection (PostgreSQL documentation, "Streaming Replication Protocol" and
"Logical Streaming Replication Protocol"). *Catch-up* reads slices of WAL by `pg_logical_slot_get_binary_changes`
from a temporary copy of the slot straight into Arrow: several times faster, because the walsender sends every
message by itself, but it materialises a slice on the server, so it is for backlogs. Planner only.
"""

from __future__ import annotations

import select
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Bytes, Int64s
from tailrace.connectors.postgres.log.spill import spool_failed
from tailrace.connectors.postgres.protocol.position import ForgettableLsn, ReadLsn, confirmed, lsn_text, sent
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.errors import ConnectionFailed, DecodeError
from tailrace.runtime import THREADS, Bell, Runtime

if TYPE_CHECKING:
    import psycopg


@dataclass(slots=True)
class Messages:
    """A run of protocol 1 messages: `data[offsets[i]:offsets[i + 1]]` was sent at `lsn[i]`."""

    data: Bytes
    offsets: Int64s
    lsn: Int64s


_XLOG_DATA = struct.Struct(">cqqq")
_KEEPALIVE = struct.Struct(">cqqb")
_STATUS = struct.Struct(">cqqqqb")
_BEGIN = struct.Struct(">cqqI")
_COMMIT = struct.Struct(">cBqqq")
_STREAM_START = struct.Struct(">cIB")
_STREAM_ABORT = struct.Struct(">cII")
_STREAM_COMMIT = struct.Struct(">cIBqqq")
_LENGTH = struct.Struct(">qI")
# PostgreSQL counts from 2000-01-01.
_EPOCH_S = 946_684_800
# Messages that carry a transaction id of their own inside a stream block.
_STREAMED_KINDS = frozenset(b"RYIUDTM")
_ORIGIN, _RELATION, _TRUNCATE, _MESSAGE = b"ORTM"
_ROWS = frozenset(b"IUD")


class Builder:
    """Collects single messages into runs."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lsn: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._lsn)

    def add(self, message: bytes, lsn: int) -> None:
        self._parts.append(message)
        self._lsn.append(lsn)
        self.size += len(message)

    def build(self) -> Messages:
        offsets = np.zeros(len(self._parts) + 1, np.int64)
        np.cumsum([len(part) for part in self._parts], out=offsets[1:])
        data = np.frombuffer(b"".join(self._parts), np.uint8)
        run = Messages(data, offsets, np.array(self._lsn, np.int64))
        self._parts, self._lsn, self.size = [], [], 0
        return run


@dataclass(slots=True)
class _InProgress:
    """A transaction that is streamed before its commit: its messages in a file, by subtransaction."""

    file: IO[bytes]
    aborted: set[int] = field(default_factory=set)
    has_messages: bool = False
    size: int = 0


class AfterCommit(ConnectionFailed):
    """What the server sends of transactions in progress cannot be used: they must be sent after their commit."""


class UnclearTransaction(AfterCommit):
    """A large transaction of which it cannot be told what was rolled back."""


class TooMuchInProgress(AfterCommit):
    """Transactions in progress that are larger than what may be kept of them, or than what the disk takes."""


class StreamedTransactions:
    """Large transactions that the server sends while they are in progress, kept until their commit.

    Each has a spooled file: in memory up to `memory_limit` bytes, then on disk. A record is the message's LSN and
    length, the id of the subtransaction that wrote it, and the message without that id. All of them belong to one
    session: the next one sends them anew. More than `limit` bytes, or what a file does not take, raises
    TooMuchInProgress and ends the session.
    """

    def __init__(self, limit: int = 512 << 20, memory_limit: int = 8 << 20) -> None:
        self._limit = limit
        self._memory_limit = min(limit, memory_limit)
        self._open: dict[int, _InProgress] = {}
        self.current: int | None = None
        # bytes in all the files
        self.size = 0

    def start(self, message: bytes) -> None:
        (self.current,) = _unpacked(_STREAM_START, message)[1:2]
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
            # the one message without an id: it stands behind the first start of a block, as behind a Begin
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
            raise _unkept(error) from error
        transaction.size += len(record)
        self.size += len(record)

    def abort(self, message: bytes) -> None:
        _, top, sub = _unpacked(_STREAM_ABORT, message)
        transaction = self._open.get(top)
        if transaction is None:
            return
        if top == sub:
            self._forget(top)
        else:
            transaction.aborted.add(sub)

    def commit(self, message: bytes, lsn: int) -> Iterator[tuple[bytes, int]]:
        """The committed transaction's messages, as protocol 1 would have sent them.

        Raises UnclearTransaction when it has logical messages and rolled back subtransactions: the server sends such
        messages with the id of the whole transaction.
        """
        _, xid, flags, commit_lsn, end_lsn, at = _unpacked(_STREAM_COMMIT, message)
        transaction = self._open.get(xid)
        if transaction is None:
            raise DecodeError(f"the commit of the transaction {xid}, of which no stream block came")
        if transaction.has_messages and transaction.aborted:
            raise UnclearTransaction(f"The server does not tell which messages the transaction {xid} has rolled back.")
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


def _unkept(error: OSError) -> TooMuchInProgress:
    failed = spool_failed(error)
    return TooMuchInProgress(failed.message, failed.remedy)


def _unpacked(form: struct.Struct, message: bytes) -> tuple[Any, ...]:
    """The fields of a message, its kind first; DecodeError where it has another length."""
    if len(message) != form.size:
        raise DecodeError(f"a replication message of kind {message[:1]!r} has {len(message)} bytes, not {form.size}")
    return form.unpack(message)


def _surviving(transaction: _InProgress) -> Iterator[tuple[bytes, int]]:
    """The messages of a transaction without those of its subtransactions that were rolled back.

    A Relation message counts for all changes of its table up to the next one, whichever subtransaction it came with:
    one that was rolled back is handed out if such a change needs it.
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
    """The oids of the tables that a message belongs to."""
    if body[0] == _TRUNCATE:
        return [body[at : at + 4] for at in range(6, len(body), 4)]
    return [body[1:5]] if body[0] in _ROWS or body[0] == _RELATION else []


def _close(file: IO[bytes]) -> None:
    # what is still to be written does not matter any more
    with suppress(OSError):
        file.close()


class Streaming:
    """The streaming gear: one replication connection for as long as it lasts."""

    RUN_BYTES = 1 << 20
    # How long a run waits for more in s, from the end of the last one on, while nobody is hurried: indexing takes as
    # long for a commit as for fifty, and a server under small commits sends hundreds a second.
    LINGER = 0.05
    # While it waits, it looks for more this often, in s, and not at each small thing that the server sends: to be woken
    # for every commit takes as long as to fetch five at once. So small is what is below DOZE_BYTES.
    DOZE = 0.01
    DOZE_BYTES = 16 << 10

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        status_interval_s: float,
        bell: Bell,
        streamed: StreamedTransactions | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        self._bell = bell
        self._runtime = runtime
        self._pg = connection.pgconn
        self._connection = connection
        self._status_interval = status_interval_s
        self._last_status = 0.0
        self._last_run = 0.0
        self._streamed = streamed or StreamedTransactions()
        self._builder = Builder()
        self._released: Iterator[tuple[bytes, int]] | None = None
        # Status messages tell the server that it may forget what is before.
        self.flushed = confirmed(0)
        # The server has sent everything before this LSN.
        self.sent_lsn = sent(0)

    def start(
        self,
        slot: str,
        publication: str,
        from_lsn: ReadLsn,
        forgettable: ForgettableLsn,
        server_version: int,
        further: Mapping[str, str],
        in_progress: bool = True,
    ) -> None:
        """Send START_REPLICATION; the first messages may follow at once. Raises ConnectionFailed.

        The server sends what commits from `from_lsn` on, and may forget what is before `forgettable`. `further` are
        parameters of pgoutput beside the protocol and the publication; with `in_progress` large transactions may be
        sent before their commit.
        """
        from psycopg import pq

        options = {"proto_version": "1", "publication_names": _quoted(publication), **further}
        if server_version >= 140000 and in_progress:
            options |= {"proto_version": "2", "streaming": "on"}
        listed = ", ".join(f"{_quoted(name)} {_literal(value)}" for name, value in options.items())
        command = f"START_REPLICATION SLOT {_quoted(slot)} LOGICAL {lsn_text(from_lsn)} ({listed})"
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise replication_error(result)
        self.flushed = forgettable
        self._pg.nonblocking = 1

    def poll(self, seconds: float, hurried: Callable[[], bool] = lambda: False) -> Messages | None:
        """What has arrived, as one run; waits at most `seconds` for the first message. None when there is nothing.

        A run ends when nothing more is waiting and the last one is `LINGER` ago, or someone is `hurried`, which is
        asked again when the bell rings; or it has `RUN_BYTES`. Who is hurried gets what the server has sent until now.
        Raises ConnectionFailed when the server ends the stream, AfterCommit when it must not go on in this way.
        """
        deadline = self._runtime.monotonic() + seconds
        builder = self._builder
        looked = False
        fetched = 0
        while builder.size < self.RUN_BYTES:
            if self._released is not None:
                # a large transaction that has just been committed: run by run, never in memory as a whole
                for body, position in self._released:
                    builder.add(body, position)
                    if builder.size >= self.RUN_BYTES:
                        break
                else:
                    self._released = None
                continue
            length, message = self._pg.get_copy_data(1)
            if length > 0:
                self._receive(bytes(message), builder)
            elif length == 0:
                hurry = hurried()
                if hurry and not looked:
                    looked = True
                    self._pg.consume_input()
                    continue
                ends = (0.0 if hurry else self._last_run + self.LINGER) if len(builder) else deadline
                left = ends - self._runtime.monotonic()
                if left <= 0:
                    break
                self.status_if_due()
                server, bell = self._pg.socket, self._bell.fileno()
                ready = self._runtime.ready((server, bell), 0)
                if not ready:
                    dozes = 0 < builder.size < fetched + self.DOZE_BYTES
                    fetched = builder.size
                    watched, longest = ((bell,), self.DOZE) if dozes else ((server, bell), self._status_interval)
                    ready = self._runtime.ready(watched, min(left, longest))
                if bell in ready:
                    self._bell.silence()
                    if not len(builder) and server not in ready:
                        break
                self._pg.consume_input()
            else:
                raise replication_error(self._pg.get_result())
        self.status_if_due()
        if not len(builder):
            return None
        self._last_run = self._runtime.monotonic()
        return builder.build()

    def _receive(self, message: bytes, builder: Builder) -> None:
        kind = message[:1]
        if kind == b"w":
            _, lsn, _, _ = _unpacked(_XLOG_DATA, message[: _XLOG_DATA.size])
            payload = message[_XLOG_DATA.size :]
            self._payload(payload, lsn, builder)
            self.sent_lsn = max(self.sent_lsn, sent(lsn))
        elif kind == b"k":
            _, end, _, reply = _unpacked(_KEEPALIVE, message)
            self.sent_lsn = max(self.sent_lsn, sent(end))
            if reply:
                self.send_status()
        else:
            raise DecodeError(f"a replication message of kind {kind!r}")

    def _payload(self, payload: bytes, lsn: int, builder: Builder) -> None:
        kind = payload[:1]
        streamed = self._streamed
        if streamed.current is not None:
            if kind == b"E":
                streamed.stop()
            else:
                streamed.add(payload, lsn)
        elif kind == b"S":
            streamed.start(payload)
        elif kind == b"A":
            streamed.abort(payload)
        elif kind == b"c":
            self._released = streamed.commit(payload, lsn)
        else:
            builder.add(payload, lsn)

    @property
    def has_open_transaction(self) -> bool:
        """Whether a committed large transaction is still being handed out."""
        return self._released is not None

    def acknowledge(self, forgettable: ForgettableLsn) -> None:
        """Let the server forget what is before `forgettable`, now and in every later status message."""
        self.flushed = forgettable
        self.send_status()

    def status_if_due(self) -> None:
        if self._runtime.monotonic() - self._last_status >= self._status_interval:
            self.send_status()

    def send_status(self, reply: bool = False) -> None:
        """Standby status update: written is what has been received, flushed what the slot may forget.

        With `reply` the server answers at once how far it is.
        """
        now = int((time.time() - _EPOCH_S) * 1_000_000)
        written = max(self.flushed, self.sent_lsn)
        self._pg.put_copy_data(_STATUS.pack(b"r", written, self.flushed, self.flushed, now, int(reply)))
        while self._pg.flush() == 1:
            self._runtime.ready((self._pg.socket,), 1.0, select.POLLIN | select.POLLOUT)
            self._pg.consume_input()
        self._last_status = self._runtime.monotonic()

    def close(self) -> None:
        self._streamed.close()
        self._connection.close()


class CatchUp:
    """The catch-up gear: slices of WAL from a temporary copy of the slot, which the server drops with the session.

    The copy is consumed as it is read; the slot itself stays where Spark's commits have put it. `further` is as in
    `Streaming.start`.
    """

    def __init__(
        self, connection: ArrowConnection, slot: str, publication: str, name: str, further: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self._name = name
        options = {"proto_version": "1", "publication_names": _quoted(publication), **further}
        self._options = ", ".join(_literal(text) for option in options.items() for text in option)
        connection.execute(f"select pg_copy_logical_replication_slot({_literal(slot)}, {_literal(name)}, true)")

    def advance(self, lsn: ReadLsn) -> None:
        """Skip what has been read before; a no-op when the copy stands there already."""
        self._connection.execute(
            f"select from pg_replication_slots s, "
            f"lateral pg_replication_slot_advance(s.slot_name, '{lsn_text(lsn)}') "
            f"where s.slot_name = {_literal(self._name)} and s.confirmed_flush_lsn < '{lsn_text(lsn)}'"
        )

    def slice(self, upto_lsn: int) -> Iterator[Messages]:
        """The transactions that commit before `upto_lsn` and were not read yet, in runs of some 16 MB.

        The server stops where its log is flushed to, or behind the record at `upto_lsn`: `position` says where.
        """
        batches = self._connection.query(
            "select pg_lsn_send(lsn), data from pg_logical_slot_get_binary_changes("
            f"{_literal(self._name)}, '{lsn_text(upto_lsn)}', null, {self._options})"
        )
        for batch in batches:
            if batch.num_rows:
                yield _from_arrow(batch)

    def position(self) -> ReadLsn:
        """Where the copy stands: behind the last record that the slices were made of."""
        batches = self._connection.query(
            "select (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 from pg_replication_slots "
            f"where slot_name = {_literal(self._name)}"
        )
        found = [lsn for batch in batches for lsn in batch.column(0).to_pylist()]
        if not found or None in found:
            raise ConnectionFailed(f"The copy {self._name} of the replication slot is gone.")
        return sent(max(found))

    def close(self) -> None:
        self._connection.close()


def _from_arrow(batch: Any) -> Messages:
    """The record batch `(lsn: 8 bytes, data binary)` as a run; the bytes are not copied."""
    lsn, data = batch.column(0), batch.column(1)
    # pg_lsn_send is a tenth of the whole query cheaper than arithmetic on LSNs, which PostgreSQL does in numeric
    _, starts, places = lsn.buffers()
    bounds = np.frombuffer(starts, np.int32)[lsn.offset : lsn.offset + len(lsn) + 1]
    if (np.diff(bounds) != 8).any() or data.null_count:
        raise DecodeError("the rows of pg_logical_slot_get_binary_changes are no LSNs and messages")
    first = int(bounds[0])
    positions = np.frombuffer(places, ">i8", len(lsn), first).astype(np.int64)
    _, offsets, values = data.buffers()
    ends = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1].astype(np.int64)
    content = np.frombuffer(values, np.uint8) if values is not None and values.size else np.empty(0, np.uint8)
    return Messages(content[ends[0] : ends[-1]], ends - ends[0], positions)


class StreamEnded(ConnectionFailed):
    """The server refused or ended the replication stream; `sqlstate` says why, where it did."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.args = (message, sqlstate)
        self.sqlstate = sqlstate


def replication_error(result: Any) -> StreamEnded:
    """What the server said when it refused or ended the stream."""
    from psycopg import pq

    if result is None or not result.error_message:
        return StreamEnded("PostgreSQL closed the replication connection", None)
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode("utf-8", "replace")
    return StreamEnded(text.strip(), state.decode() if state else None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
