"""The tasks of a batch over change tables: spans of the log, chunks of a snapshot, windows. Worker.

Every task reads the database itself. It holds the dialect with the password, so its repr does not show its contents.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import ChangeBatch, Int64s, Marker
from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.capture_history import PeriodPart
from tailrace.connectors.changetables.dialect import Dialect, KeyRange
from tailrace.connectors.changetables.log.sessions import Retries, borrowed, changes
from tailrace.errors import ConnectionFailed, PositionLost, StatementCutOff, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.snapshot.plan import Chunk, markers

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.config.processors import Reselection
    from tailrace.events.schema_changes import SchemaChange

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class Part:
    """A span of a change table; `table` is the source table with the columns that events need.

    With transaction metadata `total_order` and `table_order` number the span's changes; see ChangeBatch.
    """

    database: str
    span: PeriodPart
    table: TableSchema
    total_order: Int64s | None = None
    table_order: Int64s | None = None


@dataclass(frozen=True, slots=True)
class TaskSource:
    """The settings and connections that every task needs.

    `at_us` is the time at which the batch was planned, in µs since 1970. `skips_unchanged` is
    skip.messages.without.change. `processors` choose the values that are read again from their tables.
    """

    dialect: Dialect
    settings: EventSettings
    retries: Retries
    at_us: int
    skips_unchanged: bool = False
    processors: tuple[Reselection, ...] = ()

    @property
    def form(self) -> SourceForm:
        """The connector's own part of events; one object in each process, because caches use it as a key."""
        from tailrace.connectors.changetables import loading

        return loading.form(self.dialect.connector)

    def __repr__(self) -> str:
        return "TaskSource"


@dataclass(frozen=True, slots=True)
class LogTask:
    """The changes of some topics, one topic after another; the parts of one topic in log order, or interleaved."""

    source: TaskSource
    topics: tuple[tuple[Part, ...], ...]

    def __repr__(self) -> str:
        return f"LogTask({len(self.topics)} topics)"

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.changetables.log.merging import merged
        from tailrace.events.record_assembly import to_rows

        for parts in self.topics:
            tables = {(part.database, part.table.id) for part in parts}
            streams = [
                self._changes([part for part in parts if (part.database, part.table.id) == table])
                for table in sorted(tables)
            ]
            whole = bool(self.source.settings.blocks)
            for batch in streams[0] if len(streams) == 1 else merged(streams, whole=whole):
                yield from to_rows(batch, self.source.settings, self.source.form)

    def _changes(self, parts: list[Part]) -> Iterator[ChangeBatch]:
        """Yield the changes of one table, with values that are read again."""
        from tailrace.connectors.changetables.log.row_lookup import PresentRows
        from tailrace.events.reselection import Reread

        source, batches = self.source, change_batches(self.source, parts)
        if not source.processors:
            yield from batches
            return
        again = Reread(source.processors, PresentRows(source.dialect, parts[0].database, source.retries))
        for batch in batches:
            for _, part in again.completed(batch, source.settings, source.form):
                yield part


def change_batches(source: TaskSource, parts: list[Part]) -> Iterator[ChangeBatch]:
    """Yield the changes of one table, span after span."""
    from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, skipped_rows, together, whole

    skipped = skipped_rows(source.settings.skipped_operations, source.dialect.pairs)
    for part in parts:
        span = part.span

        def times(part: Part = part) -> TimesByPosition:
            with borrowed(source.dialect, part.database) as session:
                return TimesByPosition.of(session.commit_times(part.span.after, part.span.upto), source.at_us)

        dialect = source.dialect
        known, exact = source.retries.run(times, _closed), bool(source.settings.blocks)
        assembly = RowAssembly(part.table, known, dialect.pairs, skipped, dialect.unsent, exact)
        rows = changes(source.dialect, part.database, span, part.table, source.retries, masked=exact)
        first = 0
        cuts = whole(rows, dialect.pairs)
        if source.settings.blocks:
            # a row may take the key of another row anywhere in a transaction
            key = [part.table.index(name) for name in part.table.key]
            cuts = together(cuts, key, pairs=dialect.pairs)
        for cut in cuts:
            batch = assembly.batch(cut)
            if batch is not None and source.skips_unchanged:
                batch = changed(batch, source.settings)
            if batch is None:
                continue
            if part.total_order is not None and part.table_order is not None:
                batch.total_order = part.total_order[first : first + len(batch)]
                batch.table_order = part.table_order[first : first + len(batch)]
            first += len(batch)
            yield batch
        if assembly.times.missing:
            log.warning(
                "%d transactions of %s have no time of their own: they get the time of the previous transaction",
                assembly.times.missing,
                part.database,
            )


def changed(batch: ChangeBatch, settings: EventSettings) -> ChangeBatch | None:
    """Return the batch without updates that change neither a shown column nor the key; None if nothing is left."""
    import pyarrow.compute as pc

    from tailrace.connectors.changetables.log.merging import filtered

    if batch.before is None or batch.after is None:
        return batch
    same = batch.op == ord("u")
    if batch.before.present is not None:
        same = same & batch.before.present
    for place, column in enumerate(batch.table.columns):
        if same.any() and (settings.shaping.shows(batch.table.id, column.name) or column.name in batch.table.key):
            old, new = batch.before.columns[place], batch.after.columns[place]
            equal = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
            same = same & (equal | (np.asarray(old.is_null()) & np.asarray(new.is_null())))
            unknown, unsent = batch.before.unavailable[place], batch.after.unavailable[place]
            if unknown is not None and unsent is not None:
                # the update has set a null, and the old value is unknown
                same = same & ~(unknown & ~unsent)
    return filtered(batch, ~same) if same.any() else batch


def _closed() -> bool:
    """Return True: a failed session is already closed, and the planner was connected, so a retry may help."""
    return True


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """Rows of one table of a snapshot: the chunk's range of keys, or the rows of `statement`.

    After a lost connection, or a deadlock, the task continues after the last key that it yielded: the log has all
    changes made meanwhile. Without a key it cannot continue, and raises ConnectionFailed if it has yielded rows; a
    restart of the query reads the chunk again. If several rows may share a key (`shared`), it reads the chunk from its
    beginning, and rows come twice. If a statement of a signal (`asked`) fails, the task logs it and leaves
    out the rest of its rows: otherwise the planned batch would fail again at each start.

    `moving` is True if rows may move while they are read, as under read_committed: a row may then be read twice. Blocks
    have it once, since rows arrive in the order of the key. Blocks without a key are not marked as snapshot rows, which
    must be new rows with unique keys.
    """

    source: TaskSource
    database: str
    table: TableSchema
    chunk: Chunk
    rows: KeyRange
    statement: str | None
    position: bytes
    at_us: int
    asked: bool = False
    moving: bool = False
    shared: bool = False

    def __repr__(self) -> str:
        return f"SnapshotTask({self.table.id}, chunk {self.chunk.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.changetables.log.rows import read_batch
        from tailrace.events.record_assembly import to_rows

        ordinal = (self.chunk.number + 1) << 40
        held: ChangeBatch | None = None
        opened = True
        moving = self.moving and bool(self.source.settings.blocks)
        for columns in self._once() if moving else self._rows():
            batch = read_batch(self.table, columns, Marker.TRUE, self.position, self.at_us, ordinal)
            if not len(batch):
                continue
            ordinal += len(batch)
            if moving and not self.rows.key:
                batch.marker = np.full(len(batch), Marker.INCREMENTAL, np.uint8)
                yield from to_rows(batch, self.source.settings, self.source.form)
                continue
            if held is not None:
                yield from to_rows(self._marked(held, opened, False), self.source.settings, self.source.form)
                opened = False
            held = batch
        if held is not None:
            yield from to_rows(self._marked(held, opened, True), self.source.settings, self.source.form)

    def _once(self) -> Iterator[list[pa.Array]]:
        """Yield the rows, without rows that have the key of the previous row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from tailrace.connectors.changetables.log.reconcile import one_text

        last = pa.nulls(1, pa.binary())
        for columns in self._rows():
            if not self.rows.key or not len(columns[0]):
                yield columns
                continue
            keys = one_text([columns[self.table.index(name)] for name in self.rows.key]).cast(pa.binary())
            before = pa.concat_arrays([last, keys[:-1]])
            last = keys[-1:]
            again = pc.fill_null(pc.equal(keys, before), False)
            yield [column.filter(pc.invert(again)) for column in columns] if pc.any(again).as_py() else columns

    def _rows(self) -> Iterator[list[pa.Array]]:
        """Yield the rows. After a lost connection, continue if the position is known."""
        left: KeyRange | None = self.rows
        failure = 0
        while left is not None:
            try:
                with borrowed(self.source.dialect, self.database) as session:
                    for columns in session.rows(self.table, left, self.statement):
                        if len(columns[0]):
                            # a chunk that is read from its beginning comes no further by its first rows
                            failure = failure if self.shared else 0
                            left = self._behind(columns)
                        yield columns
                return
            except ConnectionFailed as error:
                if isinstance(error, StatementCutOff) and self._is_logged(error):
                    return
                if left is None:
                    raise ConnectionFailed(
                        f"Reading {self.table.id} for the snapshot failed: {error.message}",
                        "Start again with the same checkpoint: the chunks that are done are not read again.",
                    ) from None
                failure += 1
                self.source.retries.pause(failure, error)
            except TailraceError as error:
                if not self._is_logged(error):
                    raise
                return

    def _is_logged(self, error: TailraceError) -> bool:
        """Log the failure of a signal's statement, and return True. Return False for other errors, such as a lost
        position."""
        if not self.asked or self.statement is None or isinstance(error, PositionLost):
            return False
        # the server's message may contain data that the statement computed
        log.warning(
            "the statement of a signal for %s fails (%s): the other rows are left out. Correct it, and send the signal "
            "again.",
            self.table.id,
            type(error).__name__,
        )
        return True

    def _behind(self, columns: list[pa.Array]) -> KeyRange | None:
        """Return the rest of the chunk after the last of these rows; None if unknown."""
        if not self.rows.key or self.statement is not None:
            return None
        if self.shared:
            return self.rows
        last = [columns[self.table.index(name)][-1].as_py() for name in self.rows.key]
        if None in last:
            return None
        return replace(self.rows, after=tuple(text.decode() for text in last))

    def _marked(self, batch: ChangeBatch, opened: bool, closes: bool) -> ChangeBatch:
        """Return the batch with the markers of first and last rows."""
        assert batch.marker is not None
        for row, marker in markers(self.chunk, len(batch), opened, closes):
            batch.marker[row] = marker
        return batch


@dataclass(frozen=True, slots=True)
class WindowTask:
    """The rows of one window of an incremental snapshot, as the planner has read them.

    Rows whose key has a change in the batch are left out, because the log has their latest state. `rows` is an Arrow
    IPC stream of `table.columns`, `identity` names the columns that identify rows, `changes` are the batch's spans of
    the table. `position` and `change` are the positions of the closing watermark's commit and change.
    """

    source: TaskSource
    database: str
    table: TableSchema
    rows: bytes
    identity: tuple[str, ...]
    changes: tuple[PeriodPart, ...]
    position: bytes
    change: bytes
    at_us: int
    ordinal: int

    def __repr__(self) -> str:
        return f"WindowTask({self.table.id})"

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.changetables.log.ipc import from_ipc
        from tailrace.connectors.changetables.log.reconcile import changed_keys, without
        from tailrace.connectors.changetables.log.rows import read_batch
        from tailrace.events.record_assembly import to_rows

        dialect, retries = self.source.dialect, self.source.retries
        changed = changed_keys(dialect, retries, self.database, self.table, self.identity, self.changes)
        columns = without(self.table, from_ipc(self.rows), self.identity, changed)
        if len(columns[0]):
            positions = (self.position, self.at_us, self.ordinal, self.change)
            batch = read_batch(self.table, columns, Marker.INCREMENTAL, *positions)
            yield from to_rows(batch, self.source.settings, self.source.form)


@dataclass(frozen=True, slots=True)
class SchemaTask:
    """The records of new table versions, for the topic of schema changes."""

    source: TaskSource
    changes: tuple[SchemaChange, ...]

    def __repr__(self) -> str:
        return f"SchemaTask({len(self.changes)} changes)"

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.captured_form import CapturedForm
        from tailrace.events.schema_changes import schema_change_rows

        form = self.source.form
        assert isinstance(form, CapturedForm)
        yield schema_change_rows(self.changes, self.source.settings, form)
