"""The types of SQL Server in the reference of typed rows, as columns. No I/O."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.sqlserver.values.conversions import FORM
from tailrace.connectors.sqlserver.values.declaration import modifier

__all__ = ["FORM", "LISTED"]


def _base(name: str, modifier: int = -1) -> Column:
    return Column("v", name, 0, modifier)


LISTED: tuple[tuple[str, Column], ...] = (
    ("bit", _base("bit")),
    ("tinyint, smallint", _base("tinyint")),
    ("int", _base("int")),
    ("bigint", _base("bigint")),
    ("real", _base("real")),
    ("float", _base("float")),
    ("decimal(12, 2), numeric(12, 2)", _base("decimal", modifier("decimal", 0, 12, 2))),
    ("money", _base("money")),
    ("smallmoney", _base("smallmoney")),
    ("char, varchar, text, nchar, nvarchar, ntext", _base("varchar")),
    ("uniqueidentifier", _base("uniqueidentifier")),
    ("xml", _base("xml")),
    ("binary, varbinary, image, rowversion", _base("varbinary")),
    ("hierarchyid, geometry, geography", _base("geometry")),
    ("date", _base("date")),
    ("time(0–3)", _base("time", 3)),
    ("time(4–6)", _base("time", 6)),
    ("time(7)", _base("time", 7)),
    ("datetime, smalldatetime, datetime2(0–3)", _base("datetime")),
    ("datetime2(4–6)", _base("datetime2", 6)),
    ("datetime2(7)", _base("datetime2", 7)),
    ("datetimeoffset", _base("datetimeoffset", 7)),
)
"""The name of a type on the reference page, and a column of the type."""
