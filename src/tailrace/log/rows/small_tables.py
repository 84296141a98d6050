"""Decodes and converts the rows of many small tables together, for the log and for snapshots. Worker.

Each table costs some milliseconds, however few changes it has. So the messages of tables with few changes are decoded
as messages of one table, whose columns are the places of a pool (see `events.record_assembly.ColumnPool`). A value is
at the place of its column; places that the message's table does not use are null. The result is an ordinary batch, of
which each record shows the places of its own table.

If a message or a value is wrong or too large, the tables are converted one by one, which finds the culprit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Image
from tailrace.errors import DecodeError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import ColumnPool, PooledTable, rows_of_tables, to_rows
from tailrace.events.record_variants import MAX_RECORDS
from tailrace.events.table_plan import TablePlans
from tailrace.log.rows.frames import frozen, gather
from tailrace.log.rows.partitioning import SMALL_TABLE_BYTES, SMALL_TABLE_ROWS
from tailrace.log.rows.row_log import RowLog
from tailrace.log.rows.segment import MixedSegment, Own, Segment, Trans

# The most places, cells (places times messages), and bytes that are converted at a time.
MOST_PLACES = 512
_MOST_CELLS = 1 << 21
_MOST_BYTES = 16 << 20
_ABSENT = pa.array([], pa.binary())


def records(
    log: RowLog[Own, Trans], segment: MixedSegment[Own, Trans], settings: EventSettings
) -> Iterator[pa.RecordBatch | list[Segment[Own, Trans]]]:
    """Yield the records of the messages, in log order within each topic.

    Messages that cannot be converted together are yielded as a list of segments instead, one for each table; they
    follow what was yielded before.
    """
    if settings.typed is not None:
        # typed rows of each table are structs with fields of their own
        yield apart(segment)
        return
    form = log.form
    pool = _pool(settings, form)
    tables = pool.tables(segment.tables)
    shared = names.shared(settings, (table.id for table in segment.tables))
    for fits, members in _groups(tables, [shared[table.id] for table in segment.tables]):
        part = _only(segment, members)
        if not fits:
            yield apart(part)
            continue
        layout = _Layout(log, pool, [tables[member] for member in members])
        for low, high in _pieces(part, layout.width):
            piece = _cut(part, low, high)
            batch = layout.decoded(piece)
            plans = TablePlans([table.plan for table in layout.tables], piece.table)
            made = None if batch is None else rows_of_tables(batch, plans, settings, form)
            if made is None:
                yield apart(piece)
            else:
                yield from made


def records_of_reads(
    batches: Iterable[ChangeBatch], settings: EventSettings, mapping: SourceForm
) -> Iterator[pa.RecordBatch]:
    """Yield the records of rows that one snapshot has read of several tables, in order within each topic.

    Rows of small tables that follow one another are converted together. Raises as `to_rows`.
    """
    waiting: list[ChangeBatch] = []
    count = 0
    for batch in batches:
        is_small = _is_small_read(batch, settings)
        if waiting and (not is_small or count + len(batch) > MAX_RECORDS):
            yield from _reads_together(waiting, settings, mapping)
            waiting, count = [], 0
        if is_small:
            waiting.append(batch)
            count += len(batch)
        else:
            yield from to_rows(batch, settings, mapping)
    if waiting:
        yield from _reads_together(waiting, settings, mapping)


def _is_small_read(batch: ChangeBatch, settings: EventSettings) -> bool:
    """Return True if the batch is small and `_joined` can join it: a snapshot's rows, without other arrays."""
    after = batch.after
    if settings.typed is not None or settings.blocks or batch.marker is None or len(batch.transactions) != 1:
        return False
    if after is None or after.present is not None or any(flags is not None for flags in after.unavailable):
        return False
    others = batch.before, batch.total_order, batch.table_order, batch.command, batch.reselected
    if any(array is not None for array in others):
        return False
    size = sum(column.get_total_buffer_size() for column in after.columns)
    most = min(SMALL_TABLE_BYTES, settings.most_change_bytes or SMALL_TABLE_BYTES)
    return len(batch) <= SMALL_TABLE_ROWS and size <= most


def _reads_together(
    batches: Sequence[ChangeBatch], settings: EventSettings, mapping: SourceForm
) -> Iterator[pa.RecordBatch]:
    pool = _pool(settings, mapping)
    tables = pool.tables(batch.table for batch in batches)
    shared = names.shared(settings, (batch.table.id for batch in batches))
    for fits, members in _groups(tables, [shared[batch.table.id] for batch in batches]):
        of_group = [batches[member] for member in members]
        made = None
        if fits and len(members) > 1:
            layouts = [tables[member] for member in members]
            joined = _joined(of_group, layouts, len(pool.columns))
            of = np.repeat(np.arange(len(members), dtype=np.int32), [len(batch) for batch in of_group])
            plans = TablePlans([table.plan for table in layouts], of)
            made = None if joined is None else rows_of_tables(joined, plans, settings, mapping)
        if made is not None:
            yield from made
        else:
            for batch in of_group:
                yield from to_rows(batch, settings, mapping)


def _joined(batches: Sequence[ChangeBatch], tables: Sequence[PooledTable], width: int) -> ChangeBatch | None:
    """Return the rows of all batches with columns at the pool's `width` places; None if types differ at a place."""
    starts = np.cumsum([0, *map(len, batches)])
    parts: dict[int, list[tuple[int, pa.Array]]] = {}
    for number, (batch, table) in enumerate(zip(batches, tables, strict=True)):
        assert batch.after is not None
        for column, place in enumerate(table.places.tolist()):
            if place >= 0:
                parts.setdefault(place, []).append((number, batch.after.columns[column]))
    columns: list[pa.Array] = [_ABSENT] * width
    for place, found in parts.items():
        if any(array.type != found[0][1].type for _, array in found):
            return None
        values = pa.concat_arrays([array for _, array in found])
        if len(values) < starts[-1]:
            rows, at = np.full(starts[-1], -1, np.int64), 0
            for number, array in found:
                rows[starts[number] : starts[number + 1]] = np.arange(at, at + len(array))
                at += len(array)
            values = values.take(pa.array(rows, mask=rows < 0))
        columns[place] = values

    def of_all(name: str) -> Any:
        parts = [getattr(batch, name) for batch in batches]
        if parts[0] is None:
            return None
        return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)

    named = {name: of_all(name) for name in ("op", "lsn", "transaction", "ordinal", "marker", "serial")}
    return replace(batches[0], after=Image(None, columns, [None] * width), warnings=[], **named)


@lru_cache(maxsize=4)
def _pool(settings: EventSettings, mapping: SourceForm) -> ColumnPool:
    return ColumnPool(settings, mapping)


def _groups(tables: Sequence[PooledTable], shared: Sequence[str]) -> list[tuple[bool, list[int]]]:
    """Return the tables by number, in groups: (True, tables to convert together) or (False, tables that cannot be).

    `shared` is the topic of each table. Tables of one topic are in one group. Several topics are in one group as long
    as they have at most MOST_PLACES places.
    """
    topics: dict[str, list[int]] = {}
    for number, topic in enumerate(shared):
        topics.setdefault(topic, []).append(number)
    groups: list[tuple[bool, list[int]]] = []
    places: set[int] = set()
    for members in topics.values():
        if not all(tables[number].fits for number in members):
            groups.insert(0, (False, members))
            continue
        added = {column.index for number in members for column in tables[number].plan.columns}
        if not groups or not groups[-1][0] or len(places | added) > MOST_PLACES:
            groups.append((True, []))
            places = set()
        groups[-1][1].extend(members)
        places |= added
    return groups


def _pieces(segment: MixedSegment[Any, Any], width: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of messages within the limits; one message alone may exceed them."""
    most, low = max(_MOST_CELLS // max(width, 1), 1), 0
    while low < len(segment):
        high = int(np.searchsorted(segment.offsets, segment.offsets[low] + _MOST_BYTES, side="right")) - 1
        high = max(min(high, low + most, len(segment)), low + 1)
        yield low, high
        low = high


class _Layout(Generic[Own, Trans]):
    """The places that some tables of a pool use, as the `width` columns of one table."""

    def __init__(self, log: RowLog[Own, Trans], pool: ColumnPool, tables: Sequence[PooledTable]) -> None:
        self.tables = tables
        self._log = log
        used = sorted({column.index for table in tables for column in table.plan.columns})
        self._used, self._count, self.width = used, len(pool.columns), len(used)
        column_of = np.full(self._count + 1, -1, np.int32)
        column_of[used] = np.arange(len(used))
        # of all tables, one after another; index -1 finds the last entry, which is -1 too
        self._places = frozen(np.concatenate([column_of[table.places] for table in tables]), np.int32)
        bounds = np.zeros(len(tables) + 1, np.int64)
        np.cumsum([len(table.places) for table in tables], out=bounds[1:])
        self._bounds = frozen(bounds, np.int64)

    def decoded(self, segment: MixedSegment[Own, Trans]) -> ChangeBatch | None:
        """Return the changes of the segment, whose tables are the layout's; None if they cannot be decoded together."""
        try:
            batch = self._log.decode_together(segment, self._places, self._bounds, self.width)
        except DecodeError:
            return None
        if batch is not None:
            batch.before, batch.after = self._spread(batch.before), self._spread(batch.after)
            batch.total_order, batch.table_order = segment.by_row.total_order, segment.by_row.table_order
        return batch

    def _spread(self, image: Image | None) -> Image | None:
        """Return the image with its columns at the pool's places."""
        if image is None:
            return None
        spread = Image(image.present, [_ABSENT] * self._count, [None] * self._count)
        for place, column, unavailable in zip(self._used, image.columns, image.unavailable, strict=True):
            spread.columns[place], spread.unavailable[place] = column, unavailable
        return spread


def _cut(segment: MixedSegment[Own, Trans], low: int, high: int) -> MixedSegment[Own, Trans]:
    """Return the messages `[low, high)`, over the same bytes."""
    if low == 0 and high == len(segment):
        return segment
    return replace(
        segment,
        table=segment.table[low:high],
        offsets=np.ascontiguousarray(segment.offsets[low : high + 1]),
        by_row=segment.by_row.part(slice(low, high)),
    )


def _only(segment: MixedSegment[Own, Trans], members: Sequence[int]) -> MixedSegment[Own, Trans]:
    """Return the messages of the tables with the numbers `members`; the tables are renumbered in that order."""
    if len(members) == len(segment.tables) and list(members) == sorted(members):
        return segment
    numbers = np.full(len(segment.tables), -1, np.int32)
    numbers[list(members)] = np.arange(len(members))
    number = numbers[segment.table]
    rows = np.flatnonzero(number >= 0)
    data, offsets = gather(segment.data, segment.offsets, rows)
    tables = tuple(segment.tables[member] for member in members)
    return MixedSegment(tables, number[rows], data, offsets, segment.by_row.part(rows), segment.transactions)


def apart(segment: MixedSegment[Own, Trans]) -> list[Segment[Own, Trans]]:
    """Return the messages as segments of one table each, with their places among all messages."""
    found: list[Segment[Own, Trans]] = []
    for number in np.unique(segment.table).tolist():
        rows = np.flatnonzero(segment.table == number)
        data, offsets = gather(segment.data, segment.offsets, rows)
        by_row = segment.by_row.part(rows)
        used, transaction = np.unique(by_row.transaction, return_inverse=True)
        by_row.transaction = transaction.astype(np.int32)
        table, transactions = segment.tables[number], segment.transactions.part(used)
        found.append(Segment(table, data, offsets, by_row, transactions, place=rows))
    return found
