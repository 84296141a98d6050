"""Incremental: what the planner does for signals and incremental snapshots, beside reading the log.

The progress is part of every offset. A batch that has a window says where the snapshot stood before it as well: a
planner that starts anew cannot know whether the window's rows were delivered or the batch was only replayed, so it
reads that window again. A replayed batch delivers its changes and no rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import ChangeBatch, Flags
from tailrace.columns.table import TableSchema
from tailrace.config.filters import table_name
from tailrace.connectors.postgres.log import segments
from tailrace.connectors.postgres.log.chunk import Rows
from tailrace.connectors.postgres.log.identity import waiting
from tailrace.connectors.postgres.log.visible import Streamed
from tailrace.connectors.postgres.protocol.position import lsn_text
from tailrace.connectors.postgres.protocol.segment import transactions_of
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.snapshot.keyed import KeyChunk, KeyedTable, WindowOrigin
from tailrace.connectors.postgres.snapshot.pace import Pace
from tailrace.connectors.postgres.snapshot.reconcile import NOTHING, Superseded, Unclear, superseded
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.connectors.postgres.snapshot.windows import Described, Window, Windows, WindowSettings
from tailrace.runtime import THREADS, Runtime
from tailrace.snapshot.channels import Channels
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.incremental import Collection, IncrementalSnapshot, Notification, Notifications
from tailrace.snapshot.obedience import Obedience
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import Signal

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# So many transactions may be unknown to be visible before the server is asked at the next batch.
UNSETTLED = 50_000


@dataclass(frozen=True, slots=True)
class Read:
    """A chunk of the window, ready for a task."""

    snapshot: str
    table: KeyedTable
    chunk: KeyChunk
    origin: WindowOrigin
    superseded: Superseded


@dataclass(slots=True)
class _Logged:
    """A change of the signal table, as the log has it."""

    signal: Signal
    op: str
    xid: int
    lsn: int
    previous_end: int
    commit_lsn: int
    commit_us: int


@dataclass(slots=True)
class _Open:
    """The window of the batch that is being planned or read."""

    window: Window
    end: dict[str, Any] = field(default_factory=dict)
    unclear: bool = False


class Incremental:
    """Signals and windows of one query. Planner, its main thread.

    `captured` lists the tables that may be read, `(schema, table)` in the order of their names; `is_captured(schema,
    table)` tells of one; `admit` gives a schema the key that its events have, and leaves out what they do not show;
    with `comments` schemas hold the comments of columns.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        legacy: bool,
        parallelism: int,
        connect: Callable[[], psycopg.Connection[Any]],
        captured: Callable[[], Sequence[tuple[str, str]]],
        is_captured: Callable[[str, str], bool],
        admit: Callable[[TableSchema], TableSchema],
        comments: bool,
        runtime: Runtime = THREADS,
    ) -> None:
        self._comments = comments
        self._admit = admit
        self._is_captured = is_captured
        self._database = config["database.dbname"]
        name = config["signal.data.collection"]
        self.signal_table = table_name(name) if name else None
        self._reads_source = "source" in config["signal.enabled.channels"]
        self._pace = Pace(
            config["incremental.snapshot.window.chunks"],
            parallelism,
            config["incremental.snapshot.chunk.size"],
            config["poll.dispatch.interval.ms"] / 1000,
        )
        writes = self.signal_table is not None and not config["read.only"]
        settings = WindowSettings(
            ".".join(quoted(part) for part in self.signal_table) if writes and self.signal_table else None,
            config["incremental.snapshot.watermarking.strategy"] == "insert_delete",
            legacy,
            config["incremental.snapshot.chunk.size"],
            parallelism,
            config["signal.filters.enabled"],
        )
        self._notifications = Notifications(config["topic.prefix"])
        self._obedience = Obedience(captured, self._notifications, refusal(config))
        self._windows = Windows(settings, connect, self._describe, self._notifications, runtime)
        self._open: _Open | None = None
        # With one chunk in each, batches end with their windows, so that events come as from Debezium.
        self.opens_ahead = config["incremental.snapshot.window.chunks"] != 1
        self._opener = runtime.helper("tailrace-window")
        # the next window, which is opened while the batch of the last one is read
        self._ahead: Future[Window | None] | None = None
        self._resumed = False
        self._state: IncrementalSnapshot | None = None
        self._channels = Channels.of(config)
        self.streamed = Streamed()

    def close(self) -> None:
        self._opener.close()
        self._windows.close()
        self._channels.close()

    def follow(self, control: psycopg.Connection[Any]) -> None:
        """The log is going to be read: its transactions that wait for a standby may have been streamed before.

        Who waits is shown to members of pg_read_all_stats alone. Others take every running transaction for one that
        waits, where the server has standbys to wait for: the first window then comes when these have ended.
        """
        found = np.array(waiting(control), np.int64)
        if len(found):
            self.streamed.add(found, np.zeros(len(found), np.int64))

    # --- the course of a batch -----------------------------------------------------------------------------------

    def begin(self, progress: Progress) -> Progress:
        """Where the next batch begins: `progress` is that of the last one, whose notices and window are past."""
        self._pace.returned()
        if self._ahead is not None:
            # it uses the sessions that are needed from here on
            self._opener.wait(self._ahead)
        state = progress.state
        if len(self.streamed) > UNSETTLED:
            self._windows.settle(self.streamed)
        again = None
        if not self._resumed:
            again = progress.before
        elif self._open is not None and progress.before is not None and self._is_lost():
            log.info("a table has changed while it was read; its chunks are read again")
            again = progress.before
        self._resumed = True
        self._open = None
        if again is not None:
            state = again
        return replace(progress, state=state, before=None, notices=())

    def _is_lost(self) -> bool:
        assert self._open is not None
        return self._open.unclear or self._windows.has_changed(self._open.window)

    def open(self, progress: Progress, upto_lsn: int) -> Window | None:
        """The next window, if a snapshot is running; the log was delivered up to the commit at `upto_lsn`."""
        ahead, self._ahead = self._ahead, None
        if progress.state is None or progress.state.paused:
            self._windows.rest()
            return None
        # what has gone wrong meanwhile may be mended by another try, or is raised by it
        window = None if ahead is None or ahead.exception() is not None else ahead.result()
        if window is None or window.before != progress.state or window.streamed_lsn != upto_lsn:
            window = self._windows.open(progress.state, self.streamed, upto_lsn, self._pace.chunks())
        if window is not None:
            self._open = _Open(window)
        return window

    def open_ahead(self, end: dict[str, Any], progress: Progress, upto_lsn: int) -> None:
        """Open the window behind that of the batch that ends at the offset `end`, while Spark reads this one.

        All that was sent before is shown by its snapshot, and all changes after that are in the next batch: it is the
        same window that would be opened when this batch is done, without the time that this takes.
        """
        state = progress.state
        if not self.opens_ahead or self._pace.waits or self._open is None or self._open.end != end:
            return
        if state is None or state.paused or progress.blocking:
            return
        chunks = self._pace.chunks()
        self._ahead = self._opener.submit(self._windows.open, state, self.streamed, upto_lsn, chunks)

    def give_up(self) -> None:
        """The log of the window cannot be read in time: the window is void, and nothing of it was delivered."""
        self._open = None

    def finish(self, progress: Progress, rows: Sequence[Rows], versions: Sequence[TableSchema]) -> Progress:
        """The progress after the batch of `rows`: its window read, its signals and those of the channels obeyed."""
        notes: list[Notification] = []
        before = None
        if self._open is not None:
            window = self._open.window
            notes += window.notifications
            before = window.before
            progress = replace(progress, state=window.after, windows=progress.windows + 1)
        logged = self._logged(rows, versions) if self._reads_source else []
        arrived = [(one.signal, lsn_text(one.lsn)) for one in logged if one.op == "c"]
        received, positions = self._channels.poll(dict(progress.positions))
        progress = replace(progress, positions=tuple(sorted(positions.items())))
        for signal, position in arrived + [(signal, signal.id) for signal in received]:
            progress, before, told = self._obedience.obey(signal, position, progress, before)
            notes += told
        now = time.time_ns() // 1_000_000
        self._state = progress.state
        return replace(progress, before=before, notices=tuple((note, now) for note in notes))

    def status(self) -> dict[str, Any] | None:
        """How far the running snapshot is, in the form that `tailrace.status` describes; None when none runs."""
        state = self._state
        if state is None:
            return None
        told: dict[str, Any] = {
            "table": str(state.current),
            "rows": state.cursor.rows,
            "waiting": len(state.collections) - 1,
            "paused": state.paused,
        }
        estimate = self._windows.estimates.get(str(state.current))
        if estimate is not None:
            told["of"] = max(estimate, state.cursor.rows)
        return told

    def planned(self, end: dict[str, Any]) -> None:
        """The batch ends at the offset `end`."""
        self._pace.planned(0 if self._open is None else self._windows.size(self._open.window))
        if self._open is not None:
            self._open.end = end

    def reads(self, end: dict[str, Any], rows: Sequence[Rows], versions: Sequence[TableSchema]) -> list[Read]:
        """The chunks of the batch that ends at `end`; none for a batch that another planner has planned."""
        if self._open is None or self._open.end != end:
            return []
        window = self._open.window
        origin = self._origin(window, rows, versions)
        told: dict[int, Superseded] = {}
        for table, _ in window.chunks:
            if table.table.oid not in told:
                changes = segments.changes_of(rows, versions, table.table.oid)
                try:
                    told[table.table.oid] = superseded(
                        table.table, table.identity, changes, lambda batch: _is_shown(batch, window)
                    )
                except Unclear:
                    self._open.unclear = True
                    told[table.table.oid] = Superseded(everything=True)
        return [
            Read(window.snapshot, table, chunk, origin, told.get(table.table.oid, NOTHING))
            for table, chunk in window.chunks
        ]

    def rehearse(self, rows: Sequence[Rows], versions: Sequence[TableSchema]) -> None:
        """Do with the first changes of the log, on a thread, what windows need: the first signal and the first window
        would wait for compiled kernels and modules otherwise, a third of a second each. Should it fail, they tell."""
        self._opener.submit(_rehearse, rows, list(versions))

    def spread(self, reads: Sequence[Read], count: int) -> list[tuple[Read, ...]]:
        """The chunks over at most `count` tasks; neighbours in one task are read by one query."""
        count = min(count, len(reads))
        parts = [reads[len(reads) * part // count : len(reads) * (part + 1) // count] for part in range(count)]
        return [tuple(_joined(part)) for part in parts]

    def _origin(self, window: Window, rows: Sequence[Rows], versions: Sequence[TableSchema]) -> WindowOrigin:
        """What the rows of the window say of their source: the closing watermark's event, where there is one."""
        for one in reversed(self._logged(rows, versions)):
            if one.signal.id == window.watermark:
                return WindowOrigin(one.xid, one.lsn, one.previous_end, one.commit_lsn, one.commit_us)
        upto = window.upto_lsn
        return WindowOrigin(window.visible.xmax & 0xFFFFFFFF, upto, upto, upto, window.at_us)

    # --- signals -------------------------------------------------------------------------------------------------

    def _logged(self, rows: Sequence[Rows], versions: Sequence[TableSchema]) -> list[_Logged]:
        """The inserts and deletes of the signal table among `rows`, in log order."""
        if self.signal_table is None or not rows:
            return []
        oids = {table.oid for table in versions if (table.id.schema, table.id.table) == self.signal_table}
        found: list[_Logged] = []
        for oid in oids:
            for batch in segments.changes_of(rows, versions, oid):
                found += _signals(batch)
        return sorted(found, key=lambda one: (one.commit_lsn, one.lsn))

    def _describe(self, connection: psycopg.Connection[Any], collection: Collection) -> Described | None:
        if not self._is_captured(collection.schema, collection.table):
            return None
        row = connection.execute(_TABLE, (collection.schema, collection.table)).fetchone()
        if row is None:
            return None
        catalog = Catalog(connection, self._database, self._comments)
        found = catalog.schemas([row[0]]).get(row[0])
        if found is None:
            return None
        shown = self._admit(found)
        names = {column.name for column in shown.columns}
        # rows are told apart by their own key and cut into chunks by the surrogate: they are read whatever events show
        needed = {*found.key, collection.surrogate} - names
        missing = tuple(column for column in found.columns if column.name in needed)
        shown = replace(shown, columns=shown.columns + missing)
        return shown, row[1], found.key, catalog.output_functions(found.columns)


_TABLE = """
select c.oid::int8, c.relkind::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')
"""


def _rehearse(rows: Sequence[Rows], versions: Sequence[TableSchema]) -> None:
    for table in versions:
        changes = segments.changes_of(rows, versions, table.oid)
        if table.key and changes:
            superseded(table, table.key, changes, lambda batch: np.zeros(len(batch), np.bool_))
            return


def _joined(reads: Sequence[Read]) -> list[Read]:
    """The same rows with neighbouring chunks of a table as one."""
    found: list[Read] = []
    for read in reads:
        last = found[-1] if found else None
        if last is not None and last.table is read.table and last.chunk.upto == read.chunk.after:
            chunk = replace(last.chunk, upto=read.chunk.upto, rows=last.chunk.rows + read.chunk.rows)
            found[-1] = replace(last, chunk=chunk)
        else:
            found.append(read)
    return found


def _is_shown(batch: ChangeBatch, window: Window) -> Flags:
    """Which changes the window's snapshot shows."""
    shown: Flags = window.visible.shows(transactions_of(batch).xid)[batch.transaction]
    return shown


def _signals(batch: ChangeBatch) -> list[_Logged]:
    """The rows of the signal table that were inserted or deleted: id, type and data are its first three columns."""
    found, transactions = [], transactions_of(batch)
    for row in np.flatnonzero((batch.op == ord("c")) | (batch.op == ord("d"))).tolist():
        image = batch.after if batch.op[row] == ord("c") else batch.before
        if image is None or len(image.columns) < 3:
            continue
        texts = [column[row].as_py() for column in image.columns[:3]]
        id_, kind, data = (None if text is None else text.decode("utf-8", "replace") for text in texts)
        of = int(batch.transaction[row])
        found.append(
            _Logged(
                Signal(id_ or "", kind or "", data),
                chr(batch.op[row]),
                int(transactions.xid[of]),
                int(batch.lsn[row]),
                int(transactions.previous_end[of]),
                int(transactions.commit_lsn[of]),
                int(transactions.commit_us[of]),
            )
        )
    return found
