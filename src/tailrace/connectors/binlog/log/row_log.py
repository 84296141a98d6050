"""BinlogRowLog: the binary log as a log of rows, in which a message is one row of a rows event. Planner and worker."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import Bytes, ChangeBatch, Flags, Int32s, Int64s
from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.binlog.log import row_kernels
from tailrace.connectors.binlog.log.forms import BinlogTable, ValueKind
from tailrace.connectors.binlog.log.plain_rows import parse_row
from tailrace.connectors.binlog.log.position import BinlogTransactions, MixedSegment, RowPlaces, Segment
from tailrace.events.mapping import ChangePlace, SourceForm
from tailrace.log.rows import frames
from tailrace.log.rows.segment import RowRun

if TYPE_CHECKING:
    from tailrace.connectors.binlog.log.row_kernels import ValuePlaces

# Kinds whose values are different in events if their bytes are different.
_KINDS = frozenset(
    (
        ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.YEAR, ValueKind.DATE, ValueKind.TIME, ValueKind.DATETIME,
        ValueKind.TIMESTAMP, ValueKind.TEXT,
        ValueKind.BYTES, ValueKind.LABEL, ValueKind.LABELS, ValueKind.UUID,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BinlogRowLog:
    """Implements RowLog. `form` is the source form of the dialect's events."""

    form: SourceForm

    def key_kind(self, column: Column, table: TableSchema) -> Hashable | None:
        """Return the form of a key column's values; None if different values may be equal in keys of events."""
        assert isinstance(table, BinlogTable)
        form = table.form[table.index(column.name)]
        # all dates that no calendar has become the same value
        is_zero = form.kind in (ValueKind.YEAR, ValueKind.DATE, ValueKind.TIME, ValueKind.DATETIME, ValueKind.TIMESTAMP)
        return form if form.kind in _KINDS and not is_zero else None

    def key_hashes(
        self, run: RowRun[RowPlaces, BinlogTransactions], rows: Int64s, table: TableSchema, names: Sequence[str]
    ) -> tuple[row_kernels.UInt64s, Flags]:
        data, offsets = frames.gather(run.data, run.offsets, run.rows[rows])
        by_row = run.by_row.part(rows)
        return key_hashes(data, offsets, by_row, table, names)

    def last_changes(
        self, parts: Sequence[tuple[RowRun[RowPlaces, BinlogTransactions], Int64s]], table: TableSchema, most: int
    ) -> list[Flags] | None:
        from tailrace.connectors.binlog.log.last_changes import standing

        assert isinstance(table, BinlogTable)
        return standing(parts, table, most)

    def decode(self, segment: Segment) -> ChangeBatch:
        from tailrace.connectors.binlog.log.decoder import decode

        return decode(segment)

    def decode_together(self, segment: MixedSegment, places: Int32s, bounds: Int64s, width: int) -> ChangeBatch | None:
        from tailrace.connectors.binlog.log.decoder import decode_together

        return decode_together(segment, places, bounds, width)

    def check(self, segment: Segment, row: int) -> None:
        """Raise DecodeError, with the reason, if a row is not understood."""
        table, by_row = segment.table, segment.by_row
        assert isinstance(table, BinlogTable)
        image = by_row.images[int(by_row.image[row])]
        if image.before or image.after:
            message = segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes()
            parse_row(message, table.form, image).texts(table.form)

    def place(self, segment: Segment, row: int) -> ChangePlace:
        by_row, number = segment.by_row, int(segment.by_row.transaction[row])
        return place(segment.transactions, number, int(by_row.pos[row]))


def place(transactions: BinlogTransactions, number: int, pos: int) -> ChangePlace:
    """Return the place in the log of the change whose event begins at `pos`."""
    file = transactions.names[transactions.file[number]]
    begun = f"{file}:{int(transactions.start[number])}"
    return ChangePlace(f"{file}:{pos}", begun, transactions.position(number), transactions.id(number))


def _located(data: Bytes, offsets: Int64s, by_row: RowPlaces, table: BinlogTable) -> ValuePlaces:
    from tailrace.connectors.binlog.log.decoder import located

    return located(data, offsets, table.form, by_row.image, by_row.images)


def key_hashes(
    data: Bytes, offsets: Int64s, by_row: RowPlaces, table: TableSchema, names: Sequence[str]
) -> tuple[row_kernels.UInt64s, Flags]:
    """Return a hash of each row's key, and a mask of the rows that move to another key. Raises DecodeError."""
    assert isinstance(table, BinlogTable)
    places = _located(data, offsets, by_row, table)
    rows = len(by_row.image)
    hashes, moved = np.empty(rows, np.uint64), np.zeros(rows, np.bool_)
    keys = frames.frozen(np.array([table.index(name) for name in names], np.int32), np.int32)
    row_kernels.hash_keys(frames.frozen(data, np.uint8), keys, rows, places, hashes, moved)
    return hashes, moved


def unchanged(data: Bytes, offsets: Int64s, by_row: RowPlaces, table: TableSchema, names: Sequence[str]) -> Flags:
    """Return a mask of the rows, all of updates, that change none of the columns `names`. Raises DecodeError."""
    assert isinstance(table, BinlogTable)
    places = _located(data, offsets, by_row, table)
    rows = len(by_row.image)
    same = np.zeros(rows, np.bool_)
    compared = frames.frozen(np.array(sorted({table.index(name) for name in names}), np.int32), np.int32)
    row_kernels.compare_images(frames.frozen(data, np.uint8), compared, rows, places, same)
    return same


# The ends of current rows: the greatest timestamps of MariaDB, with microseconds, and the greatest transaction id.
_HOLDING = (b"\x7f\xff\xff\xff\x0f\x42\x3f", b"\xff\xff\xff\xff\x0f\x42\x3f", b"\xff" * 8)


def current(data: Bytes, offsets: Int64s, by_row: RowPlaces, table: BinlogTable, column: int) -> tuple[Flags, Flags]:
    """Return masks of the rows of a system-versioned table that were current before the change, and after it.

    `column` has the end of a row's validity. An image that is missing or lacks the column counts as not current. Raises
    DecodeError.
    """
    places = _located(data, offsets, by_row, table)
    rows = len(by_row.image)
    part = slice(column * rows, (column + 1) * rows)

    def holds(starts: Int32s, lengths: Int32s) -> Flags:
        if not len(lengths):
            return np.zeros(rows, np.bool_)
        pairs = zip(starts[part].tolist(), lengths[part].tolist(), strict=True)
        return np.array([length > 0 and data[start : start + length].tobytes() in _HOLDING for start, length in pairs])

    return holds(places.old_starts, places.old_lengths), holds(places.starts, places.lengths)
