"""The connector's part of events: the conversions of its types, and its changes as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, Image, TableId, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.events import column_plans
from tailrace.events.captured import CapturedForm
from tailrace.events.column_plans import Types
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion

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


_TYPES = Types(_conversion, lambda column, conversion, settings: ABSENT, lambda column: column.nullable, _Declared())

FORM = CapturedForm(_TYPES, _TYPES.declared, serial=False)


def change_batch(table: TableId, changes: Sequence[tuple[int, dict[str, Any]]]) -> ChangeBatch:
    """Return the changes of one table as columns. Each is a transaction of its own, committed at its position."""
    lsns = pa.array([position.to_bytes(8, "big") for position, _ in changes], pa.binary())
    at_us = np.array([change["at_us"] for _, change in changes], np.int64)
    return ChangeBatch(
        TableSchema(table, _COLUMNS, ("id",)),
        np.frombuffer("".join(change["op"] for _, change in changes).encode(), np.uint8),
        lsns,
        np.arange(len(changes), dtype=np.int32),
        np.ones(len(changes), np.int64),
        CapturedTransactions(lsns, at_us),
        _image([change["before"] for _, change in changes]),
        _image([change["after"] for _, change in changes]),
    )


def _image(rows: Sequence[dict[str, Any] | None]) -> Image:
    """Return rows as columns of text; a row may be None."""
    present = np.array([row is not None for row in rows])
    texts = [[None if row is None or row[one.name] is None else str(row[one.name]) for row in rows] for one in _COLUMNS]
    columns = [pa.array([None if text is None else text.encode() for text in column], pa.binary()) for column in texts]
    return Image(present, columns, [None] * len(columns))
