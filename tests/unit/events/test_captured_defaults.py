"""Column defaults of SQL Server and Db2: literals are shown, and defaults that only the server can compute are not.

Most expectations are the results of Debezium 3.6.1's own converters for the same definitions. They differ where those
are wrong: `''` inside a text is one quote, and a letter before a quoted text does not belong to it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.connectors.sqlserver.values.defaults import bare
from tailrace.values.json_text import dumps
from tests.unit.events.test_conversions import plan_of, settings

SQL_SERVER: list[tuple[str, int, str, Any]] = [
    ("bit", -1, "((1))", True),
    ("bit", -1, "((0))", False),
    ("bit", -1, "(CONVERT([bit],(1)))", False),
    ("tinyint", -1, "((255))", 255),
    ("smallint", -1, "((-5))", -5),
    ("int", -1, "((7))", 7),
    ("int", -1, "(NULL)", ABSENT),
    ("int", -1, "((1)+(1))", ABSENT),
    ("int", -1, "(NEXT VALUE FOR [dbo].[s])", ABSENT),
    ("int", -1, "('5')", ABSENT),
    ("bigint", -1, "((3147483648.))", 3147483648),
    ("decimal", 12 << 16 | 4, "((1.5))", "Opg="),
    ("decimal", 12 << 16 | 4, "((-1))", "2PA="),
    ("money", -1, "((922337203685477.58))", "f/////////g="),
    ("smallmoney", -1, "(($2.5))", ABSENT),
    ("float", 53, "((1.2345000000000000e+003))", "1234.5"),
    ("real", -1, "((0.1))", "0.1"),
    ("char", 5, "('a')", "a"),
    ("varchar", 50, "('it''s')", "it's"),
    ("varchar", 50, "('')", ""),
    ("varchar", 50, "(user_name())", ""),
    ("varchar", 50, "('(a)')", "(a)"),
    ("nvarchar", 50, "(N'eé')", "eé"),
    ("nvarchar", 50, "(newid())", ""),
    ("binary", 5, "(0x0102030405)", "AQIDBAU="),
    ("binary", 5, "((1))", ABSENT),
    ("uniqueidentifier", -1, "('76964DB8-33E3-42C6-B7A5-9D2C7D6D3A8A')", ABSENT),
    ("xml", -1, "('<a/>')", ABSENT),
    ("date", -1, "('2019-02-03')", 17930),
    ("date", -1, "('20190203')", 17930),
    ("date", -1, "('3 Feb 2019')", ABSENT),
    ("date", -1, "(getdate())", ABSENT),
    ("datetime", -1, "('2019-01-01T00:00:00')", 1546300800000),
    ("datetime2", 7, "('2019-01-01')", 1546300800000000000),
    ("time", 7, "('13:58:28.5')", 50308500000000),
    ("datetimeoffset", 7, "('2019-01-01 12:00 +02:00')", "2019-01-01T12:00:00+02:00"),
]
DB2: list[tuple[str, int, str, Any]] = [
    ("SMALLINT", -1, "5", 5),
    ("INTEGER", -1, "-7", -7),
    ("INTEGER", -1, "NULL", ABSENT),
    ("DECIMAL", 9 << 16 | 2, "1.5", "AJY="),
    ("DECIMAL", 9 << 16 | 2, "-1", "nA=="),
    ("REAL", -1, "0.1", "0.1"),
    ("DOUBLE", -1, "1.5E+3", "1500.0"),
    ("CHAR", 5, "'a'", "a    "),
    ("VARCHAR", 50, "'it''s'", "it's"),
    ("VARCHAR", 50, "''", ""),
    ("VARCHAR", 50, "USER", ABSENT),
    ("VARGRAPHIC", 50, "G'x'", "x"),
    ("CLOB", 50, "'x'", ABSENT),
    ("CHAR () FOR BIT DATA", 4, "X'00FF'", "AP8="),
    ("DATE", -1, "'2019-02-03'", 17930),
    ("TIME", -1, "'13.58.28'", 50308000),
    ("TIMESTAMP", 6, "'2019-05-27-13.58.28.123456'", 1558965508123456),
    ("TIMESTAMP", 3, "CURRENT TIMESTAMP", ABSENT),
    ("BOOLEAN", -1, "TRUE", True),
    ("BOOLEAN", -1, "FALSE", False),
]


@pytest.mark.parametrize(
    ("connector", "kind", "modifier", "definition", "value"),
    [("sqlserver", *one) for one in SQL_SERVER] + [("db2", *one) for one in DB2],
)
def test_a_default_is_shown_as_a_value_of_its_column(
    connector: str, kind: str, modifier: int, definition: str, value: Any
) -> None:
    for nullable in (True, False):
        plan = plan_of(connector, Column("c", kind, 0, modifier, nullable, definition), settings(connector))
        assert plan is not None
        default = plan.schema.default
        # Floating-point numbers as their text.
        assert (default if default == ABSENT else json.loads(dumps(default), parse_float=str)) == value
        assert plan.schema.optional is nullable


def test_the_first_form_of_sql_server_has_no_defaults() -> None:
    plan = plan_of("sqlserver", Column("c", "int", 56, default="((7))"), settings("sqlserver", "1.0"))
    assert plan is not None
    assert plan.schema.default == ABSENT
    assert plan.null == b"null"


def test_a_null_is_shown_as_the_default_unless_the_converter_keeps_it() -> None:
    column = Column("c", "int", 56, default="((7))")
    for kept, shown in ((False, b"null"), (True, b"7")):
        plan = plan_of("sqlserver", column, settings("sqlserver", replace_null_with_default=kept))
        assert plan is not None
        assert plan.null == shown


@pytest.mark.parametrize(
    ("definition", "inner"),
    [("((1))", "1"), ("(a)+(b)", "(a)+(b)"), ("('(')", "'('"), ("((a)+(b))", "(a)+(b)"), ("('it''s)')", "'it''s)'")],
)
def test_only_parentheses_around_all_of_it_are_taken_off(definition: str, inner: str) -> None:
    assert bare(definition) == inner
