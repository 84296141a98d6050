"""PostgreSQL's part of the kit for logs of rows: rows are messages of pgoutput. Planner and tasks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.columns.batch import Bytes, ChangeBatch, Flags, Int32s, Int64s, Transactions
from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.postgres.log.form import FORM, place
from tailrace.connectors.postgres.protocol import pgoutput, scan
from tailrace.connectors.postgres.protocol.position import MixedSegment, RowPositions, Segment
from tailrace.errors import DecodeError
from tailrace.events.mapping import ChangePlace, SourceForm
from tailrace.log.rows.segment import RowRun

_UPDATE = ord("u")
# Types in which different texts are always different values of a key, each with a group of types with equal texts.
_KINDS = {16: "bool", 17: "bytes", 20: "whole", 21: "whole", 23: "whole", 26: "whole"}
_KINDS |= dict.fromkeys((19, 25, 1042, 1043, 2950), "text")
_NUMERIC, _EXACT_DIGITS = 1700, 15


@dataclass(frozen=True, slots=True)
class PostgresRowLog:
    """See RowLog. `xmin` is the slot's catalog xmin for source blocks; 0: none."""

    xmin: int = 0

    @property
    def form(self) -> SourceForm:
        return FORM

    def key_kind(self, column: Column, table: TableSchema) -> Hashable | None:
        """Return the group of a key column's type; None if different texts may be the same value in keys of events."""
        of = column.element if column.kind == "domain" and column.element is not None else column
        if of.kind == "enum":
            return "text"
        if of.type_oid == _NUMERIC and of.modifier > 0 and (of.modifier - 4) >> 16 <= _EXACT_DIGITS:
            # each text has the same number of digits after the point, and not too many for a double
            return _NUMERIC, of.modifier
        kind = _KINDS.get(of.type_oid)
        return None if kind == "text" and table.any_bytes else kind

    def key_hashes(
        self, run: RowRun[RowPositions, Transactions], rows: Int64s, table: TableSchema, names: Sequence[str]
    ) -> tuple[scan.UInt64s, Flags]:
        return scan.key_hashes(run.data, run.offsets, run.rows[rows], _indexes(table, names), len(table.columns))

    def last_changes(
        self, parts: Sequence[tuple[RowRun[RowPositions, Transactions], Int64s]], table: TableSchema, most: int
    ) -> list[Flags] | None:
        from tailrace.connectors.postgres.protocol import last_changes

        messages = [(run.data, run.offsets, run.rows[rows]) for run, rows in parts]
        return last_changes.standing(messages, _indexes(table, table.key), len(table.columns), most)

    def decode(self, segment: Segment) -> ChangeBatch:
        from tailrace.connectors.postgres.protocol.decoder import decode

        batch = decode(segment)
        batch.xmin = self.xmin or None
        return batch

    def decode_together(self, segment: MixedSegment, places: Int32s, bounds: Int64s, width: int) -> ChangeBatch | None:
        from tailrace.connectors.postgres.protocol.decoder import decode_together

        batch = decode_together(segment, places, bounds, width)
        if batch is not None:
            batch.xmin = self.xmin or None
        return batch

    def check(self, segment: Segment, row: int) -> None:
        pgoutput.parse_change(segment, row)

    def place(self, segment: Segment, row: int) -> ChangePlace:
        by_row = segment.by_row
        return place(segment.transactions, int(by_row.transaction[row]), int(by_row.lsn[row]))


def _indexes(table: TableSchema, names: Sequence[str]) -> Int32s:
    return np.array([table.index(name) for name in names], np.int32)


def key_changes(
    data: Bytes, offsets: Int64s, messages: Int64s, op: Bytes, version: Int32s, versions: Sequence[TableSchema]
) -> Int64s:
    """Return the indexes of the messages that are updates of the key, which become a delete and a create."""
    found = [np.empty(0, np.int64)]
    for number in np.unique(version[op == _UPDATE]):
        table = versions[int(number)]
        if not table.key:
            continue
        rows = np.flatnonzero((op == _UPDATE) & (version == number))
        indexes = _indexes(table, table.key)
        _, moved = scan.key_hashes(data, offsets, messages[rows], indexes, len(table.columns))
        candidates = [int(row) for row in rows[moved]]
        changed = [row for row in candidates if _key_differs(data, offsets, int(messages[row]), indexes)]
        found.append(np.array(changed, np.int64))
    return np.concatenate(found)


def _key_differs(data: Bytes, offsets: Int64s, message: int, indexes: Int32s) -> bool:
    update = pgoutput.parse(bytes(data[offsets[message] : offsets[message + 1]]))
    if not isinstance(update, pgoutput.Update):
        raise DecodeError("an update was expected", int(offsets[message]))
    if update.old is None:
        return False
    return any(
        update.new[index] is not pgoutput.UNAVAILABLE and update.old[index] != update.new[index] for index in indexes
    )
