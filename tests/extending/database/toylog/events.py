"""The connector's part of events: the conversions of its types, and the task that makes columns of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, Image, Marker, TableId, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.events import column_plans
from tailrace.events.captured_form import CapturedForm
from tailrace.events.column_plans import Types
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.values.conversion import Conversion
from toylog.database import Change, Row

_COLUMNS = (Column("id", "number", 4, nullable=False), Column("item", "text", 12))


class _Declared:
    """The declarations of types, for masks and for the parameters of schemas."""

    def is_text(self, column: Column) -> bool:
        return column.type_name == "text"

    def jdbc_type(self, column: Column) -> int:
        return column.type_oid

    def type_name(self, column: Column) -> str:
        return column.type_name

    def length(self, column: Column) -> int:
        return 100

    def scale(self, column: Column) -> int | None:
        return None

    def parameters(self, column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
        return (("__debezium.source.column.type", column.type_name.upper()),)


def _conversion(column: Column, settings: EventSettings) -> Conversion | None:
    return column_plans.integer(32) if column.type_name == "number" else column_plans.text(settings)


_DECLARED = _Declared()
_TYPES = Types(_conversion, lambda column, conversion, settings: ABSENT, lambda column: column.nullable, _DECLARED)
_FORM = CapturedForm(_TYPES, _DECLARED, serial=False)


@dataclass(frozen=True)
class ChangesTask:
    """A task with changes of one table, or with the rows of a snapshot, numbered from `first` on. Worker.

    Each change is a transaction of its own, committed at its position.
    """

    table: str
    changes: Sequence[Change]
    settings: EventSettings
    marker: Marker = Marker.FALSE
    first: int = 1

    def read(self) -> Iterator[pa.RecordBatch]:
        lsns = pa.array([position.to_bytes(8, "big") for position, _ in self.changes], pa.binary())
        rows, count = [row for _, row in self.changes], len(self.changes)
        markers = np.full(count, self.marker, np.uint8)
        markers[:-1] = Marker.TRUE if self.marker == Marker.LAST else self.marker
        batch = ChangeBatch(
            TableSchema(TableId("", "log", self.table), _COLUMNS, ("id",)),
            np.frombuffer("".join(row["op"] for row in rows).encode(), np.uint8),
            lsns,
            np.arange(count, dtype=np.int32),
            self.first + np.arange(count) * (self.marker != Marker.FALSE),
            CapturedTransactions(lsns, np.array([row["at_us"] for row in rows], np.int64)),
            _image([row["before"] for row in rows]),
            _image([row["after"] for row in rows]),
            markers,
        )
        return to_rows(batch, self.settings, _FORM)


def _image(rows: Sequence[Row | None]) -> Image:
    """Return rows as columns of text; a row may be None."""
    columns = []
    for column in _COLUMNS:
        values = (None if row is None else row[column.name] for row in rows)
        columns.append(pa.array([None if value is None else str(value).encode() for value in values], pa.binary()))
    return Image(np.array([row is not None for row in rows]), columns, [None] * len(columns))
