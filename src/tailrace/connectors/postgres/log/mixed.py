"""Records of many small tables, decoded and converted together. Worker.

Each table costs some milliseconds, however few changes it has. So the messages of tables with few changes are rewritten
as messages of one table, whose columns are the places of a pool (see `events.record_assembly.Pool`). A value is written
to the place of its column; places that the message's table does not use are null. The result is an ordinary segment, of
which each record shows the places of its own table.

If a message or a value is wrong or too large, the tables are converted one by one, which finds the culprit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import Bytes, Image, Int32s, Int64s
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.protocol import scan
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.protocol.kernel import frozen, pooled, uint16, uint32
from tailrace.connectors.postgres.protocol.segment import MixedSegment, Segment
from tailrace.errors import DecodeError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import Pool, Pooled, rows_of_tables
from tailrace.events.table_plan import TablePlans
from tailrace.kernels.buffers import move
from tailrace.kernels.compiled import kernel

# The most places, cells (places times messages), and bytes that are converted at a time.
MOST_PLACES = 512
_MOST_CELLS = 1 << 21
_MOST_BYTES = 16 << 20
_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_ABSENT = pa.array([], pa.binary())


def records(
    segment: MixedSegment, settings: EventSettings, xmin: int | None
) -> Iterator[pa.RecordBatch | list[Segment]]:
    """Yield the records of the messages, in log order within each topic.

    Messages that cannot be converted together are yielded as a list of segments instead, one for each table; they
    follow what was yielded before.
    """
    if settings.typed is not None:
        # typed rows of each table are structs with fields of their own
        yield apart(segment)
        return
    pool = _pool(settings)
    tables = pool.tables(segment.tables)
    shared = names.shared(settings, (table.id for table in segment.tables))
    for fits, members in _groups(tables, [shared[table.id] for table in segment.tables]):
        part = _only(segment, members)
        if not fits:
            yield apart(part)
            continue
        layout = _Layout(pool, [tables[member] for member in members])
        for low, high in _pieces(part, layout):
            piece = _cut(part, low, high)
            made = layout.records(piece, settings, xmin)
            if made is None:
                yield apart(piece)
            else:
                yield from made


@lru_cache(maxsize=4)
def _pool(settings: EventSettings) -> Pool:
    return Pool(settings, FORM)


def _groups(tables: Sequence[Pooled], shared: Sequence[str]) -> list[tuple[bool, list[int]]]:
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


def _pieces(segment: MixedSegment, layout: _Layout) -> Iterator[tuple[int, int]]:
    """Yield ranges of messages within the limits; one message alone may exceed them."""
    most, low = max(_MOST_CELLS // max(layout.width, 1), 1), 0
    while low < len(segment):
        high = int(np.searchsorted(segment.offsets, segment.offsets[low] + _MOST_BYTES, side="right")) - 1
        high = max(min(high, low + most, len(segment)), low + 1)
        yield low, high
        low = high


class _Layout:
    """The places that some tables of a pool use, as the `width` columns of one table."""

    def __init__(self, pool: Pool, tables: Sequence[Pooled]) -> None:
        self._tables = tables
        used = sorted({column.index for table in tables for column in table.plan.columns})
        self._used, self._count, self.width = used, len(pool.columns), len(used)
        self._columns = [pool.columns[place] for place in used]
        column_of = np.full(self._count + 1, -1, np.int32)
        column_of[used] = np.arange(len(used))
        # of all tables, one after another; index -1 finds the last entry, which is -1 too
        self._places = frozen(np.concatenate([column_of[table.places] for table in tables]), np.int32)
        starts = np.zeros(len(tables) + 1, np.int64)
        np.cumsum([len(table.places) for table in tables], out=starts[1:])
        self._starts = frozen(starts, np.int64)

    def records(self, segment: MixedSegment, settings: EventSettings, xmin: int | None) -> list[pa.RecordBatch] | None:
        """Return the records of a segment of the layout's tables; None if they cannot be converted together."""
        try:
            rewritten = self._rewritten(segment)
            batch = None if rewritten is None else decode(rewritten)
        except DecodeError:
            return None
        if batch is None:
            return None
        batch.before, batch.after = self._spread(batch.before), self._spread(batch.after)
        batch.total_order, batch.table_order = segment.total_order, segment.table_order
        batch.xmin = xmin
        plans = TablePlans([table.plan for table in self._tables], segment.table)
        return rows_of_tables(batch, plans, settings, FORM)

    def _rewritten(self, segment: MixedSegment) -> Segment | None:
        """Return the messages as messages of one table; None if one of them is wrong."""
        data, offsets = frozen(segment.data, np.uint8), frozen(segment.offsets, np.int64)
        rows = len(segment)
        out = pooled(int(offsets[-1] - offsets[0]) + 2 * rows * self.width)
        bounds = np.zeros(rows + 1, np.int64)
        oids = np.array([table.oid for table in segment.tables], np.int64)
        table = frozen(segment.table, np.int32)
        accepted = _rewrite(
            data, offsets, table, frozen(oids, np.int64), self._starts, self._places, self.width, out, bounds
        )
        if accepted < rows:
            return None
        return Segment(
            _table(self.width), out, bounds, segment.lsn, segment.transaction, segment.ordinal, segment.transactions
        )

    def _spread(self, image: Image | None) -> Image | None:
        """Return the image with its columns at the pool's places."""
        if image is None:
            return None
        spread = Image(image.present, [_ABSENT] * self._count, [None] * self._count)
        for place, column, unavailable in zip(self._used, image.columns, image.unavailable, strict=True):
            spread.columns[place], spread.unavailable[place] = column, unavailable
        return spread


@lru_cache(maxsize=64)
def _table(width: int) -> TableSchema:
    """Return a table of `width` columns without names. Its oid 0 fits the messages of any table."""
    return TableSchema(TableId("", "", ""), (Column("", "", 0),) * width, ())


def _cut(segment: MixedSegment, low: int, high: int) -> MixedSegment:
    """Return the messages `[low, high)`, over the same bytes."""
    if low == 0 and high == len(segment):
        return segment
    total, table = segment.total_order, segment.table_order
    return replace(
        segment,
        table=segment.table[low:high],
        offsets=np.ascontiguousarray(segment.offsets[low : high + 1]),
        lsn=segment.lsn[low:high],
        transaction=segment.transaction[low:high],
        ordinal=segment.ordinal[low:high],
        total_order=None if total is None else total[low:high],
        table_order=None if table is None else table[low:high],
    )


def _only(segment: MixedSegment, members: Sequence[int]) -> MixedSegment:
    """Return the messages of the tables with the numbers `members`; the tables are renumbered in that order."""
    if len(members) == len(segment.tables) and list(members) == sorted(members):
        return segment
    number = _renumbered(segment, members)
    rows = np.flatnonzero(number >= 0)
    data, offsets = scan.gather(segment.data, segment.offsets, rows)
    total, table = segment.total_order, segment.table_order
    return MixedSegment(
        tuple(segment.tables[member] for member in members),
        number[rows],
        data,
        offsets,
        segment.lsn[rows],
        segment.transaction[rows],
        segment.ordinal[rows],
        segment.transactions,
        None if total is None else total[rows],
        None if table is None else table[rows],
    )


def _renumbered(segment: MixedSegment, members: Sequence[int]) -> Int32s:
    """Return for each message the place of its table in `members`; -1 if it is not there."""
    numbers = np.full(len(segment.tables), -1, np.int32)
    numbers[list(members)] = np.arange(len(members))
    return numbers[segment.table]


def apart(segment: MixedSegment) -> list[Segment]:
    """Return the messages as segments of one table each, with their places among all messages."""
    found: list[Segment] = []
    total, order = segment.total_order, segment.table_order
    for number in np.unique(segment.table).tolist():
        rows = np.flatnonzero(segment.table == number)
        data, offsets = scan.gather(segment.data, segment.offsets, rows)
        used, transaction = np.unique(segment.transaction[rows], return_inverse=True)
        found.append(
            Segment(
                table=segment.tables[number],
                data=data,
                offsets=offsets,
                lsn=segment.lsn[rows],
                transaction=transaction.astype(np.int32),
                ordinal=segment.ordinal[rows],
                transactions=segment.transactions.part(used),
                total_order=None if total is None else total[rows],
                table_order=None if order is None else order[rows],
                place=rows,
            )
        )
    return found


@kernel
def _rewrite(
    data: Bytes,
    offsets: Int64s,
    table: Int32s,
    oids: Int64s,
    starts: Int64s,
    places: Int32s,
    width: int,
    out: Bytes,
    bounds: Int64s,
) -> int:
    """Write each message with its values at their places to `out`, and the messages' offsets to `bounds`.

    Return the number of messages before the first wrong one. `out` has room for the messages and for two nulls for
    each place and message.
    """
    at_of = np.full(width, -1, np.int64)
    end_of = np.zeros(width, np.int64)
    cursor = 0
    for row in range(len(table)):
        at, end = offsets[row], offsets[row + 1]
        number = table[row]
        if end - at < 6 or uint32(data, at + 1) != oids[number]:
            return row
        kind, tag = data[at], data[at + 5]
        if kind == _INSERT:
            right = tag == _NEW
        elif kind == _UPDATE:
            right = tag in (_NEW, _KEY, _OLD)
        else:
            right = kind == _DELETE and tag in (_KEY, _OLD)
        if not right:
            return row
        for byte in range(5):
            out[cursor + byte] = data[at + byte]
        cursor += 5
        at += 5
        first, last = starts[number], starts[number + 1]
        while at < end:
            tag = data[at]
            out[cursor] = tag
            behind = _locate(data, at + 1, end, places, first, last, at_of, end_of)
            if behind < 0:
                return row
            cursor = _put(data, out, cursor + 1, at_of, end_of)
            at = behind
            if at < end and (kind != _UPDATE or tag == _NEW or data[at] != _NEW):
                return row
        if kind == _UPDATE and tag != _NEW:
            return row
        bounds[row + 1] = cursor
    return len(table)


@kernel
def _locate(
    data: Bytes, at: int, end: int, places: Int32s, first: int, last: int, at_of: Int64s, end_of: Int64s
) -> int:
    """Note by place where the values of the tuple at `at` begin and end. Return the tuple's end; -1 if it is wrong."""
    if end - at < 2 or uint16(data, at) != last - first:
        return -1
    at += 2
    for column in range(first, last):
        if at >= end:
            return -1
        begin = at
        kind = data[at]
        at += 1
        if kind == _TEXT:
            if end - at < 4:
                return -1
            length = uint32(data, at)
            at += 4
            if length > end - at:
                return -1
            at += length
        elif kind not in (_UNCHANGED, _NULL):
            return -1
        if places[column] >= 0:
            at_of[places[column]] = begin
            end_of[places[column]] = at
    return at


@kernel
def _put(data: Bytes, out: Bytes, cursor: int, at_of: Int64s, end_of: Int64s) -> int:
    """Write a tuple of the noted values, with nulls at the other places, and clear the notes. Return its end."""
    width = len(at_of)
    out[cursor], out[cursor + 1] = width >> 8, width & 255
    cursor += 2
    data_at, out_at = data.ctypes.data, out.ctypes.data
    for place in range(width):
        begin = at_of[place]
        if begin < 0:
            out[cursor] = _NULL
            cursor += 1
        else:
            move(out_at + cursor, data_at + begin, end_of[place] - begin)
            cursor += end_of[place] - begin
            at_of[place] = -1
    return cursor
