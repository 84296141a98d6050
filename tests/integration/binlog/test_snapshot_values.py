"""Values of every type are the same in a snapshot and in the log, but for those that Debezium shows otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven

COLUMNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("ti", "tinyint", ("-128", "127")),
    ("tu", "tinyint unsigned", ("255", "0")),
    ("si", "smallint", ("-32768", "32767")),
    ("mi", "mediumint unsigned", ("16777215", "1")),
    ("i", "int(5) zerofill", ("42", "0")),
    ("bi", "bigint", ("-9223372036854775808", "9223372036854775807")),
    ("bu", "bigint unsigned", ("9223372036854775807", "7")),
    ("d", "decimal(20,5)", ("-1234567890.12345", "0")),
    ("dz", "decimal(8,2) zerofill", ("1.5", "0")),
    ("db", "double", ("1e-7", "1.7976931348623157e308")),
    ("dm", "double(10,3)", ("1234.5", "-0.5")),
    ("b1", "bit(1)", ("b'1'", "b'0'")),
    ("b9", "bit(9)", ("b'100000001'", "b'11'")),
    ("y", "year", ("2024", "1901")),
    ("da", "date", ("'2024-02-29'", "'1000-01-01'")),
    ("t", "time(3)", ("'-838:59:58.120'", "'00:00:00.001'")),
    ("dt", "datetime(6)", ("'2024-02-29 23:59:59.000001'", "'1000-01-01 00:00:00'")),
    ("g", "point", ("point(1, 2)", "point(-1.5, 0)")),
    ("ch", "char(5)", ("'ä  '", "''")),
    ("vl", "varchar(9) character set latin1", ("'éß€'", "' x '")),
    ("vu", "varchar(9) character set utf16", ("'a😀'", "'b'")),
    ("vs", "varchar(9) character set sjis", ("'あいう'", "'x'")),
    ("tx", "mediumtext", ("repeat('x', 70000)", "'\\\\ \"'")),
    ("bn", "binary(5)", ("x'00ff00'", "''")),
    ("vb", "varbinary(5)", ("x'00ff00'", "''")),
    ("bl", "blob", ("repeat(x'ff00', 300)", "x''")),
    ("e", "enum('a','b c','it''s') character set latin1", ("'it''s'", "2")),
    ("s", "set('x','y','z')", ("'z,x'", "''")),
    ("ts", "timestamp(3) null", ("'2024-02-29 01:02:03.125'", "'2038-01-19 03:14:07.999'")),
)


def afters(database: MySqlDatabase, **options: str) -> list[dict[str, Any]]:
    """Return the rows as the snapshot shows them, and then as the log does."""
    names = ", ".join(name for name, _, _ in COLUMNS)
    listed = ", ".join(f"{name} {of}" for name, of, _ in COLUMNS)
    rows = [", ".join(values[place] for _, _, values in COLUMNS) for place in range(2)]
    nulls = ", ".join("null" for _ in COLUMNS)
    database.execute(f"create table t (id int primary key auto_increment, {listed})")
    insert = f"insert into t ({names}) values " + ", ".join(f"({row})" for row in (*rows, nulls))
    database.execute("set sql_mode = ''", insert)
    with driven(database, **options) as query:
        query.until(lambda: len(query.of("t")) >= 3)
        database.execute("set sql_mode = ''", insert)
        query.until(lambda: len(query.of("t")) >= 6)
    found = [row["value"]["after"] for row in query.of("t")]
    for row in found:
        del row["id"]
    return found


@pytest.mark.parametrize("mode", ["adaptive_time_microseconds", "isostring", "connect"])
def test_snapshot_and_log_show_the_same_values(any_binlog_database: MySqlDatabase, mode: str) -> None:
    options = {"binary_handling_mode": "hex"} if mode == "isostring" else {}
    if mode == "connect":
        options["event_converting_failure_handling_mode"] = "skip"
    found = afters(any_binlog_database, time_precision_mode=mode, **options)

    assert found[:3] == found[3:]
    assert all(value is None for value in found[2].values())
