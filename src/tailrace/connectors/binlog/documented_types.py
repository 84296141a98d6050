"""The types of MySQL and MariaDB in the reference of typed rows, as columns. No I/O."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.log.form import form_of

FORM = form_of(MYSQL)


def _base(name: str) -> Column:
    return Column("v", name, 0)


LISTED: tuple[tuple[str, Column], ...] = (
    ("tinyint, smallint; tinyint unsigned", _base("smallint")),
    ("mediumint, int; smallint and mediumint unsigned", _base("int")),
    ("bigint; int unsigned", _base("bigint")),
    ("bigint unsigned", _base("bigint unsigned")),
    ("float", _base("float")),
    ("double, float(7, 4)", _base("double")),
    ("decimal(12, 2); other precisions up to 38 alike", _base("decimal(12,2)")),
    ("decimal(50, 3); other precisions above 38 alike", _base("decimal(50,3)")),
    ("bit(1)", _base("bit(1)")),
    ("bit(9); other lengths alike", _base("bit(9)")),
    ("char, varchar, tinytext, text, mediumtext, longtext", _base("varchar(9)")),
    ("enum", Column("v", "enum", 0, kind="enum", enum_labels=("new", "paid"))),
    ("set", Column("v", "set", 0, enum_labels=("new", "paid"))),
    ("json", _base("json")),
    ("uuid, inet4, inet6 (MariaDB)", _base("uuid")),
    ("binary, varbinary, tinyblob, blob, mediumblob, longblob", _base("varbinary(9)")),
    ("year", _base("year")),
    ("date", _base("date")),
    ("time", _base("time(6)")),
    ("datetime", _base("datetime(6)")),
    ("timestamp", _base("timestamp(6)")),
    ("point", _base("point")),
    ("geometry, linestring, polygon and collections of these", _base("geometry")),
    ("vector", _base("vector(3)")),
)
"""The names of types on the page, each with a column of this type."""
