"""Record assembly: from a ChangeBatch to the rows that Spark gets, column by column. Worker."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, TableSchema
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.expansion import expand
from tailrace.events.mapping import SourceForm
from tailrace.events.packed_changes import block_rows
from tailrace.events.quarantine import (
    DroppedRecords,
    Unconvertible,
    conversion_error,
    converted_row,
    failing,
    refused_error,
    too_large_row,
)
from tailrace.events.record_chunk import BatchColumns, RecordChunk
from tailrace.events.record_variants import (
    MAX_RECORDS,
    Drop,
    KnownRecords,
    RefusedChange,
    by_kind,
    reason_of,
    tell_left_out,
)
from tailrace.events.table_plan import TablePlan, TablePlans, table_plan
from tailrace.events.warnings import left_out, warn, warn_of_unfit
from tailrace.kernels.buffers import ExceedsArrow, text_buffers
from tailrace.metrics.tally import TALLY
from tailrace.records.transform import RefusedRecord
from tailrace.values.conversion import ColumnPlan

# --- sizes ------------------------------------------------------------------------------------------------------------


def large_records(rows: pa.RecordBatch, settings: EventSettings) -> list[int]:
    """Return the records whose key and value exceed `settings.most_change_bytes`; none for typed rows, which have no
    bytes."""
    most = settings.most_change_bytes
    if not most or settings.typed is not None:
        return []
    keys, values = (text_buffers(rows.column(name))[1] for name in ("key", "value"))
    if int(keys[-1]) - int(keys[0]) + int(values[-1]) - int(values[0]) <= most:
        return []
    sizes = np.diff(keys).astype(np.int64) + np.diff(values)
    return [int(row) for row in np.flatnonzero(sizes > most)]


def record_size(rows: pa.RecordBatch, row: int) -> int:
    """Return the bytes of a record's key and value."""
    bounds = (text_buffers(rows.column(name))[1] for name in ("key", "value"))
    return sum(int(of[row + 1]) - int(of[row]) for of in bounds)


# --- columns of many tables as one ------------------------------------------------------------------------------------

# A pool with more tables or places is cleared.
_MOST_TABLES, _MOST_PLACES = 8192, 8192


@dataclass(frozen=True, slots=True)
class PooledTable:
    """A table in a pool. `plan` uses the pool's places as column indexes.

    `places` has the place of each of the table's columns, -1 for a column that events do not show. `fits` is False if
    the table cannot be pooled because its key shows a column differently from its values.
    """

    fits: bool
    plan: TablePlan
    places: npt.NDArray[np.int32]


class ColumnPool:
    """The places of the columns of all requested tables. `columns[i]` is the plan of the values at place i.

    There is one pool per EventSettings. Its places are valid until it is cleared.
    """

    def __init__(self, settings: EventSettings, form: SourceForm) -> None:
        self._settings, self._form = settings, form
        self.columns: list[ColumnPlan] = []
        self._places: dict[Hashable, list[int]] = {}
        self._tables: dict[TableSchema, PooledTable] = {}

    def tables(self, tables: Iterable[TableSchema]) -> list[PooledTable]:
        """Return the tables in the pool. This may clear the pool, and with it the places returned before."""
        if len(self._tables) > _MOST_TABLES or len(self.columns) > _MOST_PLACES:
            self.columns, self._places, self._tables = [], {}, {}
        found = []
        for table in tables:
            if table not in self._tables:
                self._tables[table] = self._pooled(table)
            found.append(self._tables[table])
        return found

    def _pooled(self, table: TableSchema) -> PooledTable:
        plan = table_plan(table, self._settings, self._form)
        places = np.full(len(table.columns), -1, np.int32)
        if plan.key_apart:
            return PooledTable(False, plan, places)
        used: dict[Hashable, int] = {}
        for column in plan.columns:
            kind = (column.conversion.way(), column.null, column.unavailable, column.shape)
            number = used[kind] = used.get(kind, -1) + 1
            shared = self._places.setdefault(kind, [])
            if number == len(shared):
                shared.append(len(self.columns))
                self.columns.append(replace(column, index=len(self.columns)))
            places[column.index] = shared[number]

        return PooledTable(True, plan.moved(places), places)


# --- records ----------------------------------------------------------------------------------------------------------


Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
_MAX_TEXT = 48 << 20
_MAX_OUTPUT = 512 << 20


def to_rows(batch: ChangeBatch, settings: EventSettings, form: SourceForm) -> Iterator[pa.RecordBatch]:
    """Yield the records of `batch` as batches of `settings.row_schema`, in order, with at most 8,192 records each.

    A value that does not fit its type becomes null, with a warning. Under `event.converting.failure.handling.mode=fail`
    its change is quarantined or raises ConversionError, as `event.processing.failure.handling.mode` says. The same
    happens to a change if its texts together, or one of its records, exceed `event.max.change.bytes`. Raises
    TransformError if a transform cannot process a record. Under errors.tolerance=all, a record that a transform or a
    converter cannot process is dropped, and an error in the log has the number of such records.
    """
    for rows, _ in numbered_rows(batch, settings, form):
        yield rows


def numbered_rows(
    batch: ChangeBatch, settings: EventSettings, form: SourceForm
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the batches of `to_rows`, each with the index of each record's change in `batch`."""
    try:
        yield from _numbered_rows(batch, settings, form)
    except RefusedChange as fault:
        raise refused_error(batch, fault.change, fault.reason, form) from None


def _numbered_rows(
    batch: ChangeBatch, settings: EventSettings, form: SourceForm
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    if len(batch) == 0:
        return
    plan = table_plan(batch.table, settings, form)
    warn_of_unknown(plan, batch)
    if settings.copies:
        warn_of_bounds(batch, plan, settings)
    TALLY.count_batch(batch)
    TALLY.count_bytes(str(batch.table.id), sum(int(bounds[-1] - bounds[0]) for bounds in _bounds(batch)))
    if settings.blocks:
        yield from block_rows(batch, plan, key_changes(batch, TablePlans.one(plan)), settings, form)
        return
    work = _Work.of(batch, TablePlans.one(plan), settings, form, plan.has_key)
    most = settings.most_change_bytes
    size = _text_sizes(batch, most)
    large = [] if size is None or not 0 < most < int(size[-1]) else np.flatnonzero(np.diff(size) > most).tolist()
    low = 0
    for change in [*large, len(batch)]:
        for first, last in _blocks(work, size, low, change):
            yield from _block_rows(work, first, last)
        if size is not None and change < len(batch) and work.ends[change] < work.ends[change + 1]:
            found = int(size[change + 1] - size[change])
            yield too_large_row(batch, change, found, plan.key, settings, form), np.full(1, change, np.int32)
        low = change + 1
    if work.dropped is not None:
        work.dropped.tell()


def rows_of_tables(
    batch: ChangeBatch, tables: TablePlans, settings: EventSettings, form: SourceForm
) -> list[pa.RecordBatch] | None:
    """Return the records of a batch of several tables, in order; None if a change cannot become an event.

    The texts of no change may exceed `event.max.change.bytes`. `batch.table` is ignored.
    """
    assert tables.of is not None
    if settings.blocks or (settings.copies and any(_bounded(batch, plan) for plan in tables.plans)):
        return None
    for plan in tables.plans:
        warn_of_unknown(plan, batch)
    has_key = np.array([plan.has_key for plan in tables.plans])[tables.of]
    found: list[pa.RecordBatch] = []
    try:
        work = _Work.of(batch, tables, settings, form, has_key)
        for low, high in _blocks(work, _text_sizes(batch, 0), 0, len(batch)):
            if work.ends[low] < work.ends[high]:
                rows, _, too_large = work.rows(low, high)
                if too_large:
                    return None
                found.append(rows)
    except (Unconvertible, ExceedsArrow, RefusedChange, ConversionError):
        return None
    sizes = np.zeros(len(batch) + 1, np.int64)
    for bounds in _bounds(batch):
        sizes += bounds
    TALLY.count_tables([str(plan.table) for plan in tables.plans], tables.of, batch.op, np.diff(sizes))
    TALLY.count_times(batch)
    return found


def typed_rows(batch: ChangeBatch, settings: EventSettings, form: SourceForm) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the keys and values of the records of `batch` as Arrow structs, block by block; null if there is none.

    Raises ConversionError if a value does not fit and `event.converting.failure.handling.mode` is `fail`.
    """
    settings = replace(settings, key_format="typed", value_format="typed", tolerant=False)
    plan = table_plan(batch.table, settings, form)
    work = _Work.of(batch, TablePlans.one(plan), settings, form, plan.has_key)
    for low, high in _blocks(work, _text_sizes(batch, 0), 0, len(batch)):
        try:
            block = work.block(low, high)
            tell_left_out(block.left_out, batch.warnings)
            yield block.encoded()
        except Unconvertible as error:
            (change, column), *_ = failing(batch, plan.columns, low, high, error.column).items()
            raise conversion_error(batch, change, column, form) from None


@dataclass(slots=True)
class _Work:
    """A batch during its conversion into rows: its records, and the end of each change's records."""

    batch: ChangeBatch
    tables: TablePlans
    settings: EventSettings
    form: SourceForm
    records: KnownRecords
    columns: BatchColumns
    ends: npt.NDArray[np.int64]
    dropped: DroppedRecords | None

    @classmethod
    def of(
        cls, batch: ChangeBatch, tables: TablePlans, settings: EventSettings, form: SourceForm, has_key: bool | Flags
    ) -> _Work:
        """Expand the changes of `batch` into records with their layouts. Raises RefusedChange, ConversionError."""
        ordered = batch.total_order is not None and batch.table_order is not None
        dropped = DroppedRecords(batch, form) if settings.tolerant and tables.of is None else None
        drop = None if dropped is None else dropped.take
        records = by_kind(expand(batch, key_changes(batch, tables), has_key, settings), tables, ordered, drop)
        tell_left_out(records.left_out, batch.warnings)
        records = replace(records, left_out=())
        ends = np.searchsorted(records.change, np.arange(len(batch) + 1))
        return cls(batch, tables, settings, form, records, BatchColumns(batch, settings, form), ends, dropped)

    def block(self, low: int, high: int, record: int | None = None, drop: Drop | None = None) -> RecordChunk:
        """Return the records of the changes `[low, high)`, or only the record `record`.

        Raises RefusedChange, ConversionError.
        """
        first, last = (int(self.ends[low]), int(self.ends[high])) if record is None else (record, record + 1)
        records = self.records.part(first, last)
        return RecordChunk(self.columns, self.tables, records, (low, high), time.time_ns(), self.lost).told_apart(drop)

    def rows(self, low: int, high: int, record: int | None = None) -> tuple[pa.RecordBatch, Int32s, list[int]]:
        """Return the rows of `block`, the change of each, and the rows that are too large.

        Records left out are reported only if no row is too large; otherwise the caller makes the rows again. Raises
        RefusedChange, ConversionError.
        """
        dropped: list[tuple[str, int, int]] = []
        block = self.block(low, high, record, None if self.dropped is None else lambda *given: dropped.append(given))
        try:
            rows = block.rows()
        except RefusedRecord as fault:
            raise RefusedChange(fault.reason, int(block.change[fault.row])) from None
        large = large_records(rows, self.settings)
        if large:
            return rows, block.change, large
        tell_left_out(block.left_out, self.batch.warnings)
        for reason, change, count in dropped:
            assert self.dropped is not None
            self.dropped.take(reason, change, count)
        return rows, block.change, []

    def lost(self, plan: ColumnPlan, count: int) -> None:
        """Handle `count` values that do not fit the column's type. Raises Unconvertible to have changes quarantined."""
        mode = self.settings.converting_failure_mode
        if mode == "fail" or self.tables.of is not None:
            raise Unconvertible(plan)
        if mode == "warn":
            warn_of_unfit(self.batch, plan, count)


def _block_rows(work: _Work, low: int, high: int) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the records of the changes `[low, high)`, with quarantine records in place of changes that cannot become
    events."""
    batch, settings, form, ends = work.batch, work.settings, work.form, work.ends
    if ends[low] == ends[high]:
        return
    (plan,) = work.tables.plans
    large: dict[int, int | None] = {}
    found: dict[int, ColumnPlan] = {}
    try:
        rows, changes, too_large = work.rows(low, high)
        for record in too_large:
            large[int(changes[record])] = record_size(rows, record)
        if not large:
            yield rows, changes
            return
    except Unconvertible as error:
        found = failing(batch, (*plan.columns, *plan.key_apart), low, high, error.column)
    except ExceedsArrow:
        if high - low == 1:
            large[low] = None
    except (RefusedChange, ConversionError):
        if work.dropped is None:
            raise
        yield from _tolerated_rows(work, low, high)
        return
    # Split between the failing changes; if they are unknown, split in half.
    faults = {*large, *found}
    cuts = sorted({low, high, *faults, *(change + 1 for change in faults)} | (set() if faults else {(low + high) // 2}))
    for start, end in pairwise(cuts):
        if start in large:
            row = too_large_row(batch, start, large[start], plan.key, settings, form)
            yield row, np.full(1, start, np.int32)
        elif start not in found:
            yield from _block_rows(work, start, end)
        elif ends[start] < ends[end]:
            yield _aside(work, start, found[start])


def _aside(work: _Work, change: int, column: ColumnPlan) -> tuple[pa.RecordBatch, Int32s]:
    """Return the quarantine record of a change, for a value of the column. Raises ConversionError in mode `fail`."""
    if work.settings.processing_failure_mode == "fail":
        raise conversion_error(work.batch, change, column, work.form)
    key = work.tables.plans[0].key
    return converted_row(work.batch, change, column, key, work.settings, work.form), np.full(1, change, np.int32)


def _tolerated_rows(work: _Work, low: int, high: int) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield those records of the changes `[low, high)` that can be made, under errors.tolerance=all."""
    if high - low > 1:
        middle = (low + high) // 2
        yield from _block_rows(work, low, middle)
        yield from _block_rows(work, middle, high)
        return
    assert work.dropped is not None
    for record in range(int(work.ends[low]), int(work.ends[high])):
        try:
            rows, changes, too_large = work.rows(low, high, record)
        except Unconvertible as error:
            yield _aside(work, low, error.column)
            return
        except (RefusedChange, ConversionError) as fault:
            work.dropped.take(reason_of(fault), low, 1)
            continue
        for large in too_large:
            size = record_size(rows, large)
            rows = too_large_row(work.batch, low, size, work.tables.plans[0].key, work.settings, work.form)
        yield rows, changes


def key_changes(batch: ChangeBatch, tables: TablePlans) -> Flags:
    """Return a mask of the updates that changed the key: a key column's old text differs from its new one."""
    changed: Flags = np.zeros(len(batch), np.bool_)
    if batch.before is None or batch.after is None:
        return changed
    candidates = batch.op == ord("u")
    if batch.before.present is not None:
        candidates = candidates & batch.before.present
    if not candidates.any():
        return changed
    for index in sorted({column.index for plan in tables.plans for column in plan.key}):
        old, new = batch.before.columns[index], batch.after.columns[index]
        same = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
        differs = ~same & ~(np.asarray(old.is_null()) & np.asarray(new.is_null()))
        unchanged = batch.after.unavailable[index]
        if unchanged is not None:
            differs &= ~unchanged
        if tables.of is not None:
            has = np.array([any(column.index == index for column in plan.key) for plan in tables.plans])
            differs &= has[tables.of]
        changed |= differs
    changed &= candidates
    return changed


def warn_of_unknown(plan: TablePlan, batch: ChangeBatch) -> None:
    """Log which columns are left out of the events of the plan's table, whose changes are in `batch`."""
    for column, kind in plan.unknown:
        warn(batch, str(plan.table), column, "unknown", " ".join(left_out(plan.table, column, kind)))


def warn_of_bounds(batch: ChangeBatch, plan: TablePlan, settings: EventSettings) -> None:
    """Warn of a copy's columns with arrays that are not numbered from 1, since a list does not show the bounds.

    Raises ConversionError for such a column of the key, by which two keys would become one; typed rows have no key.
    """
    keys = {column.index for column in plan.key} if settings.typed is None else set()
    for column in _bounded(batch, plan):
        name, is_key = column.source_name, column.index in keys
        message = (
            f"{'The key column' if is_key else 'Column'} {name} of {plan.table} has arrays whose elements are not "
            "numbered from 1, and a copy shows them as if they were."
        )
        remedy = f"Write them with bounds from 1, as {name}[:] gives them, or "
        if is_key:
            raise ConversionError(message, f"{remedy}name other columns in message.key.columns.")
        warn(
            batch, str(plan.table), name, "bounds", f"{message} {remedy}leave the column out with column.exclude.list."
        )


def _bounded(batch: ChangeBatch, plan: TablePlan) -> list[ColumnPlan]:
    """Return the columns of a table with arrays that are not numbered from 1, each once.

    The server writes bounds before the braces only of such arrays: `[2:3]={1,2}`.
    """
    arrays = {
        column.index: column
        for column in (*plan.key, *plan.columns)
        if column.schema.connect == "array" and column.schema.name is None
    }
    images = [image for image in (batch.after, batch.before) if image is not None]
    return [
        column
        for index, column in arrays.items()
        if any(pc.any(pc.starts_with(image.columns[index].cast(pa.binary()), "[")).as_py() for image in images)
    ]


def _columns(batch: ChangeBatch) -> list[pa.Array]:
    return [column for image in (batch.before, batch.after) if image is not None for column in image.columns]


def _bounds(batch: ChangeBatch) -> Iterator[Int32s]:
    """Yield for each column the offsets of its texts: the begin of each text, and the end of the last one."""
    return (text_buffers(column)[1] for column in _columns(batch) if len(column))


def _text_sizes(batch: ChangeBatch, most: int) -> npt.NDArray[np.int64] | None:
    """Return, for each change, the bytes of all texts before it, and at the end their total.

    None if no change exceeds `most` (0: no limit) and all together fit in one block.
    """
    columns = _columns(batch)
    if sum(column.get_total_buffer_size() for column in columns) <= min(_MAX_TEXT, most or _MAX_TEXT):
        return None
    size = np.zeros(len(batch) + 1, np.int64)
    for column in columns:
        if len(column):
            bounds = text_buffers(column)[1]
            size += bounds.astype(np.int64) - int(bounds[0])
    return size


def _blocks(work: _Work, size: npt.NDArray[np.int64] | None, low: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of the changes `[low, end)` within the limits of records, text and output.

    A single change may exceed them. `size` is the result of `_text_sizes`.
    """
    ends, fixed = work.ends, max((kind.size for kind in work.records.kinds), default=0) + 1024
    limit = min(MAX_RECORDS, max(_MAX_OUTPUT // fixed, 1))
    while low < end:
        high = int(np.searchsorted(ends, ends[low] + limit, side="right")) - 1
        if size is not None:
            high = min(high, int(np.searchsorted(size, size[low] + _MAX_TEXT, side="right")) - 1)
        high = max(min(high, end), low + 1)
        yield low, high
        low = high
