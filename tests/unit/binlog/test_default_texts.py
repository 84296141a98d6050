"""Values of rows that are older than a column: its default, or the server's zero of its type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.connectors.binlog.dialect import MARIADB, MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.default_texts import older_text
from tailrace.connectors.binlog.schema.definition import IMPLICIT, NOTHING, UNKNOWN, ColumnDefinition


def column(declared: str) -> ColumnDefinition:
    dialect = MARIADB if declared.startswith(("inet", "uuid")) else MYSQL
    return catalog.definition(
        f"CREATE TABLE `t` (`c` {declared}) DEFAULT CHARSET=utf8mb4", ("d", "t"), dialect
    ).columns[0]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("int", "0"),
        ("decimal(5,2)", "0"),
        ("year", "0000"),
        ("varchar(3)", ""),
        ("enum('b','a')", "b"),
        ("set('a')", ""),
        ("bit(12)", "\\x0000"),
        ("binary(2)", "\\x0000"),
        ("varbinary(2)", "\\x"),
        ("date", "0000-00-00"),
        ("datetime(3)", "0000-00-00 00:00:00"),
        ("inet6", "::"),
    ],
)
def test_a_required_column_without_a_default_has_the_zero_of_its_type(declared: str, expected: str) -> None:
    assert older_text(replace(column(f"{declared} not null"), older=IMPLICIT)) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("int default '1.5'", "2"),
        ("int default 2.5", "3"),
        ("int default -2.5", "-3"),
        ("int default .5", "1"),
        ("decimal(5,1) default 1.25", "1.3"),
        ("decimal(10,2) default -0.005", "-0.01"),
        ("decimal(5,2) default 1e1", "10.00"),
        (
            "decimal(65,29) default '12345678901234567890123456789012345.123456789012345678901234567895'",
            "12345678901234567890123456789012345.12345678901234567890123456790",
        ),
        ("enum('a','b') default 'B'", "b"),
        ("enum('a','A') character set utf8mb4 default 'A'", "A"),
        ("set('a','b','c') default 'C,a'", "a,c"),
        ("set('a','b') default ''", ""),
        ("uuid default '123E4567-E89B-12D3-A456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
        ("year default 0", "0000"),
        ("date default 0", "0000-00-00"),
        ("datetime default 0", "0000-00-00 00:00:00"),
        ("datetime(3) default '2024-02-29 03:04:05.1200'", "2024-02-29 03:04:05.1200"),
        ("varchar(9) default 12.50", "12.50"),
        ("int default 0x0a", "10"),
        ("int default b'101'", "5"),
        ("int default true", "1"),
        ("bit(4) default 5", "\\x05"),
        ("bit(12) default b'1'", "\\x0001"),
        ("binary(3) default 'a'", "\\x610000"),
        ("varchar(3) default 0x6162", "ab"),
        ("varchar(3) default b'1100001'", "a"),
        ("char(3) default 'a '", "a"),
        ("year default 70", "1970"),
        ("year default '00'", "2000"),
        ("time default '1 2:3'", "26:03:00"),
        ("time(2) default '-01:02:03.5'", "-01:02:03.5"),
        ("date default '70-1-2'", "1970-01-02"),
        ("datetime default '2024-02-29T03:04:05'", "2024-02-29 03:04:05"),
        ("datetime default '2024-2-9'", "2024-02-09 00:00:00"),
        # the zone of the session that added the column is not known
        ("timestamp default '2024-02-29 03:04:05'", None),
        ("datetime default now()", None),
        ("int default (1 + 2)", None),
        ("int default null", None),
        # the servers write these in their own ways, or round them in different ways
        ("varchar(9) default 1e3", None),
        ("varchar(9) default 007", None),
        ("varchar(9) default _latin1 x'e9'", None),
        ("date default 20240229", None),
        ("time default 12", None),
        ("time default '10:11:12.6'", None),
        ("datetime default '2024-12-31 23:59:59.9'", None),
    ],
)
def test_older_rows_have_the_default_as_the_server_prints_it(declared: str, expected: str | None) -> None:
    found = column(declared)
    assert found.default is not None
    assert older_text(replace(found, older=found.default)) == expected


def test_a_value_that_is_not_known_is_none() -> None:
    for older in (UNKNOWN, NOTHING):
        assert older_text(replace(column("int"), older=older)) is None
