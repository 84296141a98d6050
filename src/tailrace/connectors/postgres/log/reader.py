"""LogReader: the planner's one reader of the slot, on a thread of its own, and the spool that it fills.

The reader picks the gear (see `gears`), reconnects with backoff, keeps the slot's acknowledgement behind what Spark
has committed, and stops reading while the spool is full, still answering the server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Int32s
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.endings import (
    DUPLICATE_OBJECT,
    FORBIDDEN,
    NO_SLOT_LEFT,
    OBJECT_IN_USE,
    SlotInUse,
    classify,
    exhausted,
)
from tailrace.connectors.postgres.log.gears import AfterCommit, CatchUp, Messages, StreamedTransactions, Streaming
from tailrace.connectors.postgres.log.identity import (
    ServerId,
    decodes_behind_standbys,
    flushed_end,
    identify,
    refuse_standby,
)
from tailrace.connectors.postgres.log.indexing import Chunk, Indexer
from tailrace.connectors.postgres.log.numbering import Numbering
from tailrace.connectors.postgres.log.reading import Connections, ReaderSettings
from tailrace.connectors.postgres.log.spool import Rows, Spool
from tailrace.connectors.postgres.log.visible import Streamed, Visible
from tailrace.connectors.postgres.protocol.position import (
    Committed,
    FlushedLsn,
    LogPosition,
    ReadLsn,
    TargetLsn,
    confirmed,
    lsn_text,
    may_forget,
    sent,
)
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.schema.history import History
from tailrace.connectors.postgres.schema.relations import Relations
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, SpoolFailed
from tailrace.runtime import THREADS, Runtime, Thread

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


# The longest that a refresh takes, in s.
REFRESH_SECONDS = 0.02
# How often the reader looks whether the server has flushed what is wanted, in s.
FLUSH_SECONDS = 0.02


class LogReader:
    """Reads the slot from `start` into a spool until it is closed.

    `server` is whose log was read before, up to `reached_lsn`: the log of another one is refused; None: any is taken.
    `relations` turns Relation messages into the table versions that segments need; `visible` is what a snapshot has
    shown of the log already; with `target_lsn` nothing that commits after it is wanted, and reading ends there; with
    `numbered_without` events are numbered within their transactions, but for operations that give none. With `comments`
    schemas hold the comments of columns. `takes(prefix)` tells which logical messages are captured, None: none.
    `shows(table)` names the columns that an update must change to be delivered; None: every update is. `streamed` is
    told of every transaction that is read. Methods are for the planner's main thread; all of them raise what the thread
    failed with.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        connections: Connections,
        *,
        database: str,
        relations: Relations,
        start: LogPosition,
        server: ServerId | None = None,
        reached_lsn: int = 0,
        visible: Visible | None = None,
        target_lsn: TargetLsn | None = None,
        numbered_without: frozenset[str] | None = None,
        comments: bool = False,
        takes: Callable[[str], bool] | None = None,
        shows: Callable[[TableSchema], Iterable[str]] | None = None,
        streamed: Streamed | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        self._runtime = runtime
        self._shows = shows
        self.settings = settings
        self._streamed = streamed
        self._wanted_lsn = FlushedLsn(0)
        self._bell = runtime.bell()
        # Calls of `refresh`, and how many of them the reader has answered; whether someone waits for a change.
        self._asked = self._answered = 0
        self._is_awaited = False
        # A window must not wait long for a reader that waits for the server.
        self._patience = 0.25 if streamed is None else 0.05
        self._target_lsn = target_lsn
        self._connections = connections
        self._database = database
        self._relations = relations
        self.versions = relations.versions
        self._comments = comments
        self.spool = Spool(settings.memory_limit, settings.disk_limit, runtime)
        numbering = None if numbered_without is None else Numbering(self.versions, numbered_without)
        self._takes = takes
        # The time that a message tells which stands in the log before any commit.
        known = start if start.at_us else replace(start, at_us=time.time_ns() // 1000)
        compared = None if shows is None else self._compared
        tables = None if visible is None else visible.tables
        covers = None if tables is None else lambda version: str(self.versions[version].id) in tables
        self._indexer = Indexer(known, relations, visible, numbering, takes, compared, covers)
        self._control: psycopg.Connection[Any] | None = None
        self._replication: psycopg.Connection[Any] | None = None
        # What Spark has committed, and where the slot stands as far as it is known.
        self._forgettable = confirmed(0)
        self._acknowledged = confirmed(0)
        # Every transaction that commits before this LSN is in the spool or had no captured change.
        self._read_lsn = start.safe_lsn
        # whose log it is, known from the first session on
        self.server = server
        self._reached_lsn = max(start.reached_lsn, reached_lsn)
        self.head_lsn = FlushedLsn(0)
        self.gear = "starting"
        # whether the server may send transactions before their commit
        self._in_progress = True
        # whether it was told that the disk takes nothing
        self._has_warned = False
        self._failure: BaseException | None = None
        self._stop = runtime.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._runtime.start(self._run, "tailrace-reader")

    def close(self) -> None:
        """Stop the thread and its connections; waits at most a few seconds."""
        self._stop.set()
        self._bell.ring()
        self.spool.wake()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(5)
        self._bell.close()

    @property
    def unchanged(self) -> int:
        """How many updates were left out because they changed nothing that is shown."""
        return self._indexer.unchanged

    def check(self) -> None:
        """Raise what the reader's thread has failed with, if it has."""
        if self._failure is not None:
            raise self._failure

    def has_read(self, lsn: TargetLsn | FlushedLsn) -> bool:
        """Whether every transaction that commits before `lsn` has been read."""
        return self._read_lsn >= lsn

    @property
    def lag(self) -> int:
        """Bytes of the log that are known to be there and have not been read."""
        return max(0, self.head_lsn - self._read_lsn)

    def read_through(self, lsn: FlushedLsn, seconds: float) -> bool:
        """Wait until every transaction that commits before `lsn` has been read; False when that takes too long.

        It takes for ever when the spool is full: what it holds must be delivered first.
        """
        deadline = self._runtime.monotonic() + seconds
        self._wanted_lsn = max(self._wanted_lsn, lsn)
        self._bell.ring()
        while not self.has_read(lsn):
            self.check()
            left = deadline - self._runtime.monotonic()
            if left <= 0 or self.spool.full:
                return False
            self.spool.wait(min(left, 0.25))
        return True

    def refresh(self) -> None:
        """Have the spool hold what the server has sent until now, if that is a matter of a moment."""
        seen = self.spool.version
        self._asked += 1
        self._bell.ring()
        deadline = self._runtime.monotonic() + REFRESH_SECONDS
        while (
            self.gear == "streaming"
            and not self.spool.full
            and self._answered < self._asked
            and self._runtime.monotonic() < deadline
        ):
            self.spool.wait(deadline - self._runtime.monotonic(), seen)
            seen = self.spool.version

    def wait(self, seconds: float, since: int) -> None:
        """Wait until the spool has changed after its version was `since`, at most `seconds`.

        What arrives meanwhile is put there at once, and not gathered with what follows.
        """
        self._is_awaited = True
        self._bell.ring()
        self.spool.wait(seconds, since)
        self._is_awaited = False

    def extend(self, lsn: FlushedLsn) -> None:
        """Let a reader that ends at a target go on to `lsn`."""
        if self._target_lsn is not None:
            self._target_lsn = max(self._target_lsn, TargetLsn(lsn))

    def is_filling(self, max_bytes: int) -> bool:
        """Whether a backlog is being read and less than half of a batch of `max_bytes` is there."""
        self.check()
        behind = self.head_lsn - self._read_lsn > self.settings.first_slice_bytes
        return self.gear == "catch-up" and behind and not self.spool.full and 2 * self.spool.size < max_bytes

    def plan(self, start: LogPosition, max_rows: int, max_bytes: int, upto: int | None = None) -> LogPosition:
        """As `Spool.plan`; when the spool is full of one unfinished transaction, a cut in it."""
        self.check()
        end = self.spool.plan(start, max_rows, max_bytes, upto)
        if end == start and self.spool.full:
            return self.spool.plan(start, max_rows, max_bytes, upto, cut=True)
        return end

    def take(self, start: LogPosition, end: LogPosition) -> list[Rows]:
        """The rows in `(start, end]`, waiting until they have been read (a replay after a restart).

        The spool takes them in whatever its limits are. Raises SpoolFailed.
        """
        with self.spool.requiring(end):
            while True:
                self.check()
                seen = self.spool.version
                # of the transaction that the batch ends with, nothing may be captured any more
                if self.spool.has_reached(end) or self._read_lsn > end.commit_lsn:
                    return self.spool.take(start, end)
                self.spool.wait(1.0, seen)

    def committed(self, position: Committed) -> None:
        """Spark has committed everything up to `position`: forget it, and let the slot forget it in time."""
        self.spool.release(position)
        self._relations.history.forget(position)
        self._forgettable = max(self._forgettable, may_forget(position))

    def history(self, start: LogPosition, end: LogPosition) -> History:
        """What the offset at the end of the batch `(start, end]` says of the tables."""
        return self._relations.history.upto(start, end)

    def idle_position(self, start: LogPosition) -> LogPosition:
        """`start` moved over what the server has sent since without a captured change; `start` if rows wait.

        Committing such a position lets the slot advance: an idle captured table beside a busy one must not make the
        server keep its WAL.
        """
        # in this order: what is known of the commits must not be older than how far they have been read
        read, reached = self._read_lsn, self._indexer.reached
        if start.consumed is not None or read <= start.safe_lsn or self.spool.holds_rows_after(start):
            return start
        return replace(start, end_lsn=max(start.end_lsn, reached.last_end), idle_lsn=read, at_us=reached.last_us)

    # --- the reader's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        settings = self.settings
        failures = {"session": 0, "slot": 0, "disk": 0}
        while not self._stop.is_set():
            before = self._read_lsn
            try:
                self._session()
                return
            except Exception as error:
                if self._stop.is_set():
                    return
                lasting = classify(error, settings.slot)
                if self._read_lsn > before:
                    failures = dict.fromkeys(failures, 0)
                busy = getattr(error, "sqlstate", None) == OBJECT_IN_USE
                kind, limit, longest = "session", settings.max_retries, settings.retry_delay
                if busy:
                    kind, limit, longest = "slot", settings.slot_retries, settings.slot_retry_delay
                elif isinstance(error, SpoolFailed):
                    # a full disk does not become free by itself, and the server keeps its log meanwhile
                    kind, limit = "disk", min(limit, settings.disk_retries) if limit >= 0 else settings.disk_retries
                if (lasting is not None and not busy) or 0 <= limit <= failures[kind]:
                    self._fail(lasting or exhausted(error, settings.slot))
                    return
                delay = pause(failures[kind], longest)
                failures[kind] += 1
                log.warning("reading slot %s failed (%s); trying again in %.1f s", settings.slot, error, delay)
                self._stop.wait(delay)
            finally:
                self._close_session()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.spool.wake()

    def _session(self) -> None:
        """Read until closed; whatever fails ends the session."""
        self._control = self._connections.control()
        self._relations.use(Catalog(self._control, self._database, self._comments))
        self._resume()
        while not self._stop.is_set():
            self.head_lsn = self._flushed_end()
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
        server = self._identify()
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
        stands, holder = confirmed(int(row[0])), row[1]
        if holder is not None:
            raise SlotInUse(self.settings.slot, holder)
        end = self._flushed_end()
        if self._read_lsn == 0:
            self._read_lsn = stands
        elif end < self._read_lsn:
            raise PositionLost(
                f"The server's log ends at {lsn_text(end)}, before the checkpoint at "
                f"{lsn_text(self._read_lsn)}: this is another server, or one restored to an earlier time.",
                "Delete the checkpoint to start again with a snapshot.",
            )
        self._check_begins(stands)
        self._acknowledged, self.server = stands, server

    def _identify(self) -> ServerId:
        """The server of this session. Raises PositionLost when its log is not the one that was read so far.

        One that has become a standby raises ConnectionFailed: another server is the primary soon, under the same name.
        """
        assert self._control is not None
        try:
            refuse_standby(self._control)
        except PrerequisiteError as error:
            raise ConnectionFailed(error.message, error.remedy) from None
        self._replication = self._connections.replication()
        reached = max(self._reached_lsn, self._read_lsn, self._indexer.position.reached_lsn)
        return identify(self._replication, self.server, reached)

    def _check_begins(self, lsn: ReadLsn) -> None:
        """Raises PositionLost when what is read next begins at `lsn`, behind what has been read."""
        if lsn > self._read_lsn:
            raise PositionLost(
                f"The replication slot {self.settings.slot} stands at {lsn_text(lsn)}, ahead of the checkpoint "
                f"at {lsn_text(self._read_lsn)}: it was created anew or read by someone else.",
                "The changes between are lost: delete the checkpoint to start again with a snapshot.",
            )

    def _flushed_end(self) -> FlushedLsn:
        assert self._control is not None
        return flushed_end(self._control)

    def _catch_up(self) -> None:
        """Read the backlog in slices; stream it when the server has no slot to spare for a copy, or the copy would not
        wait for standbys as the slot does."""
        settings = self.settings
        assert self._control is not None
        if decodes_behind_standbys(self._control, settings.slot):
            log.info("the slot waits for standbys, and copies of it do not: streaming the backlog instead")
            self._stream(may_catch_up=False)
            return
        connection = self._connections.arrow()
        try:
            name = f"{settings.slot[:40]}_catchup"
            gear = CatchUp(connection, settings.slot, settings.publication, name, self._parameters())
        except Exception as error:
            connection.close()
            state = getattr(error, "sqlstate", None)
            if state not in (NO_SLOT_LEFT, DUPLICATE_OBJECT, FORBIDDEN):
                raise
            # a role that database.initial.statements set may lack the rights of the one that logged in
            reason = "the role may not copy the slot" if state == FORBIDDEN else "no replication slot to spare"
            log.warning("%s for the catch-up gear; streaming the backlog instead", reason)
            self._stream(may_catch_up=False)
            return
        try:
            self.gear = "catch-up"
            gear.advance(self._read_lsn)
            self._check_begins(gear.position())
            size = settings.first_slice_bytes
            while not self._stop.is_set() and not self._is_caught_up():
                self._wait_for_room(lambda: self._advance_slot(force=False))
                if self.head_lsn <= self._read_lsn:
                    # what is wanted has been written and not flushed: the server gives none of it before
                    self._stop.wait(FLUSH_SECONDS)
                    self.head_lsn = self._flushed_end()
                    continue
                upto = min(self.head_lsn, self._target_lsn or self.head_lsn, self._read_lsn + size)
                self._indexer.reset()
                for run in gear.slice(upto):
                    self._accept(run)
                    # a slice brings transactions as a whole, however large they are
                    self._wait_for_room()
                    if self._stop.is_set():
                        return
                self._read_to(gear.position())
                size = settings.slice_bytes
                self._advance_slot(force=False)
                if self._target_lsn is None and self._is_caught_up():
                    self.head_lsn = self._flushed_end()
            self._advance_slot(force=True)
        finally:
            gear.close()

    def _parameters(self) -> dict[str, str]:
        """What pgoutput is told beside protocol and publication; servers before 14 do not send logical messages."""
        assert self._control is not None
        found = dict(self.settings.parameters)
        if self._takes is not None and self._control.info.server_version >= 140000:
            found["messages"] = "true"
        return found

    def _is_caught_up(self) -> bool:
        if self._target_lsn is not None:
            return self._read_lsn >= self._target_lsn
        return self.head_lsn - self._read_lsn <= self.settings.stream_below

    def _stream(self, may_catch_up: bool = True) -> None:
        """Stream until closed, or until the backlog has grown so large that catching up is faster."""
        settings = self.settings
        assert self._control is not None
        # the one that has said whose log it is, or another one after that
        connection, self._replication = self._replication or self._connections.replication(), None
        in_progress = StreamedTransactions(settings.in_progress_limit)
        gear = Streaming(connection, settings.status_interval, self._bell, in_progress, self._runtime)
        try:
            version = self._control.info.server_version
            forgettable = max(self._acknowledged, self._forgettable)
            gear.start(
                settings.slot,
                settings.publication,
                self._read_lsn,
                forgettable,
                version,
                self._parameters(),
                self._in_progress,
            )
            self._indexer.reset()
            self.gear = "streaming"
            checked = self._runtime.monotonic()
            while not self._stop.is_set():
                self._acknowledge(gear)
                if self.spool.full:
                    gear.status_if_due()
                    self.spool.wait(0.2)
                    continue
                asked = self._asked
                patience = 0.0 if self._answered < asked else 0.02 if self._is_wanted else self._patience
                run = gear.poll(patience, self._is_hurried)
                if run is not None:
                    self._accept(run, gear.status_if_due)
                elif not gear.has_open_transaction and not self._indexer.is_open:
                    self._read_to(gear.sent_lsn)
                    if self._is_wanted:
                        # otherwise the server tells its position only now and then
                        gear.send_status(reply=True)
                if self._answered < asked:
                    self._answered = asked
                    self.spool.wake()
                self.head_lsn = max(self.head_lsn, gear.sent_lsn)
                if run is not None and may_catch_up and self._runtime.monotonic() - checked > 1.0:
                    checked = self._runtime.monotonic()
                    self.head_lsn = self._flushed_end()
                    if self.head_lsn - self._read_lsn > settings.catch_up_above:
                        return
        except AfterCommit as error:
            # what has been read does not count them: the next session begins before them
            log.warning("%s Until the next start the server keeps transactions until their commit.", error)
            self._in_progress = False
        finally:
            gear.close()

    @property
    def _is_wanted(self) -> bool:
        """Whether someone waits for a position that has not been read."""
        return self._read_lsn < max(self._wanted_lsn, self._target_lsn or 0)

    def _is_hurried(self) -> bool:
        return self._answered < self._asked or self._is_awaited or self._is_wanted

    def _accept(self, run: Messages, waits: Callable[[], None] = lambda: None) -> None:
        """Index a run and keep its chunk; only then have its messages been read. What fails changes nothing.

        `waits` is called from time to time while the spool waits for a disk to have room again.
        """
        step = self._indexer.index(run.data, run.offsets, run.lsn)
        chunk = step.chunk
        if self._streamed is not None and len(chunk):
            # before it can be planned; a transaction may be added twice
            self._streamed.add(chunk.transactions.xid, chunk.transactions.commit_lsn)
        if step.is_wanted:
            self._put(chunk.compacted(), waits)
        self._indexer.keep(step)
        if step.after.open is not None:
            # transactions come in the order of their commits
            self._read_to(sent(step.after.open[1]))
        elif len(chunk.end_end):
            self._read_to(sent(int(chunk.end_end[-1])))

    def _put(self, chunk: Chunk, waits: Callable[[], None]) -> None:
        """Keep a chunk. What the disk refuses waits, as for a full spool, until Spark has committed some of the rest.

        Raises SpoolFailed where Spark cannot commit anything before: a batch that is replayed needs the chunk.
        """
        while True:
            try:
                self.spool.put(chunk)
                return
            except SpoolFailed as error:
                if self._stop.is_set() or self.spool.is_required:
                    raise
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("%s Reading goes on as fast as Spark commits what waits.", error)
                self._wait_for_room(waits)

    def _wait_for_room(self, waits: Callable[[], None] = lambda: None) -> None:
        while self.spool.full and not self._stop.is_set():
            waits()
            self.spool.wait(0.5)

    def _read_to(self, lsn: ReadLsn) -> None:
        if lsn > self._read_lsn:
            self._read_lsn = lsn
            self.spool.wake()

    def _acknowledge(self, gear: Streaming) -> None:
        forgettable = self._forgettable
        if forgettable > gear.flushed:
            # at most one message a poll; the periodic status carries it otherwise
            gear.acknowledge(forgettable)
            self._acknowledged = forgettable

    def _advance_slot(self, force: bool) -> None:
        """Move the slot to what Spark has committed. It decodes the WAL on the way, so not after every slice."""
        assert self._control is not None
        forgettable, done = self._forgettable, self._acknowledged
        if forgettable <= done or not (force or forgettable - done > 8 * self.settings.slice_bytes):
            return
        self._control.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (self.settings.slot, lsn_text(forgettable))
        )
        self._acknowledged = forgettable

    def _compared(self, version: int) -> tuple[Int32s, int]:
        """The places of the columns that an update of the table version must change, and how many columns there are."""
        assert self._shows is not None
        table = self.versions[version]
        places = sorted({table.index(name) for name in self._shows(table)})
        return np.array(places, np.int32), len(table.columns)

    def _close_session(self) -> None:
        for connection in (self._control, self._replication):
            if connection is not None:
                connection.close()
        self._control = self._replication = None


def pause(failures: int, longest: float) -> float:
    """Seconds until the next try after so many failures before; doubles each time, up to `longest`."""
    # a server may be away for longer than a float can be doubled
    return min(longest, 0.2 * 2.0 ** min(failures, 30))
