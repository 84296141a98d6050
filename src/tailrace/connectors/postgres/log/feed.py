"""Log of a slot as indexed runs of messages, read by the streaming or the catch-up gear. Planner.

All but the last part of PostgresFeed runs on the reader's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Int32s
from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.log.endings import (
    OBJECT_IN_USE,
    TWO_PHASE,
    SlotInUse,
    classify,
    exhausted,
    two_phase_refused,
)
from tailrace.connectors.postgres.log.gears import Messages, SliceTooLarge, Streaming
from tailrace.connectors.postgres.log.identity import (
    ServerId,
    decodes_behind_standbys,
    flushed_end,
    identify,
    refuse_new_standby,
    way_back,
)
from tailrace.connectors.postgres.log.in_progress import AfterCommit, StreamedTransactions
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.log.indexing import MESSAGE_NAME, IndexedStep, Indexer
from tailrace.connectors.postgres.log.reading import Connections, LogSelection, ReaderSettings, StartPosition
from tailrace.connectors.postgres.log.slices import Slices, slices
from tailrace.connectors.postgres.log.slot import Slot
from tailrace.connectors.postgres.log.visibility import UnsettledTransactions
from tailrace.connectors.postgres.protocol.position import (
    Committed,
    FlushedLsn,
    LogPosition,
    ReadLsn,
    TargetLsn,
    acknowledged,
    confirmed,
    lsn_text,
    sent,
)
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.schema.relations import Relations
from tailrace.errors import PositionLost, TailraceError
from tailrace.log import contracts
from tailrace.log.contracts import Setback
from tailrace.log.rows.numbering import Numbering
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


# Seconds between two checks whether the server has flushed the wanted log, and whether the target has moved.
FLUSH_SECONDS = 0.02
TARGET_SECONDS = 0.05


class PostgresFeed:
    """Reads the slot's messages after `since`, run by run. Implements `tailrace.log.contracts.LogFeed`.

    `relations` turns Relation messages into the table versions that segments need. With `comments` schemas include
    column comments. Every transaction that is read is added to `streamed`.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        connections: Connections,
        *,
        database: str,
        relations: Relations,
        since: StartPosition,
        wanted: LogSelection,
        comments: bool = False,
        streamed: UnsettledTransactions | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        self.settings = settings
        self.start = start = since.log
        self.runtime = runtime
        self.relations = relations
        self._connections = connections
        self._database = database
        self._comments = comments
        self._wanted = wanted
        self._streamed = streamed
        self._bell = runtime.bell()
        # Shorter with windows, which must not wait long for a reader that waits for the server.
        self._patience = 0.25 if streamed is None else 0.05
        self._wanted_lsn = FlushedLsn(0)
        self._target_lsn = wanted.target_lsn
        self._is_asked = False
        self._is_hurried: Callable[[], bool] = lambda: False
        self.indexer = self._indexer_at(start)
        self._control: psycopg.Connection[Any] | None = None
        self._replication: psycopg.Connection[Any] | None = None
        self._runs: Generator[IndexedStep | None] | None = None
        self._stream: Streaming | None = None
        self._slot = Slot(settings.slot, 8 * settings.slice_bytes, runtime)
        # Every transaction that commits before this LSN is in the spool or has no captured change.
        self._read_lsn = start.safe_lsn
        # the server whose log is read; known from the first session on
        self.server = since.server
        self._reached_lsn = max(start.reached_lsn, since.reached_lsn)
        self.head_lsn = FlushedLsn(0)
        self.gear = "starting"
        # True if the server may send transactions before their commit
        self._in_progress = True

    def _indexer_at(self, start: LogPosition) -> Indexer:
        versions, wanted = self.relations.versions, self._wanted
        # A logical message before the first commit takes its time from the start.
        known = start if start.at_us else replace(start, at_us=time.time_ns() // 1000)
        tables = None if wanted.visible is None else wanted.visible.tables
        return Indexer(
            known,
            self.relations,
            wanted.visible,
            None if wanted.numbered_without is None else Numbering(versions, wanted.numbered_without, MESSAGE_NAME),
            wanted.takes,
            None if wanted.shows is None else self._compared,
            None if tables is None else lambda version: str(versions[version].id) in tables,
        )

    # --- sessions ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._control = self._connections.control()
        self.relations.use(Catalog(self._control, self._database, self._comments))
        self._resume()
        self._runs = self._session()

    def read(self, is_asked: bool, is_hurried: Callable[[], bool]) -> IndexedStep | None:
        self._is_asked, self._is_hurried = is_asked, is_hurried
        assert self._runs is not None
        return next(self._runs)

    def keep(self, step: contracts.Step[LogPosition, Rows]) -> None:
        assert isinstance(step, IndexedStep)
        self.indexer.keep(step)
        if step.after.open is not None:
            # transactions arrive in the order of their commits
            self._read_to(sent(step.after.open[1]))
        elif len(step.run.end_end):
            self._read_to(sent(int(step.run.end_end[-1])))

    def rest(self) -> None:
        if self._stream is None:
            self._advance_slot(force=False)
        else:
            self._slot.report(self._stream)
            self._stream.status_if_due()

    def close(self) -> None:
        runs, self._runs = self._runs, None
        connections = [one for one in (self._control, self._replication) if one is not None]
        self._control = self._replication = None
        with ExitStack() as ending:
            for connection in connections:
                ending.callback(connection.close)
            if runs is not None:
                # closes the gear as well
                ending.callback(runs.close)

    def setback(self, error: BaseException) -> Setback:
        settings = self.settings
        slot, text = settings.slot, f"reading slot {settings.slot} failed ({error})"
        if not isinstance(error, Exception):
            return Setback.last(TailraceError(f"Reading slot {slot} has ended: {type(error).__name__}"))
        lasting = classify(error, slot)
        if getattr(error, "sqlstate", None) == OBJECT_IN_USE:
            end = lasting or exhausted(error, slot)
            return Setback("slot", text, settings.slot_retries, 0.2, settings.slot_retry_delay, end)
        if lasting is not None:
            return Setback.last(lasting)
        return Setback("session", text, settings.max_retries, 0.2, settings.retry_delay, exhausted(error, slot))

    def _session(self) -> Generator[IndexedStep | None]:
        """Yield the indexed runs of a session, by whichever gear fits the backlog; None when nothing has arrived for a
        while."""
        while True:
            self.head_lsn = self._flushed_end()
            target = self._target_lsn
            if target is not None and self._read_lsn >= target:
                # everything that is wanted has been read: only acknowledgements remain
                self._advance_slot(force=True)
                self._doze(TARGET_SECONDS)
                yield None
            elif target is not None or self.head_lsn - self._read_lsn > self.settings.catch_up_above:
                yield from self._catching_up()
            else:
                yield from self._streaming()

    def _doze(self, seconds: float) -> None:
        if self.runtime.ready((self._bell.fileno(),), seconds):
            self._bell.silence()

    def _resume(self) -> None:
        """Check server and slot before a new decoding session, and set the positions at which the session begins.

        The session begins after the last transaction that was read completely. Raises PositionLost if the slot cannot
        be read from there, and SlotInUse if another client reads the slot.
        """
        assert self._control is not None
        refuse_new_standby(self._control)
        self._replication, server = self._identified()
        row = self._control.execute(
            f"select (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, active_pid, {invalidation.REASON}, {TWO_PHASE} "
            "from pg_replication_slots s where slot_name = %s".encode(),
            (self.settings.slot,),
        ).fetchone()
        if row is not None and row[2]:
            raise invalidation.invalidated(self.settings.slot, row[2])
        if row is None or row[0] is None:
            raise PositionLost(f"The replication slot {self.settings.slot} is gone.", self._way_back())
        if row[3]:
            raise two_phase_refused(self.settings.slot)
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
        self.server = server
        self._slot.found_at(stands)

    def _identified(self) -> tuple[psycopg.Connection[Any], ServerId]:
        """Return a replication connection and the server behind it.

        Raises PositionLost if the server's log is not the log that was read so far.
        """
        with ExitStack() as failing:
            connection = failing.enter_context(closing(self._connections.replication()))
            reached = max(self._reached_lsn, self._read_lsn, self.indexer.position.reached_lsn)
            server = identify(connection, self.server, reached)
            failing.pop_all()
        if self._streamed is not None and self.server not in (None, server):
            self._streamed.clear()
        return connection, server

    def _check_begins(self, lsn: ReadLsn) -> None:
        """Raise PositionLost if there is a gap between the last position read and `lsn`, where reading would begin."""
        if lsn > self._read_lsn:
            raise PositionLost(
                f"The replication slot {self.settings.slot} stands at {lsn_text(lsn)}, ahead of the checkpoint "
                f"at {lsn_text(self._read_lsn)}: it was created again or read by someone else.",
                self._way_back(),
            )

    def _way_back(self) -> str:
        assert self._control is not None
        return way_back(self._control, self.settings.slot, self._read_lsn)

    def _flushed_end(self) -> FlushedLsn:
        assert self._control is not None
        return flushed_end(self._control)

    def _catching_up(self) -> Iterator[IndexedStep | None]:
        """Yield the backlog, in slices.

        The backlog is streamed instead if the server has no free slot for a copy. It is also streamed if the slot waits
        for standbys, because its copy would not wait.
        """
        gear = self._slices()
        if gear is None:
            yield from self._streaming(may_catch_up=False)
            return
        settings = self.settings
        try:
            self.gear = "catch-up"
            self._check_begins(gear.begin(self._read_lsn))
            size = settings.size_of_slice(gear.before, is_first=True)
            while not self._is_caught_up():
                if self.head_lsn <= self._read_lsn:
                    # the wanted log is written but not flushed; the server sends only flushed log
                    self._doze(FLUSH_SECONDS)
                    self.head_lsn = self._flushed_end()
                    yield None
                    continue
                end = min(self.head_lsn, self._target_lsn or self.head_lsn)
                # a small rest is not worth a slice of its own
                upto = end if end - self._read_lsn < size + size // 2 else self._read_lsn + size
                self.indexer.reset()
                for found in gear.read(self._read_lsn, upto):
                    if isinstance(found, Messages):
                        # a slice brings whole transactions, however large
                        yield self._step(found)
                    else:
                        self._read_to(found)
                        self.indexer.reset()
                size = settings.size_of_slice(gear.before)
                self._advance_slot(force=False)
                if self._target_lsn is None and self._is_caught_up():
                    self.head_lsn = self._flushed_end()
                yield None
            self._advance_slot(force=True)
            return
        except SliceTooLarge as error:
            log.warning("%s Streaming the backlog instead.", error)
        finally:
            gear.close()
        yield from self._streaming(may_catch_up=False)

    def _slices(self) -> Slices | None:
        """Return the catch-up gear; None if the slot has to be streamed."""
        settings = self.settings
        assert self._control is not None
        assert self.server is not None
        if decodes_behind_standbys(self._control, settings.slot):
            log.info("the slot waits for standbys, but its copies do not: streaming the backlog instead")
            return None
        return slices(settings, self._connections, self.server, self._parameters(), self.runtime)

    def _parameters(self) -> dict[str, str]:
        """Return the parameters of pgoutput beside protocol and publication.

        Servers before version 14 do not send logical messages.
        """
        assert self._control is not None
        found = dict(self.settings.parameters)
        if self._wanted.takes is not None and self._control.info.server_version >= 140000:
            found["messages"] = "true"
        return found

    def _is_caught_up(self) -> bool:
        if self._target_lsn is not None:
            return self._read_lsn >= self._target_lsn
        return self.head_lsn - self._read_lsn <= self.settings.stream_below

    def _streaming(self, may_catch_up: bool = True) -> Iterator[IndexedStep | None]:
        """Yield the stream's runs until the backlog is so large that the catch-up gear is faster."""
        gear = self._started()
        self._stream = gear
        try:
            self.indexer.reset()
            self.gear = "streaming"
            checked = self.runtime.monotonic()
            while True:
                self._slot.report(gear)
                patience = 0.0 if self._is_asked else 0.02 if self._is_wanted else self._patience
                run = gear.poll(patience, lambda: self._is_hurried() or self._is_wanted)
                step = None if run is None else self._step(run)
                if step is None and not gear.has_open_transaction and not self.indexer.is_open:
                    self._read_to(gear.sent_lsn)
                    if self._is_wanted:
                        # without a request the server reports its position only now and then
                        gear.send_status(reply=True)
                self.head_lsn = max(self.head_lsn, gear.sent_lsn)
                yield step
                if run is not None and may_catch_up and self.runtime.monotonic() - checked > 1.0:
                    checked = self.runtime.monotonic()
                    self.head_lsn = self._flushed_end()
                    if self.head_lsn - self._read_lsn > self.settings.catch_up_above:
                        return
        except AfterCommit as error:
            # the position read does not include these transactions: the next session begins before them
            log.warning("%s Until the next start the server keeps transactions until their commit.", error)
            self._in_progress = False
        finally:
            self._stream = None
            gear.close()

    def _started(self) -> Streaming:
        """Return the streaming gear, started after the last position read."""
        settings = self.settings
        assert self._control is not None
        # Reuse the connection whose server was identified: a new one may lead to a server that was promoted meanwhile.
        connection, self._replication = self._replication, None
        if connection is None:
            connection, self.server = self._identified()
        in_progress = StreamedTransactions(settings.in_progress_limit)
        gear = Streaming(connection, settings.status_interval, self._bell, in_progress, self.runtime)
        try:
            gear.start(
                settings.slot,
                settings.publication,
                self._read_lsn,
                max(self._slot.stands, self._slot.acknowledged),
                self._control.info.server_version,
                self._parameters(),
                self._in_progress,
            )
        except BaseException:
            gear.close()
            raise
        return gear

    @property
    def _is_wanted(self) -> bool:
        """True if a caller waits for a position that has not been read yet."""
        return self._read_lsn < max(self._wanted_lsn, self._target_lsn or 0)

    def _step(self, messages: Messages) -> IndexedStep:
        """Index messages. They count as read only once the step is kept."""
        step = self.indexer.index(messages.data, messages.offsets, messages.lsn)
        if self._streamed is not None and len(step.run):
            # added before the run can be planned; a transaction may be added twice
            self._streamed.add(step.run.transactions.xid, step.run.transactions.commit_lsn)
        return replace(step, run=step.run.compacted()) if step.is_wanted else step

    def _read_to(self, lsn: ReadLsn) -> None:
        self._read_lsn = max(self._read_lsn, lsn)

    def _advance_slot(self, force: bool) -> None:
        assert self._control is not None
        self._slot.advance(self._control, force)

    def _compared(self, version: int) -> tuple[Int32s, int]:
        """Return the places of the columns whose change makes an update an event, and the number of columns."""
        assert self._wanted.shows is not None
        table = self.relations.versions[version]
        places = sorted({table.index(name) for name in self._wanted.shows(table)})
        return np.array(places, np.int32), len(table.columns)

    # --- by other threads, too -----------------------------------------------------------------------------------

    @property
    def progress(self) -> int:
        return self._read_lsn

    @property
    def is_behind(self) -> bool:
        return self.gear == "catch-up" and self.head_lsn - self._read_lsn > self.settings.first_slice_bytes

    @property
    def is_prompt(self) -> bool:
        return self.gear == "streaming"

    def hurry(self) -> None:
        self._bell.ring()

    def want(self, target: int) -> None:
        """Read up to the LSN `target` soon, because a window waits for it."""
        self._wanted_lsn = max(self._wanted_lsn, FlushedLsn(target))
        self._bell.ring()

    def extend(self, lsn: FlushedLsn) -> None:
        """Move the target, if there is one, on to `lsn`."""
        if self._target_lsn is not None:
            self._target_lsn = max(self._target_lsn, TargetLsn(lsn))

    def has_read(self, target: LogPosition) -> bool:
        # transactions that commit before a target are wanted; the target itself is no transaction
        return self._read_lsn >= target.commit_lsn

    def has_passed(self, position: LogPosition) -> bool:
        # a position inside a transaction counts as passed: nothing more of that transaction can be captured
        return self._read_lsn > position.commit_lsn

    def reached(self, start: LogPosition) -> LogPosition:
        # read in this order: `reached` must not be older than the position
        read, reached = self._read_lsn, self.indexer.reached
        if start.consumed is not None or read <= start.safe_lsn:
            return start
        return replace(start, end_lsn=max(start.end_lsn, reached.last_end), idle_lsn=read, at_us=reached.last_us)

    def acknowledge(self, position: Committed) -> LogPosition:
        self.relations.history.forget(position)
        self._slot.acknowledge(acknowledged(position))
        target = self._target_lsn
        if target is not None and self._read_lsn >= target:
            # Spark ends the planner soon after the last commit: wait until the server was asked to advance the slot
            self._bell.ring()
            self._slot.wait()
        return position

    def end(self) -> None:
        """Release the bell; no session follows."""
        self._bell.close()
