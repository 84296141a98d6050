"""Handmade change batches of change tables, for the tests of events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, TableId, TableSchema
from tailrace.connectors.db2.values.conversions import FORM as DB2
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.unit.events.changes import Row, image

FORMS = {"sqlserver": SQL_SERVER, "db2": DB2}
COMMIT = bytes.fromhex("00000027000007580005")
CHANGE = bytes.fromhex("00000027000007580003")
AT_US = 1_559_729_468_470_123

Change = tuple[str, int, Row, Row]
"""An operation, its serial number, and the texts of the rows before and after it."""

CUSTOMERS = TableSchema(
    TableId("testDB", "dbo", "customers"),
    (
        Column("id", "int", 56, nullable=False, identity=True),
        Column("first_name", "varchar", 167, 255, nullable=False),
        Column("last_name", "varchar", 167, 255, nullable=False),
        Column("email", "varchar", 167, 255, nullable=False),
    ),
    ("id",),
)
DB2_CUSTOMERS = TableSchema(
    TableId("mydatabase", "MYSCHEMA", "CUSTOMERS"),
    (
        Column("ID", "INTEGER", 4, nullable=False, identity=True),
        Column("FIRST_NAME", "VARCHAR", 12, 255, nullable=False),
        Column("LAST_NAME", "VARCHAR", 12, 255, nullable=False),
        Column("EMAIL", "VARCHAR", 12, 255, nullable=False),
    ),
    ("ID",),
)
JOHN = ("1005", "john", "doe", "john.doe@example.org")
MOVED = ("1005", "john", "doe", "noreply@example.org")


def batch(
    table: TableSchema, changes: Sequence[Change], marker: Sequence[int] | None = None, **more: Any
) -> ChangeBatch:
    """Return the changes as one transaction, each at the same change LSN; snapshot rows have no LSN of their own."""
    count = len(changes)
    lsns = [None if op == "r" else CHANGE for op, _, _, _ in changes]
    return ChangeBatch(
        table,
        np.array([ord(op) for op, _, _, _ in changes], np.uint8),
        pa.array(lsns, pa.binary()),
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.int64),
        CapturedTransactions(pa.array([COMMIT], pa.binary()), np.full(1, AT_US, np.int64)),
        image(table, [before for _, _, before, _ in changes]),
        image(table, [after for _, _, _, after in changes]),
        None if marker is None else np.array(marker, np.uint8),
        serial=pa.array([serial or None for _, serial, _, _ in changes], pa.int64()),
        **more,
    )


def rows(part: ChangeBatch, settings: EventSettings) -> list[dict[str, Any]]:
    """Return the rows, with keys and values parsed."""
    found = [row for block in to_rows(part, settings, FORMS[settings.connector]) for row in block.to_pylist()]
    return [row | {name: row[name] and json.loads(row[name]) for name in ("key", "value")} for row in found]
