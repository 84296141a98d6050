"""LogReader: the planner's one reader of the slot, on a thread of its own, and the spool that it fills.

The reader picks the gear (see `gears`), reconnects with backoff, keeps the slot's acknowledgement behind what Spark
has committed, and stops reading while the spool is full, still answering the server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres import pgoutput
from tailrace.connectors.postgres.arrow import ArrowConnection
from tailrace.connectors.postgres.catalog import Catalog
from tailrace.connectors.postgres.gears import CatchUp, Messages, Streaming
from tailrace.connectors.postgres.indexing import UNCAPTURED, Indexer
from tailrace.connectors.postgres.numbering import Numbering
from tailrace.connectors.postgres.position import LogPosition, lsn_text
from tailrace.connectors.postgres.spool import Rows, Spool
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, TailraceError

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What the reader needs to know, all sizes in bytes and times in seconds.

    A backlog of more than `catch_up_above` bytes of WAL is read by the catch-up gear in slices of `slice_bytes`
    (the first one `first_slice_bytes`, so that the first batch starts early), down to `stream_below`. A lost session
    is tried again `max_retries` times in a row (-1: for ever), a slot that another client holds `slot_retries` times,
    with growing pauses of at most the delays.
    """

    slot: str
    publication: str
    status_interval: float = 10.0
    memory_limit: int = 128 << 20
    disk_limit: int = 512 << 20
    catch_up_above: int = 32 << 20
    stream_below: int = 4 << 20
    first_slice_bytes: int = 16 << 20
    slice_bytes: int = 48 << 20
    max_retries: int = -1
    retry_delay: float = 10.0
    slot_retries: int = 6
    slot_retry_delay: float = 10.0


@dataclass(frozen=True, slots=True)
class Connections:
    """How to open each kind of connection; called by the reader's thread only."""

    control: Callable[[], psycopg.Connection[Any]]
    replication: Callable[[], psycopg.Connection[Any]]
    arrow: Callable[[], ArrowConnection]


class LogReader:
    """Reads the slot from `start` into a spool until it is closed.

    `captured(relation)` tells whether a table belongs to the capture; `skip` leaves out whole transactions (see
    `Indexer`); with `target_lsn` nothing that commits after it is wanted, and reading ends there; with
    `numbered_without` events are numbered within their transactions, but for operations that give none. Methods are
    for the planner's main thread; all of them raise what the thread failed with.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        connections: Connections,
        database: str,
        captured: Callable[[pgoutput.Relation], bool],
        start: LogPosition,
        skip: Callable[[int, int], bool] | None = None,
        target_lsn: int | None = None,
        numbered_without: frozenset[str] | None = None,
    ) -> None:
        self.settings = settings
        self._target_lsn = target_lsn
        self._connections = connections
        self._database = database
        self._captured = captured
        self.spool = Spool(settings.memory_limit, settings.disk_limit)
        self.versions: list[TableSchema] = []
        self._relations: dict[int, tuple[pgoutput.Relation, int]] = {}
        numbering = None if numbered_without is None else Numbering(self.versions, numbered_without)
        self._indexer = Indexer(start, self._resolve, skip, numbering)
        self._catalog: Catalog | None = None
        self._control: psycopg.Connection[Any] | None = None
        self._acknowledge_lsn = start.safe_lsn
        self._acknowledged = 0
        # Every transaction that commits before this LSN is in the spool or had no captured change.
        self._read_lsn = start.safe_lsn
        self.head_lsn = 0
        self.gear = "starting"
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and its connections; waits at most a few seconds."""
        self._stop.set()
        self.spool.wake()
        if self._thread.is_alive():
            self._thread.join(5)

    def check(self) -> None:
        """Raise what the reader's thread has failed with, if it has."""
        if self._failure is not None:
            raise self._failure

    def has_read(self, lsn: int) -> bool:
        """Whether every transaction that commits before `lsn` has been read."""
        return self._read_lsn >= lsn

    def is_filling(self, max_bytes: int) -> bool:
        """Whether a backlog is being read and less than half of a batch of `max_bytes` is there."""
        self.check()
        behind = self.head_lsn - self._read_lsn > self.settings.first_slice_bytes
        return self.gear == "catch-up" and behind and 2 * self.spool.size < max_bytes

    def plan(self, start: LogPosition, max_rows: int, max_bytes: int, upto: int | None = None) -> LogPosition:
        """As `Spool.plan`; when the spool is full of one unfinished transaction, a cut in it."""
        self.check()
        end = self.spool.plan(start, max_rows, max_bytes, upto)
        if end == start and self.spool.full:
            return self.spool.plan(start, max_rows, max(self.spool.size // 2, 1), upto)
        return end

    def take(self, start: LogPosition, end: LogPosition) -> list[Rows]:
        """The rows in `(start, end]`, waiting until they have been read (a replay after a restart)."""
        while True:
            self.check()
            complete = self.spool.holds_rows_after(end) or (
                self._read_lsn >= end.end_lsn if end.consumed is None else self._indexer.position == end
            )
            if complete:
                return self.spool.take(start, end)
            self.spool.wait(1.0)

    def committed(self, position: LogPosition) -> None:
        """Spark has committed everything up to `position`: forget it, and let the slot forget it in time."""
        self.spool.release(position)
        self._acknowledge_lsn = max(self._acknowledge_lsn, position.safe_lsn)

    def idle_position(self, start: LogPosition) -> LogPosition:
        """`start` moved over what the server has sent since without a captured change; `start` if rows wait.

        Committing such a position lets the slot advance: an idle captured table beside a busy one must not make the
        server keep its WAL.
        """
        read = self._read_lsn
        if start.consumed is not None or read <= start.safe_lsn or self.spool.holds_rows_after(start):
            return start
        return replace(start, idle_lsn=read)

    # --- the reader's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        settings = self.settings
        failures = {"session": 0, "slot": 0}
        while not self._stop.is_set():
            before = self._read_lsn
            try:
                self._session()
                return
            except Exception as error:
                lasting = classify(error, settings.slot)
                if self._read_lsn > before:
                    failures = dict.fromkeys(failures, 0)
                busy = getattr(error, "sqlstate", None) == OBJECT_IN_USE
                kind, limit, longest = (
                    ("slot", settings.slot_retries, settings.slot_retry_delay)
                    if busy
                    else ("session", settings.max_retries, settings.retry_delay)
                )
                if (lasting is not None and not busy) or 0 <= limit <= failures[kind]:
                    self._fail(lasting or error)
                    return
                delay = min(longest, 0.2 * 2.0 ** failures[kind])
                failures[kind] += 1
                log.warning("reading slot %s failed (%s); trying again in %.1f s", settings.slot, error, delay)
                self._stop.wait(delay)
            finally:
                self._close_control()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.spool.wake()

    def _session(self) -> None:
        """Read until closed; whatever fails ends the session."""
        self._control = self._connections.control()
        self._catalog = Catalog(self._control, self._database)
        self._resume()
        while not self._stop.is_set():
            self.head_lsn = self._current_lsn()
            target = self._target_lsn
            if target is not None and self._read_lsn >= target:
                # everything that is wanted has been read: only acknowledgements remain
                self._advance_slot(force=True)
                self._stop.wait(0.05)
            elif target is not None or self.head_lsn - self._read_lsn > self.settings.catch_up_above:
                self._catch_up()
            else:
                self._stream()

    def _resume(self) -> None:
        """Where a new decoding session begins: after the last transaction that was read completely."""
        assert self._control is not None
        row = self._control.execute(
            "select (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, active_pid from pg_replication_slots "
            "where slot_name = %s",
            (self.settings.slot,),
        ).fetchone()
        if row is None or row[0] is None:
            raise PositionLost(
                f"The replication slot {self.settings.slot} is gone.",
                "Changes since the last commit are lost: delete the checkpoint to start again with a snapshot.",
            )
        confirmed, holder = row
        if holder is not None:
            raise SlotInUse(self.settings.slot, holder)
        if self._read_lsn == 0:
            self._read_lsn = confirmed
        elif confirmed > self._read_lsn:
            raise PositionLost(
                f"The replication slot {self.settings.slot} stands at {lsn_text(confirmed)}, ahead of the checkpoint "
                f"at {lsn_text(self._read_lsn)}: it was created anew or read by someone else.",
                "The changes between are lost: delete the checkpoint to start again with a snapshot.",
            )
        elif self._current_lsn() < self._read_lsn:
            raise PositionLost(
                f"The server's log ends at {lsn_text(self._current_lsn())}, before the checkpoint at "
                f"{lsn_text(self._read_lsn)}: this is another server, or one restored to an earlier time.",
                "Delete the checkpoint to start again with a snapshot.",
            )
        self._acknowledged = confirmed

    def _current_lsn(self) -> int:
        assert self._control is not None
        row = self._control.execute("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8").fetchone()
        assert row is not None
        return int(row[0])

    def _catch_up(self) -> None:
        """Read the backlog in slices; when the server has no slot to spare for the copy, stream it."""
        settings = self.settings
        connection = self._connections.arrow()
        try:
            gear = CatchUp(connection, settings.slot, settings.publication, f"{settings.slot[:40]}_catchup")
        except Exception as error:
            connection.close()
            if getattr(error, "sqlstate", None) not in (NO_SLOT_LEFT, DUPLICATE_OBJECT):
                raise
            log.warning("no replication slot to spare for the catch-up gear; streaming the backlog instead")
            self._stream(may_catch_up=False)
            return
        try:
            self.gear = "catch-up"
            gear.advance(self._read_lsn)
            size = settings.first_slice_bytes
            while not self._stop.is_set() and not self._is_caught_up():
                while self.spool.full and not self._stop.is_set():
                    self.spool.wait(0.5)
                    self._advance_slot(force=False)
                upto = min(self._target_lsn or self.head_lsn, self._read_lsn + size)
                self._indexer.reset()
                for run in gear.slice(upto):
                    self._accept(run)
                    if self._stop.is_set():
                        return
                self._read_to(upto)
                size = settings.slice_bytes
                self._advance_slot(force=False)
                if self._target_lsn is None and self._is_caught_up():
                    self.head_lsn = self._current_lsn()
            self._advance_slot(force=True)
        finally:
            gear.close()

    def _is_caught_up(self) -> bool:
        if self._target_lsn is not None:
            return self._read_lsn >= self._target_lsn
        return self.head_lsn - self._read_lsn <= self.settings.stream_below

    def _stream(self, may_catch_up: bool = True) -> None:
        """Stream until closed, or until the backlog has grown so large that catching up is faster."""
        settings = self.settings
        assert self._control is not None
        connection = self._connections.replication()
        gear = Streaming(connection, settings.status_interval)
        try:
            gear.start(settings.slot, settings.publication, self._read_lsn, self._control.info.server_version)
            self._indexer.reset()
            self.gear = "streaming"
            checked = time.monotonic()
            while not self._stop.is_set():
                self._acknowledge(gear)
                if self.spool.full:
                    gear.status_if_due()
                    self.spool.wait(0.2)
                    continue
                run = gear.poll(0.25 if self._target_lsn is None else 0.05)
                if run is not None:
                    self._accept(run)
                elif not gear.has_open_transaction and not self._indexer.is_open:
                    self._read_to(gear.sent_lsn)
                    if self._target_lsn is not None and self._read_lsn < self._target_lsn:
                        # otherwise the server tells its position only now and then
                        gear.send_status(reply=True)
                self.head_lsn = max(self.head_lsn, gear.sent_lsn)
                if run is not None and may_catch_up and time.monotonic() - checked > 1.0:
                    checked = time.monotonic()
                    self.head_lsn = self._current_lsn()
                    if self.head_lsn - self._read_lsn > settings.catch_up_above:
                        return
        finally:
            gear.close()

    def _accept(self, run: Messages) -> None:
        inside = self._indexer.is_open
        chunk = self._indexer.index(run.data, run.offsets, run.lsn)
        self._indexer.advance(chunk)
        # A run may end between a transaction's last row and its commit: without the commit the rows would wait.
        if len(chunk) or (inside and len(chunk.end_commit)):
            self.spool.put(chunk.compacted())
        if len(chunk.end_end):
            self._read_to(int(chunk.end_end[-1]))

    def _read_to(self, lsn: int) -> None:
        if lsn > self._read_lsn:
            self._read_lsn = lsn
            self.spool.wake()

    def _acknowledge(self, gear: Streaming) -> None:
        if self._acknowledge_lsn > gear.flushed:
            gear.flushed = self._acknowledge_lsn
            self._acknowledged = gear.flushed
            # at most one message a poll; the periodic status carries it otherwise
            gear.send_status()

    def _advance_slot(self, force: bool) -> None:
        """Move the slot to what Spark has committed. It decodes the WAL on the way, so not after every slice."""
        assert self._control is not None
        target = self._acknowledge_lsn
        if target <= self._acknowledged or not (force or target - self._acknowledged > 8 * self.settings.slice_bytes):
            return
        self._control.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (self.settings.slot, lsn_text(target))
        )
        self._acknowledged = target

    def _resolve(self, relation: pgoutput.Relation) -> int:
        """The version id of the table that `relation` announces; a new one when anything about it has changed."""
        known = self._relations.get(relation.relation_id)
        if not self._captured(relation):
            return UNCAPTURED
        assert self._catalog is not None
        version = self.versions[known[1]].version + 1 if known else 1
        schema = self._catalog.streamed(relation, version)
        if known is not None and schema == _as_version(self.versions[known[1]], version):
            return known[1]
        self.versions.append(schema)
        self._relations[relation.relation_id] = (relation, len(self.versions) - 1)
        return len(self.versions) - 1

    def _close_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


def _as_version(schema: TableSchema, version: int) -> TableSchema:
    return replace(schema, version=version)


# SQLSTATEs of errors that another try does not mend.
UNDEFINED_OBJECT, OBJECT_IN_USE, NOT_IN_STATE = "42704", "55006", "55000"
# SQLSTATEs that a copy of the slot is refused with.
NO_SLOT_LEFT, DUPLICATE_OBJECT = "53400", "42710"
_AUTHORISATION = ("28000", "28P01", "42501", "3D000")


class SlotInUse(PrerequisiteError):
    """Another client reads the slot; perhaps a walsender that has not noticed yet that its client is gone."""

    sqlstate = OBJECT_IN_USE

    def __init__(self, slot: str, pid: int) -> None:
        super().__init__(
            f"The replication slot {slot} is in use by process {pid}.",
            "Stop the other reader, or give this one a slot of its own with slot.name.",
        )
        self.args = (slot, pid)


def classify(error: Exception, slot: str) -> TailraceError | None:
    """The lasting error behind `error`, or None when a new session may succeed."""
    if isinstance(error, TailraceError) and not isinstance(error, ConnectionFailed):
        return error
    state = getattr(error, "sqlstate", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state == NOT_IN_STATE:
        return PositionLost(
            f"The replication slot {slot} cannot be read any more: {text}.",
            "The server has removed WAL that it needs (max_slot_wal_keep_size): drop the slot and the checkpoint to "
            "start again with a snapshot.",
        )
    if state == UNDEFINED_OBJECT:
        return PrerequisiteError(f"{text}.", "Create the publication, or let publication.autocreate.mode create it.")
    if state in _AUTHORISATION:
        return ConnectionFailed(
            f"PostgreSQL refuses the session: {text}.", "Check the user, its rights and the password."
        )
    module = type(error).__module__
    if isinstance(error, ConnectionFailed | OSError) or (
        module.startswith(("psycopg", "adbc")) and type(error).__name__ in _SESSION_ERRORS
    ):
        return None
    return TailraceError(f"Reading slot {slot} failed: {type(error).__name__}: {text}")


_SESSION_ERRORS = ("OperationalError", "AdminShutdown", "CannotConnectNow", "CrashShutdown", "InterfaceError")
