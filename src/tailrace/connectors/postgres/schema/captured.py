"""The captured tables, as the catalog lists them. Planner and driver."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.columns.table import TableId
from tailrace.config import TableFilter

CapturedTable = tuple[int, TableId, str]


def captured_tables(tables: Sequence[CapturedTable], lists: TableFilter) -> list[CapturedTable]:
    """Return the tables that the include and exclude lists leave, ordered by name."""
    return [entry for entry in tables if lists.includes(entry[1].schema, entry[1].table)]
