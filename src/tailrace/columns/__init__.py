"""Changes and table schemas as columns, which every connector produces and every later stage reads."""

from tailrace.columns.batch import (
    Boundary,
    CapturedTransactions,
    ChangeBatch,
    Commits,
    Counts,
    Image,
    Marker,
    Transactions,
)
from tailrace.columns.row import COLUMNS, ROW_SCHEMA
from tailrace.columns.table import Column, TableId, TableSchema

__all__ = [
    "COLUMNS",
    "ROW_SCHEMA",
    "Boundary",
    "CapturedTransactions",
    "ChangeBatch",
    "Column",
    "Commits",
    "Counts",
    "Image",
    "Marker",
    "TableId",
    "TableSchema",
    "Transactions",
]
