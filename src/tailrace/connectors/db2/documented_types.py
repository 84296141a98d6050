"""The types of Db2 in the reference of typed rows, as columns. No I/O."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.db2.values.conversions import FORM
from tailrace.connectors.db2.values.declaration import modifier

__all__ = ["FORM", "LISTED"]


def _base(name: str, size: int | None = None, digits: int | None = None) -> Column:
    return Column("v", name, 0, modifier(name, size, digits))


LISTED: tuple[tuple[str, Column], ...] = (
    ("BOOLEAN", _base("BOOLEAN")),
    ("SMALLINT", _base("SMALLINT")),
    ("INTEGER", _base("INTEGER")),
    ("BIGINT", _base("BIGINT")),
    ("REAL", _base("REAL")),
    ("DOUBLE, FLOAT", _base("DOUBLE")),
    ("DECIMAL(12, 2), NUMERIC(12, 2)", _base("DECIMAL", 12, 2)),
    ("DECFLOAT", _base("DECFLOAT", 34)),
    ("CHAR, VARCHAR, CLOB, GRAPHIC, VARGRAPHIC, DBCLOB", _base("VARCHAR", 9)),
    ("XML", _base("XML")),
    ("BINARY, VARBINARY, BLOB, and texts FOR BIT DATA", _base("BLOB", 9)),
    ("DATE", _base("DATE")),
    ("TIME", _base("TIME")),
    ("TIMESTAMP(0–3)", _base("TIMESTAMP", None, 3)),
    ("TIMESTAMP(4–6)", _base("TIMESTAMP", None, 6)),
    ("TIMESTAMP(7–12)", _base("TIMESTAMP", None, 12)),
    ("TIMESTAMP WITH TIME ZONE", _base("TIMESTAMP WITH TIME ZONE", None, 6)),
)
"""The name of a type on the reference page, and a column of the type."""
