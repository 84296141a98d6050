"""Mutants: faults that were or could be in the product, put in one at a time. Histories must find each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import adbc_driver_manager

from tailrace.connectors.binlog.log.feed import BinlogFeed
from tailrace.connectors.binlog.log.indexed_run import IndexedRun as BinlogRun
from tailrace.connectors.binlog.log.indexed_run import Joint
from tailrace.connectors.binlog.log.indexing import Indexer as BinlogIndexer
from tailrace.connectors.binlog.log.position import BinlogPosition, ReadingStart
from tailrace.connectors.binlog.planner import BinlogSource
from tailrace.connectors.binlog.schema.definitions import Definitions
from tailrace.connectors.binlog.schema.statement import NO_OUTCOME
from tailrace.connectors.binlog.snapshot import windows as binlog_windows
from tailrace.connectors.binlog.snapshot.chunks import TableSnapshots as BinlogTables
from tailrace.connectors.binlog.snapshot.point import HeldPoint, PointTaking
from tailrace.connectors.binlog.snapshot.reconcile import SupersededKeys
from tailrace.connectors.binlog.snapshot.windows import BinlogWindows
from tailrace.connectors.changetables.log import sessions
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log_session import ChangeTablesSession as OpenedTables
from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed
from tailrace.connectors.mongodb.log.majority import Majority
from tailrace.connectors.mongodb.log.oplog import OplogFeed
from tailrace.connectors.mongodb.log.position import WHOLE
from tailrace.connectors.mongodb.log_session import MongoLogSession
from tailrace.connectors.mongodb.snapshot import chunks as mongo_snapshot
from tailrace.connectors.mongodb.snapshot import windows as mongo_windows
from tailrace.connectors.postgres import planner
from tailrace.connectors.postgres.chunking import PostgresSnapshots
from tailrace.connectors.postgres.log import feed, gears, identity, indexed_run, indexing, slices, visibility
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import NOWHERE, FlushedLsn, confirmed, sent
from tailrace.connectors.postgres.schema import catalog, evolution, relations
from tailrace.connectors.postgres.snapshot import chunks, key_chunks, reconcile, windows
from tailrace.errors import SpoolFailed
from tailrace.log import reader, spool
from tailrace.log.engine import LogEngine, Undo
from tailrace.sinks.tables.modes import TableInMode
from tailrace.sinks.tables.target import Target
from tailrace.snapshot.windows import Windows
from tests.simulation.schema.copies import MemoryCopies, MemoryLatest


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    # from the owner's dictionary, as getattr would unwrap a static method
    old = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


Mutant = Callable[[], contextlib.AbstractContextManager[None]]


def acknowledged_past_the_commits() -> contextlib.AbstractContextManager[None]:
    """A stream acknowledges at its start the position that was read, not the one that was committed."""
    start = gears.Streaming.start

    def wrong(self: Any, slot: str, publication: str, from_lsn: Any, forgettable: Any, *rest: Any) -> None:
        start(self, slot, publication, from_lsn, confirmed(from_lsn), *rest)

    return replaced(gears.Streaming, "start", wrong)


def acknowledged_as_read() -> contextlib.AbstractContextManager[None]:
    """The end of a batch is acknowledged when the batch is planned."""
    plan = LogEngine._next_batch

    def wrong(self: Any, log: Any, start: Any, limits: Any, **more: Any) -> Any:
        found = plan(self, log, start, limits, **more)
        log.release(found)
        return found

    return replaced(LogEngine, "_next_batch", wrong)


def a_stream_begins_whatever_the_server() -> contextlib.AbstractContextManager[None]:
    """A stream after another gear starts on a server without a check whether it has the same log."""
    started = feed.PostgresFeed._started

    def wrong(self: Any) -> Any:
        self._replication = self._replication or self._connections.replication()
        return started(self)

    return replaced(feed.PostgresFeed, "_started", wrong)


def what_was_asked_for_counts_as_read() -> contextlib.AbstractContextManager[None]:
    """A slice of the backlog counts as read to its requested end, though the server stops at its flushed position."""
    original = gears.CatchUp.slice

    def wrong(self: Any, upto_lsn: int) -> Any:
        self.upto = upto_lsn
        return original(self, upto_lsn)

    stands = gears.CatchUp.position

    @contextmanager
    def both() -> Iterator[None]:
        def position(self: Any) -> Any:
            return sent(self.upto) if hasattr(self, "upto") else stands(self)

        with (
            replaced(gears.CatchUp, "slice", wrong),
            replaced(gears.CatchUp, "position", position),
            replaced(feed, "flushed_end", _written_end),
        ):
            yield

    return both()


def halves_lie_apart() -> contextlib.AbstractContextManager[None]:
    """The second half of a slice begins after a gap. This alone is no fault: the product then discards it."""
    beside = slices.Slices._beside

    def apart(self: Any, middle: int, upto_lsn: int) -> Any:
        return beside(self, middle + (upto_lsn - middle) // 2, upto_lsn)

    return replaced(slices.Slices, "_beside", apart)


def a_second_half_counts_wherever_it_begins() -> contextlib.AbstractContextManager[None]:
    """The second half of a slice is used without a check whether it directly follows the first."""
    begun, far = slices.Slices._begun, sent(1 << 62)

    @contextmanager
    def both() -> Iterator[None]:
        with halves_lie_apart(), replaced(slices.Slices, "_begun", lambda self, half, _: begun(self, half, far)):
            yield

    return both()


def _written_end(of: Any) -> FlushedLsn:
    row = of.execute("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    return FlushedLsn(int(row[0]))


def the_present_is_what_was_flushed() -> contextlib.AbstractContextManager[None]:
    """An AvailableNow query ends at the flushed position, though more was committed."""
    return replaced(planner, "present", identity.flushed_end)


def a_spool_error_drops_a_run() -> contextlib.AbstractContextManager[None]:
    """A run counts as read before the spool has it."""

    def wrong(self: Any, step: Any) -> None:
        self._feed.keep(step)
        try:
            self.spool.put(step.run, step.is_wanted)
        except SpoolFailed as error:
            raise OSError(28, "no space") from error

    return replaced(reader.LogReader, "_keep", wrong)


def a_failed_catalog_query_moves_the_end() -> contextlib.AbstractContextManager[None]:
    """The end of the last commit moves before table versions are known, and stays moved if their query fails."""
    index = indexing.Indexer.index

    def wrong(self: Any, data: Any, offsets: Any, lsn: Any) -> Any:
        before = self.reached
        try:
            return index(self, data, offsets, lsn)
        except Exception:
            ends = [
                int.from_bytes(bytes(data[start + 10 : start + 18]), "big")
                for start in offsets[:-1].tolist()
                if data[start] == ord("C")
            ]
            self.reached = replace(before, last_end=max([before.last_end, *ends]))
            raise

    return replaced(indexing.Indexer, "index", wrong)


def a_cut_goes_back() -> contextlib.AbstractContextManager[None]:
    """A position inside a transaction loses the LSN up to which the log was idle before."""
    cut = indexed_run.IndexedRun.cut

    def wrong(self: Any, row: int, start: Any) -> Any:
        found = cut(self, row, start)
        return found if found.consumed is None else replace(found, idle_lsn=NOWHERE)

    return replaced(indexed_run.IndexedRun, "cut", wrong)


def a_batch_without_rows_ends_the_query() -> contextlib.AbstractContextManager[None]:
    """An AvailableNow query ends at a batch that is empty because of its limits."""
    plan = spool.Spool.plan

    def wrong(
        self: Any,
        start: Any,
        max_rows: int,
        max_bytes: int,
        upto: Any = None,
        *,
        cut: bool = False,
        whole: bool = False,
    ) -> Any:
        found = plan(self, start, max_rows, max_bytes, upto, cut=cut, whole=whole)
        # plans as much as fits the limits, and never a larger transaction
        return start if found.consumed is not None and not cut else found

    return replaced(spool.Spool, "plan", wrong)


def a_session_begins_behind_an_open_transaction() -> contextlib.AbstractContextManager[None]:
    """A transaction that was sent in part counts as read."""

    def wrong(self: Any, lsn: Any) -> None:
        self._read_lsn = max(self._read_lsn, self.head_lsn, lsn)

    return replaced(feed.PostgresFeed, "_read_to", wrong)


def a_log_counts_as_read_before_it_is_known() -> contextlib.AbstractContextManager[None]:
    """An AvailableNow query whose position is ahead of the server's end does not check whether the log is the same."""
    return replaced(reader.LogReader, "has_read", lambda self, target: self._feed.has_read(target))


def the_open_transaction_outlives_its_session() -> contextlib.AbstractContextManager[None]:
    """A new session continues the transaction that was open in the last session."""
    return replaced(indexing.Indexer, "reset", lambda self: None)


@contextmanager
def transactions_without_rows_are_not_passed() -> Iterator[None]:
    """An AvailableNow query over change tables looks only at as many transactions as a batch may have, and does not
    advance if none of them has rows."""
    limit = Database.limit

    def few(self: Any, *given: Any, wholly: bool = False) -> Any:
        return limit(self, *given, wholly=False)

    with replaced(Database, "limit", few), replaced(OpenedTables, "is_far", lambda self, start, idle: False):
        yield


@contextmanager
def a_failed_call_is_not_rolled_back() -> Iterator[None]:
    """A failed call of the planner over change tables, also a failed start, is not rolled back."""
    with replaced(Undo, "on_failure", lambda self: contextlib.nullcontext()), a_failed_start_counts_as_one():
        yield


def a_lost_connection_begins_anew() -> contextlib.AbstractContextManager[None]:
    """A task over change tables yields its rows again after a lost connection."""
    return replaced(sessions._Given, "resumption", lambda self: (self._after, 0))


@contextmanager
def the_operation_time_counts_as_read() -> Iterator[None]:
    """The log of MongoDB counts as read up to the server's operation time."""
    prove, read = ChangeStreamFeed._prove, OplogFeed.read

    def proven(self: Any, answer: Any) -> None:
        prove(self, answer)
        self.caught_up_at = max(self.caught_up_at, answer.at)

    def been_read(self: Any) -> Any:
        found = read(self)
        self.caught_up_at = max(self.caught_up_at, self.answered_at)
        return found

    with replaced(ChangeStreamFeed, "_prove", proven), replaced(OplogFeed, "read", been_read):
        yield


def what_no_majority_has_is_read() -> contextlib.AbstractContextManager[None]:
    """An oplog and documents are read up to the primary's last entry, though an election may roll it back."""
    return replaced(Majority, "is_seen", lambda self, namespace=None: False)


@contextmanager
def documents_are_read_as_they_are() -> Iterator[None]:
    """Snapshots and windows do not wait until a majority has the entries that the log has shown."""
    with (
        replaced(mongo_snapshot, "concern", lambda after: {}),
        replaced(mongo_windows, "concern", lambda after: {}),
    ):
        yield


def a_token_moves_before_its_changes_are_kept() -> contextlib.AbstractContextManager[None]:
    """MongoDB's log counts as read a moment before the spool has the changes of an answer."""
    keep = reader.LogReader._keep

    def wrong(self: Any, step: Any) -> None:
        self._feed.keep(step)
        self._runtime.sleep(0.0)
        keep(self, step)

    return replaced(reader.LogReader, "_keep", wrong)


def a_cut_drops_the_rest_of_its_transaction() -> contextlib.AbstractContextManager[None]:
    """A batch that ends inside a transaction of MongoDB gets the transaction's end as its position."""
    plan = MongoLogSession.plan_upto

    def wrong(self: Any, start: Any, *rest: Any) -> Any:
        found = plan(self, start, *rest)
        return found if found == start or not found.number else replace(found, number=WHOLE)

    return replaced(MongoLogSession, "plan_upto", wrong)


def a_failed_start_counts_as_one() -> contextlib.AbstractContextManager[None]:
    """An engine whose first call fails continues as if it had started."""
    begin = LogEngine._begin

    def wrong(self: Any, since: Any, limits: Any) -> Any:
        has_tried, self.has_tried = getattr(self, "has_tried", False), True
        return None if has_tried else begin(self, since, limits)

    return replaced(LogEngine, "_begin", wrong)


def a_planned_window_counts_as_delivered() -> contextlib.AbstractContextManager[None]:
    """A planner of MongoDB skips the window of a batch that an earlier planner has planned."""
    begin = Windows.begin

    def wrong(self: Any, progress: Any) -> Any:
        return begin(self, replace(progress, before=None))

    return replaced(Windows, "begin", wrong)


def a_window_gives_what_has_changed() -> contextlib.AbstractContextManager[None]:
    """A window of MongoDB delivers documents that changed between its watermarks."""
    return replaced(mongo_windows, "_changed", lambda *given: set())


def a_tail_is_taken_at_its_word() -> contextlib.AbstractContextManager[None]:
    """Entries written while a tailing cursor of the oplog started are not searched for."""
    tail = OplogFeed._tail

    def wrong(self: Any) -> None:
        tail(self)
        self._begins = False

    return replaced(OplogFeed, "_tail", wrong)


def altered_tables_are_not_waited_for() -> contextlib.AbstractContextManager[None]:
    """The catalog is read for a change before it shows the alterations of the change's transaction."""
    return replaced(catalog.Catalog, "alters", lambda self, oid, xid: False)


def what_is_in_progress_counts_as_shown() -> contextlib.AbstractContextManager[None]:
    """The catalog counts as showing every transaction with an id below its next one, even running transactions."""
    original = evolution.CatalogState.shows

    def wrong(self: Any, xid: int) -> bool:
        return original(replace(self, in_progress=frozenset()), xid)

    return replaced(evolution.CatalogState, "shows", wrong)


def versions_stay_after_a_failed_run() -> contextlib.AbstractContextManager[None]:
    """Table versions of a failed run are kept, and the next run begins after them."""
    announce = relations.Relations.announce

    def wrong(self: Any, relation: Any, at: Any, resent: bool) -> int:
        # a version that is known already, even from the failed run, is not announced again
        known = self._known.current.get(relation.relation_id)
        if self._kept is None and known is not None and getattr(self, "has_failed", False):
            return int(known[1])
        return announce(self, relation, at, resent)

    def begin(self: Any) -> None:
        self.has_failed = self._kept is not None
        self._kept = None

    @contextmanager
    def both() -> Iterator[None]:
        with replaced(relations.Relations, "announce", wrong), replaced(relations.Relations, "begin", begin):
            yield

    return both()


@contextmanager
def what_a_transaction_drops_is_gone_before() -> Iterator[None]:
    """Columns that a transaction drops are missing from all its changes, even from those before the drop."""
    counted = evolution._counted

    def wrong(sent: Any, named: Any, present: Any, judge: Any) -> Any:
        return counted(sent, {}, present, judge)

    with replaced(evolution, "_counted", wrong), replaced(evolution._Judge, "is_own", lambda self, xmin: False):
        yield


def snapshots_do_not_wait_for_standbys() -> contextlib.AbstractContextManager[None]:
    """A new snapshot may lack transactions that the log has before the start of the slot."""
    return replaced(chunks, "waiting", lambda of: [])


def snapshots_are_read_before_they_are_flushed() -> contextlib.AbstractContextManager[None]:
    """A new snapshot may show transactions that a crash rolls back."""
    return replaced(chunks, "flushed_present", lambda of, runtime, shown: 1)


def rows_that_moved_are_not_looked_for() -> contextlib.AbstractContextManager[None]:
    """A resumed snapshot leaves out rows that have moved to pages read before."""
    return replaced(chunks.TableSnapshots, "_moved", lambda self, progress, first: [])


def a_snapshot_shows_nothing_of_the_log() -> contextlib.AbstractContextManager[None]:
    """Changes that a snapshot has shown are delivered again from the log."""
    return replaced(visibility.VisibleTransactions, "__call__", lambda self, xid, commit_lsn: False)


def a_window_closes_early() -> contextlib.AbstractContextManager[None]:
    """The batch of a window may end before the window's watermark."""
    locate = windows.PostgresWindows.locate

    def wrong(self: Any, *given: Any) -> Any:
        return FlushedLsn(locate(self, *given) - 4096)

    return replaced(windows.PostgresWindows, "locate", wrong)


def rows_beside_their_changes() -> contextlib.AbstractContextManager[None]:
    """A window delivers rows that the log has changed meanwhile."""
    return replaced(reconcile.SupersededRows, "without", lambda self, table, identity, columns: columns)


def a_lost_snapshot_is_an_altered_table() -> contextlib.AbstractContextManager[None]:
    """A task whose exported snapshot is lost yields no rows, as if its table had been altered."""
    read = key_chunks.read_rows

    def wrong(of: Any, name: str, *rest: Any) -> Iterator[Any]:
        try:
            yield from read(of, name, *rest)
        except adbc_driver_manager.Error as error:
            if getattr(error, "sqlstate", None) not in key_chunks.GONE:
                raise

    return replaced(key_chunks, "read_rows", wrong)


def what_a_snapshot_shows_is_not_from_the_log() -> contextlib.AbstractContextManager[None]:
    """Another server's log counts as the same, though a snapshot has shown more of the first server's log."""
    return replaced(PostgresOffset, "reached_lsn", property(lambda self: self.log.reached_lsn))


def what_a_blocking_snapshot_shows_does_not_come_again() -> contextlib.AbstractContextManager[None]:
    """Changes between a signal and its blocking snapshot, including deletes, are left out of the log."""
    block = PostgresSnapshots.block

    def wrong(self: Any, since: Any) -> Any:
        found = block(self, since)
        shown = None if found is None else replace(self._chunks.session.visible, tables=self._chunks.covered())
        return found if found is None else replace(found, visible=shown)

    return replaced(PostgresSnapshots, "block", wrong)


def a_prepared_transaction_is_delivered() -> contextlib.AbstractContextManager[None]:
    """The rows of an XA transaction of MySQL are delivered when it is prepared."""
    prepare = BinlogIndexer._prepare
    return replaced(BinlogIndexer, "_prepare", lambda self, one_phase, xid, header: prepare(self, True, xid, header))


def a_prepared_transaction_is_not_read_again() -> contextlib.AbstractContextManager[None]:
    """Reading goes on behind an XA transaction that is prepared and not over."""

    def resumes(self: BinlogPosition) -> ReadingStart:
        return ReadingStart(self.file, self.start if self.consumed is not None else self.end, 0, self.gtids)

    return replaced(BinlogPosition, "resumes", property(resumes))


def rows_before_the_position_come_again() -> contextlib.AbstractContextManager[None]:
    """A transaction of MySQL or MariaDB that was read in part is delivered whole after a restart."""

    def beyond(self: Any, found: Any, transaction: Any, ordinal: Any, version: Any, op: Any) -> Any:
        return ordinal >= -1

    return replaced(BinlogIndexer, "_beyond", beyond)


def another_server_has_the_same_files() -> contextlib.AbstractContextManager[None]:
    """Reading goes on by file and position on a server that has taken over."""
    begin = BinlogFeed._begin

    def wrong(self: Any, dump: Any, identity: Any, position: Any) -> None:
        begin(self, dump, replace(identity, uuid=position.server or identity.uuid), position)

    return replaced(BinlogFeed, "_begin", wrong)


def definitions_stay_after_a_failed_run() -> contextlib.AbstractContextManager[None]:
    """Tables that statements of the log have altered stay altered when the log is read again from before them."""
    return replaced(Definitions, "begin", lambda self: None)


def statements_are_not_followed() -> contextlib.AbstractContextManager[None]:
    """Tables stay as they were at the start, unless the log names columns."""
    return replaced(Definitions, "statement", lambda self, given, at: NO_OUTCOME)


def definitions_come_from_the_catalog_of_today() -> contextlib.AbstractContextManager[None]:
    """A restarted query takes the tables of its position to be what they are now."""
    return replaced(BinlogSource, "_schemas", lambda self, since, until: "")


def a_table_that_is_altered_back_looks_unaltered() -> contextlib.AbstractContextManager[None]:
    """The log between the two looks of a first start is not searched for statements."""
    return replaced(BinlogSource, "_altered", lambda self, begin, end: False)


def joined_runs_forget_what_lies_between() -> contextlib.AbstractContextManager[None]:
    """Positions of MySQL lack the ids of transactions without captured rows that lie between joined runs."""
    return replaced(BinlogRun, "_joint", lambda self, most: Joint(0, self.executed, self.held))


def a_place_is_read_behind_its_snapshot() -> contextlib.AbstractContextManager[None]:
    """The place of a snapshot of MySQL is read after its sessions begin, while others write."""

    def wrong(self: Any, tables: Any) -> Any:
        self._begin()
        self.runtime.sleep(0.0)
        return HeldPoint(self._present(self._sessions[0]), self._sessions)

    return replaced(PointTaking, "_under_lock", wrong)


def a_resumed_snapshot_begins_a_chunk_too_late() -> contextlib.AbstractContextManager[None]:
    """A snapshot of MySQL or MariaDB that goes on after a restart leaves out a chunk."""
    tasks = BinlogTables.tasks

    def wrong(self: Any, progress: Any, first: int, *rest: Any, **more: Any) -> Any:
        return tasks(self, progress, first + (self._relay is None), *rest, **more)

    return replaced(BinlogTables, "tasks", wrong)


def chunks_count_as_read_once_they_are_planned() -> contextlib.AbstractContextManager[None]:
    """A batch of a snapshot of MySQL or MariaDB that another planner has planned is empty."""
    tasks = BinlogTables.tasks

    def wrong(self: Any, *given: Any, **more: Any) -> Any:
        return [] if self._relay is None else tasks(self, *given, **more)

    return replaced(BinlogTables, "tasks", wrong)


def a_window_of_a_table_closes_early() -> contextlib.AbstractContextManager[None]:
    """The batch of a window of MySQL or MariaDB may end before the changes that its rows show."""
    locate = BinlogWindows.locate

    def wrong(self: Any, at: Any, *rest: Any) -> Any:
        return replace(at, server=locate(self, at, *rest).server)

    return replaced(BinlogWindows, "locate", wrong)


def rows_of_a_window_override_newer_changes() -> contextlib.AbstractContextManager[None]:
    """A window of MySQL or MariaDB delivers rows that the log has changed meanwhile."""
    return replaced(binlog_windows, "superseded", lambda identity, changes: SupersededKeys())


def a_blocking_snapshot_does_not_show_what_was_delivered() -> contextlib.AbstractContextManager[None]:
    """A blocking snapshot may show rows as they were before changes that were delivered."""
    return replaced(BinlogTables, "shows", lambda self, at: True)


@contextmanager
def a_window_does_not_show_what_was_delivered() -> Iterator[None]:
    """A window without watermarks may show rows as they were before changes that were delivered."""
    with (
        replaced(BinlogWindows, "_await_executed", lambda self, session, at: None),
        replaced(BinlogWindows, "_shows", lambda self, session, at, file, pos: True),
    ):
        yield


# --- copies that the pipeline reads again ----------------------------------------------------------------------------


def a_table_is_emptied_before_it_is_asked_for() -> contextlib.AbstractContextManager[None]:
    """A table that another one replaces is emptied first, and then the snapshot that fills it is asked for."""

    def wrong(self: Any, stored: Any, part: Any, number: int) -> None:
        with replaced(Target, "reread", lambda self, reason: None):
            replacing(self, stored, part, number)
        if self._target.replaced(part.forms) is not None:
            self._target.reread("another table came under its name")

    replacing = TableInMode._replace
    return replaced(TableInMode, "_replace", wrong)


def a_table_is_asked_for_once_it_is_altered() -> contextlib.AbstractContextManager[None]:
    """The request comes behind the alteration, which a crash in between leaves as done."""

    def wrong(self: Any, *given: Any) -> None:
        asked: list[str] = []
        with replaced(Target, "reread", lambda self, reason: asked.append(reason)):
            alter(self, *given)
        for reason in asked:
            self.reread(reason)

    alter = Target._alter
    return replaced(Target, "_alter", wrong)


def no_table_is_asked_for() -> contextlib.AbstractContextManager[None]:
    """Values that a snapshot must bring are never asked for."""
    return replaced(MemoryCopies, "_reread", lambda self, source, reason: self._asked.add(source))


def rows_of_a_former_table_stay() -> contextlib.AbstractContextManager[None]:
    """A table that another one replaces is not emptied."""
    return replaced(MemoryLatest, "empty", lambda *given: None)


OF_REREADS: tuple[tuple[Mutant, int], ...] = (
    (a_table_is_emptied_before_it_is_asked_for, 5030),
    (a_table_is_asked_for_once_it_is_altered, 5230),
    (no_table_is_asked_for, 5004),
    (rows_of_a_former_table_stay, 5030),
)
"""Faults with a history of altered tables that finds each."""


OF_BINLOG_ROWS: tuple[Mutant, ...] = (
    a_blocking_snapshot_does_not_show_what_was_delivered,
    a_window_does_not_show_what_was_delivered,
    joined_runs_forget_what_lies_between,
    a_place_is_read_behind_its_snapshot,
    a_resumed_snapshot_begins_a_chunk_too_late,
    chunks_count_as_read_once_they_are_planned,
    a_window_of_a_table_closes_early,
    rows_of_a_window_override_newer_changes,
)
OF_BINLOG: tuple[Mutant, ...] = (
    a_table_that_is_altered_back_looks_unaltered,
    definitions_stay_after_a_failed_run,
    statements_are_not_followed,
    definitions_come_from_the_catalog_of_today,
    a_prepared_transaction_is_delivered,
    a_prepared_transaction_is_not_read_again,
    rows_before_the_position_come_again,
    another_server_has_the_same_files,
)
OF_MONGODB: tuple[Mutant, ...] = (
    the_operation_time_counts_as_read,
    what_no_majority_has_is_read,
    documents_are_read_as_they_are,
    a_token_moves_before_its_changes_are_kept,
    a_cut_drops_the_rest_of_its_transaction,
    a_failed_start_counts_as_one,
    a_planned_window_counts_as_delivered,
    a_window_gives_what_has_changed,
    a_tail_is_taken_at_its_word,
)
OF_ROWS: tuple[Mutant, ...] = (
    what_a_blocking_snapshot_shows_does_not_come_again,
    what_a_snapshot_shows_is_not_from_the_log,
    altered_tables_are_not_waited_for,
    what_is_in_progress_counts_as_shown,
    versions_stay_after_a_failed_run,
    what_a_transaction_drops_is_gone_before,
    snapshots_do_not_wait_for_standbys,
    snapshots_are_read_before_they_are_flushed,
    rows_that_moved_are_not_looked_for,
    a_snapshot_shows_nothing_of_the_log,
    a_window_closes_early,
    rows_beside_their_changes,
    a_lost_snapshot_is_an_altered_table,
)
OF_TABLES: tuple[Mutant, ...] = (
    transactions_without_rows_are_not_passed,
    a_failed_call_is_not_rolled_back,
    a_lost_connection_begins_anew,
)
MUTANTS: tuple[Mutant, ...] = (
    acknowledged_past_the_commits,
    acknowledged_as_read,
    a_stream_begins_whatever_the_server,
    what_was_asked_for_counts_as_read,
    a_second_half_counts_wherever_it_begins,
    the_present_is_what_was_flushed,
    a_spool_error_drops_a_run,
    a_failed_catalog_query_moves_the_end,
    a_cut_goes_back,
    a_batch_without_rows_ends_the_query,
    a_session_begins_behind_an_open_transaction,
    a_log_counts_as_read_before_it_is_known,
    the_open_transaction_outlives_its_session,
)
