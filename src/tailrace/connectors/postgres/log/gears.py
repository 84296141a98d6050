"""The two gears that read a slot; both yield protocol 1 messages in commit order. Planner.

*Streaming* is one lasting replication connection (PostgreSQL documentation, "Streaming Replication Protocol" and
"Logical Streaming Replication Protocol"). *Catch-up* reads slices of WAL by `pg_logical_slot_get_binary_changes`
from a temporary copy of the slot straight into Arrow. It is several times faster, because a walsender sends every
message singly. But the server materialises a whole slice, so catch-up is for backlogs.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Bytes, Int64s
from tailrace.connectors.postgres.log.in_progress import StreamedTransactions, unpacked
from tailrace.connectors.postgres.protocol.position import AcknowledgedLsn, ReadLsn, confirmed, lsn_text, sent
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.errors import ConnectionFailed, DecodeError
from tailrace.process.runtime import THREADS, Bell, Runtime

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
# PostgreSQL counts from 2000-01-01.
_EPOCH_S = 946_684_800


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


class Streaming:
    """The streaming gear: one replication connection for as long as it lasts."""

    RUN_BYTES = 1 << 20
    # Seconds after the last run for which a run waits for more messages, unless a caller is in a hurry: indexing one
    # commit takes as long as indexing fifty, and a server with small commits sends hundreds a second.
    LINGER = 0.05
    # While a run waits, it polls only every DOZE seconds if less than DOZE_BYTES came since the last poll: waking up
    # for one commit takes as long as fetching five at once.
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
        # Status messages let the server forget everything before this LSN.
        self.flushed = confirmed(0)
        # The server has sent everything before this LSN.
        self.sent_lsn = sent(0)

    def start(
        self,
        slot: str,
        publication: str,
        from_lsn: ReadLsn,
        acknowledged: AcknowledgedLsn,
        server_version: int,
        further: Mapping[str, str],
        in_progress: bool = True,
    ) -> None:
        """Send START_REPLICATION; the first messages may follow at once. Raises ConnectionFailed.

        The server sends the transactions that commit from `from_lsn` on, and may forget what is before `acknowledged`.
        `further` are parameters of pgoutput beside the protocol and the publication. With `in_progress` the server may
        send large transactions before their commit.
        """
        from psycopg import pq

        options = {"proto_version": "1", "publication_names": _quoted(publication), **further}
        if server_version >= 140000 and in_progress:
            options |= {"proto_version": "2", "streaming": "on"}
        listed = ", ".join(f"{_quoted(name)} {literal(value)}" for name, value in options.items())
        command = f"START_REPLICATION SLOT {_quoted(slot)} LOGICAL {lsn_text(from_lsn)} ({listed})"
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise replication_error(result)
        self.flushed = acknowledged
        self._pg.nonblocking = 1

    def poll(self, seconds: float, hurried: Callable[[], bool] = lambda: False) -> Messages | None:
        """Return what has arrived, as one run; None if nothing arrives within `seconds`.

        A run ends at `RUN_BYTES`, or when nothing more is waiting and either the last run is `LINGER` seconds ago or
        `hurried()` is True. `hurried` is asked again when the bell rings; a hurried caller gets all that the server has
        sent until now. Raises ConnectionFailed when the server ends the stream, and AfterCommit when the session cannot
        go on with transactions sent before their commit.
        """
        deadline = self._runtime.monotonic() + seconds
        builder = self._builder
        looked = False
        fetched = 0
        while builder.size < self.RUN_BYTES:
            if self._released is not None:
                # a large transaction that has just committed, run by run: it is never in memory as a whole
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
            _, lsn, _, _ = unpacked(_XLOG_DATA, message[: _XLOG_DATA.size])
            payload = message[_XLOG_DATA.size :]
            self._payload(payload, lsn, builder)
            self.sent_lsn = max(self.sent_lsn, sent(lsn))
        elif kind == b"k":
            _, end, _, reply = unpacked(_KEEPALIVE, message)
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
        """True while a committed large transaction is being handed out."""
        return self._released is not None

    def acknowledge(self, acknowledged: AcknowledgedLsn) -> None:
        """Let the server forget what is before `acknowledged`, now and in every later status message."""
        self.flushed = acknowledged
        self.send_status()

    def status_if_due(self) -> None:
        if self._runtime.monotonic() - self._last_status >= self._status_interval:
            self.send_status()

    def send_status(self, reply: bool = False) -> None:
        """Send a standby status update: "written" is what has been received, "flushed" what the slot may forget.

        With `reply` the server answers at once with its position.
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


_LEAVES_ONE = " where (select count(*) from pg_replication_slots) + 2 <= current_setting('max_replication_slots')::int"


class CatchUp:
    """The catch-up gear: slices of WAL from a temporary copy of the slot, which the server drops with the session.

    Reading advances the copy; the slot itself stays at the position of Spark's commits. `further` is as in
    `Streaming.start`. With `leaves_one` the copy is made only if the server has another slot to spare after it.
    """

    def __init__(
        self,
        connection: ArrowConnection,
        slot: str,
        publication: str,
        name: str,
        further: Mapping[str, str],
        leaves_one: bool = False,
    ) -> None:
        # bytes before the copy's position at which the server begins to read, for transactions that were open there
        self.before = 0
        self._connection = connection
        self._name = name
        options = {"proto_version": "1", "publication_names": _quoted(publication), **further}
        self._options = ", ".join(literal(text) for option in options.items() for text in option)
        connection.execute(
            f"select pg_copy_logical_replication_slot({literal(slot)}, {literal(name)}, true)"
            + (_LEAVES_ONE if leaves_one else "")
        )

    def advance(self, lsn: int) -> None:
        """Skip transactions that commit before `lsn`. Does nothing if the copy is already at `lsn` or later."""
        self._connection.execute(
            f"select from pg_replication_slots s, "
            f"lateral pg_replication_slot_advance(s.slot_name, '{lsn_text(lsn)}') "
            f"where s.slot_name = {literal(self._name)} and s.confirmed_flush_lsn < '{lsn_text(lsn)}'"
        )

    def slice(self, upto_lsn: int) -> Iterator[Messages]:
        """Yield the transactions that commit before `upto_lsn` and were not read yet, in runs of some 16 MB.

        The server stops at its log's flushed end, or after the record at `upto_lsn`; `position` returns the LSN
        reached.
        """
        batches = self._connection.query(
            "select pg_lsn_send(lsn), data from pg_logical_slot_get_binary_changes("
            f"{literal(self._name)}, '{lsn_text(upto_lsn)}', null, {self._options})"
        )
        try:
            for batch in batches:
                if batch.num_rows:
                    yield _from_arrow(batch)
        except ConnectionFailed as error:
            # the error has no SQLSTATE here; the name of the setting is the same in every language
            if "temp_file_limit" in str(error):
                raise SliceTooLarge(error.message) from error
            raise

    def position(self) -> ReadLsn:
        """Return the copy's position, after the last record of the slices read, and set `before`."""
        batches = self._connection.query(
            "select (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, coalesce(confirmed_flush_lsn - restart_lsn, 0)::int8 "
            f"from pg_replication_slots where slot_name = {literal(self._name)}"
        )
        found = [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch), strict=True)]
        if not found or found[0][0] is None:
            raise ConnectionFailed(f"The copy {self._name} of the replication slot is gone.")
        stands, self.before = found[0]
        return sent(stands)

    def close(self) -> None:
        self._connection.close()


def _from_arrow(batch: Any) -> Messages:
    """Return the record batch `(lsn: 8 bytes, data: binary)` as a run; the bytes are not copied."""
    lsn, data = batch.column(0), batch.column(1)
    # pg_lsn_send makes the whole query a tenth cheaper than arithmetic on LSNs, which PostgreSQL does in numeric
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


class SliceTooLarge(ConnectionFailed):
    """The server's temp_file_limit is too low for a slice."""


class StreamEnded(ConnectionFailed):
    """The server refused or ended the replication stream; `sqlstate` is the server's, None if it sent none."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.args = (message, sqlstate)
        self.sqlstate = sqlstate


def replication_error(result: Any) -> StreamEnded:
    """Return the error with which the server refused or ended the stream."""
    from psycopg import pq

    if result is None or not result.error_message:
        return StreamEnded("PostgreSQL closed the replication connection", None)
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode("utf-8", "replace")
    return StreamEnded(text.strip(), state.decode() if state else None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
