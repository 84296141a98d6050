"""The way of a change: the modules that one UPDATE of PostgreSQL enters between the spool and its JSON bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import tailrace
from tailrace.columns import Column, TableId, TableSchema, Transactions
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.position import RowPositions, Segment
from tailrace.log.rows.tasks import LogTask
from tests.event_settings import event_settings

PRODUCT = Path(tailrace.__file__).parent
OID = 16_400
UPDATE = b"U" + OID.to_bytes(4) + b"N\0\x02t\0\0\0\x017t\0\0\0\x01x"
"""An UPDATE as pgoutput sends it: the new row (7, x), and no old one."""


def task() -> LogTask:
    """Return the task of a batch that holds one UPDATE."""
    columns = (Column("id", "int4", 23, nullable=False), Column("v", "text", 25))
    table = TableSchema(TableId("house", "public", "t"), columns, ("id",), oid=OID)
    one = np.zeros(1, np.int64)
    transactions = Transactions(*(np.array([value], np.int64) for value in (700, 6100, 1_795_222_827_639_575, -1)))
    segment = Segment(
        table,
        np.frombuffer(UPDATE, np.uint8),
        np.array([0, len(UPDATE)], np.int64),
        RowPositions(transaction=np.zeros(1, np.int32), ordinal=one, lsn=one + 6000),
        transactions,
    )
    return LogTask((segment,), event_settings("server", "house", run_id="run"), PostgresRowLog())


def entered() -> list[str]:
    """Return the modules of the product whose functions run while a task makes its first row, without their root.

    Work that is done once for a table counts; code that an import runs does not. Functions that are compiled to machine
    code are not seen.
    """
    found: set[str] = set()
    given = task()

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and not _is_imported(frame):
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PRODUCT):
                found.add(".".join(path.relative_to(PRODUCT).with_suffix("").parts))

    sys.setprofile(seen)
    try:
        rows = [row for batch in given.read() for row in batch.to_pylist()]
    finally:
        sys.setprofile(None)
    assert [row["op"] for row in rows] == ["u"]
    return sorted(found)


def _is_imported(frame: FrameType | None) -> bool:
    """Return True if an import runs the frame."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False
