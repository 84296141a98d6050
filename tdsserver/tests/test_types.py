"""Every type of SQL Server, stored and read back by several clients, as literals and as parameters."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import pytest

from tdsserver.process import TestDatabase, rows_of
from tdsserver.tests.test_drivers import DRIVERS, Connect, with_mssql_python, with_pytds

GUID = "0E984725-C51C-4BF4-9960-E1C80E27ABA0"
ZONED = dt.datetime(2018, 7, 13, 12, 23, 45, 123456, dt.timezone(dt.timedelta(hours=-5, minutes=-30)))
# For each type: its name, a literal, the value, and its text by CONVERT's style 121 (None: not compared).
TYPES: list[tuple[str, str, object, str | None]] = [
    ("bit", "1", True, "1"),
    ("tinyint", "255", 255, "255"),
    ("smallint", "-32768", -32768, "-32768"),
    ("int", "-2147483648", -2147483648, "-2147483648"),
    ("bigint", "9223372036854775807", 2**63 - 1, "9223372036854775807"),
    ("decimal(5, 2)", "-123.45", decimal.Decimal("-123.45"), "-123.45"),
    ("numeric(18, 0)", "999999999999999999", decimal.Decimal("999999999999999999"), "999999999999999999"),
    (
        "decimal(38, 10)",
        "1234567890123456789012345678.0123456789",
        decimal.Decimal("1234567890123456789012345678.0123456789"),
        "1234567890123456789012345678.0123456789",
    ),
    ("money", "922337203685477.5807", decimal.Decimal("922337203685477.5807"), None),
    ("smallmoney", "-214748.3648", decimal.Decimal("-214748.3648"), None),
    ("float", "1.25e-10", 1.25e-10, None),
    ("real", "3.5", 3.5, "3.5"),
    ("char(5)", "'ab'", "ab   ", "ab   "),
    ("varchar(20)", "'ža'", "ža", "ža"),
    ("varchar(max)", f"'{'x' * 9000}'", "x" * 9000, None),
    ("text", "'text'", "text", None),
    ("nchar(4)", "N'日本'", "日本  ", None),
    ("nvarchar(20)", "N'Ane ž 😀'", "Ane ž 😀", None),
    ("nvarchar(max)", f"N'{'日' * 5000}'", "日" * 5000, None),
    ("ntext", "N'ntext 日'", "ntext 日", None),
    ("xml", "N'<a b=\"1\">ž</a>'", '<a b="1">ž</a>', None),
    ("binary(4)", "0x01ff", b"\x01\xff\0\0", None),
    ("varbinary(20)", "0x00ff7f", b"\x00\xff\x7f", None),
    ("varbinary(max)", "0x" + "ab" * 9000, b"\xab" * 9000, None),
    ("image", "0x0a", b"\n", None),
    (
        "uniqueidentifier",
        "'0E984725-C51C-4BF4-9960-E1C80E27ABA0'",
        uuid.UUID("0e984725-c51c-4bf4-9960-e1c80e27aba0"),
        None,
    ),
    ("date", "'0001-01-01'", dt.date(1, 1, 1), "0001-01-01"),
    ("datetime", "'2018-07-13 11:23:45.456'", dt.datetime(2018, 7, 13, 11, 23, 45, 457000), "2018-07-13 11:23:45.457"),
    ("smalldatetime", "'2018-07-13 11:23:45'", dt.datetime(2018, 7, 13, 11, 24), "2018-07-13 11:24:00"),
    ("datetime2(0)", "'2018-07-13 10:23:45.5'", dt.datetime(2018, 7, 13, 10, 23, 46), "2018-07-13 10:23:46"),
    ("datetime2(6)", "'9999-12-31 23:59:59.999999'", dt.datetime.max, "9999-12-31 23:59:59.999999"),
    ("time(3)", "'10:23:45.1235'", dt.time(10, 23, 45, 124000), "10:23:45.124"),
    ("time(6)", "'23:59:59.999999'", dt.time(23, 59, 59, 999999), "23:59:59.999999"),
    ("datetimeoffset(6)", "'2018-07-13 12:23:45.123456 -05:30'", ZONED, "2018-07-13 12:23:45.123456 -05:30"),
]


def same(connect: Connect, declared: str, value: object, wanted: object) -> bool:
    """Return True if a client's value equals the stored value, in any Python type."""
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    if isinstance(value, str) and isinstance(wanted, uuid.UUID):
        value = uuid.UUID(value)
    if isinstance(value, dt.datetime) and isinstance(wanted, dt.date) and not isinstance(wanted, dt.datetime):
        value = value.date()
    return bool(value == wanted)


@pytest.mark.parametrize("connect", DRIVERS)
def test_every_type_is_read_as_it_was_stored(connect: Connect, sqlserver_database: TestDatabase) -> None:
    columns = ", ".join(f"c{n} {declared}" for n, (declared, _, _, _) in enumerate(TYPES))
    sqlserver_database.execute(f"CREATE TABLE t (id int NOT NULL PRIMARY KEY, {columns})")
    literals = ", ".join(literal for _, literal, _, _ in TYPES)
    sqlserver_database.execute(f"INSERT INTO t VALUES (1, {literals})", "INSERT INTO t (id) VALUES (2)")
    connection = connect(sqlserver_database)
    try:
        full, empty = rows_of(connection.cursor(), "SELECT * FROM t ORDER BY id")
    finally:
        connection.close()
    wrong = [
        (declared, value, wanted)
        for (declared, _, wanted, _), value in zip(TYPES, full[1:], strict=True)
        if not same(connect, declared, value, wanted)
    ]
    assert wrong == []
    assert empty == (2, *[None] * len(TYPES))


@pytest.mark.parametrize(("declared", "literal", "text"), [(d, s, t) for d, s, _, t in TYPES if t is not None])
def test_types_become_text(declared: str, literal: str, text: str, sqlserver_database: TestDatabase) -> None:
    # "CAST and CONVERT (Transact-SQL)", style 121: ODBC canonical.
    sqlserver_database.execute(f"CREATE TABLE t (v {declared})", f"INSERT INTO t VALUES ({literal})")
    assert sqlserver_database.query("SELECT CONVERT(varchar(50), v, 121) FROM t") == [(text,)]


PARAMETERS: list[Any] = [
    7,
    -(2**40),
    "text ž 日",
    decimal.Decimal("-12.500"),
    1.5,
    dt.date(2020, 2, 29),
    dt.datetime(2020, 2, 29, 1, 2, 3, 456000),
    None,
]


@pytest.mark.parametrize("connect", [with_pytds, with_mssql_python])
@pytest.mark.parametrize("value", PARAMETERS, ids=str)
def test_parameters_come_back(connect: Connect, value: object, sqlserver_database: TestDatabase) -> None:
    mark = "?" if connect is with_mssql_python else "%s"
    connection = connect(sqlserver_database)
    try:
        found = rows_of(connection.cursor(), f"SELECT {mark}", [value])
    finally:
        connection.close()
    assert found == [(value,)]


def test_bytes_are_a_parameter(sqlserver_database: TestDatabase) -> None:
    connection = with_mssql_python(sqlserver_database)
    try:
        found = rows_of(connection.cursor(), "SELECT sys.fn_cdc_increment_lsn(?)", [bytes(9) + b"\x07"])
    finally:
        connection.close()
    assert bytes(found[0][0]) == bytes(9) + b"\x08"


def test_a_rowversion_grows(sqlserver_database: TestDatabase) -> None:
    # "rowversion (Transact-SQL)": the counter of the database rises with every insert and update.
    database = sqlserver_database
    database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, v rowversion)")
    database.execute("INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id) VALUES (2)")
    first, second = (bytes(row[0]) for row in database.query("SELECT v FROM t ORDER BY id"))
    database.execute("UPDATE t SET a = 1 WHERE id = 1")
    third = bytes(database.query("SELECT v FROM t WHERE id = 1")[0][0])
    assert first < second < third


def test_all_seven_digits_are_kept(sqlserver_database: TestDatabase) -> None:
    # "datetime2", "time", "datetimeoffset": 100 ns.
    database = sqlserver_database
    values = ("1969-12-31 23:59:59.9999999", "23:59:59.9999999", "2020-01-01 00:00:00.1234567 +14:00")
    literals = ", ".join(f"'{value}'" for value in values)
    database.execute("CREATE TABLE t (a datetime2, b time, c datetimeoffset)", f"INSERT INTO t VALUES ({literals})")
    shown = ", ".join(f"CONVERT(varchar(40), {name}, 121)" for name in "abc")
    assert database.query(f"SELECT {shown} FROM t") == [values]


def test_identifiers_sort_by_their_last_bytes_first(sqlserver_database: TestDatabase) -> None:
    # "Comparing GUID and uniqueidentifier values": the last six bytes count most.
    database = sqlserver_database
    database.execute("CREATE TABLE t (v uniqueidentifier)")
    database.execute(
        "INSERT INTO t VALUES ('FFFFFFFF-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000001')"
    )
    assert [str(row[0])[:2] for row in database.query("SELECT v FROM t ORDER BY v")] == ["ff", "00"]
