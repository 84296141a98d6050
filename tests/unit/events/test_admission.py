"""Keys that a copy cannot distinguish are refused before its first row."""

from __future__ import annotations

import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.typed import TypedRows
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.db2.values.conversions import FORM as OF_DB2
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.values.conversions import FORM as CAPTURED
from tailrace.errors import ConfigError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tests.event_settings import event_settings

NUMERIC = Column("id", "numeric", 1700, (12 << 16 | 2) + 4, nullable=False)
TIMESTAMP = Column("id", "timestamp", 1114, nullable=False)
TEXT = Column("id", "text", 25, nullable=False)

DOMAIN = Column("id", "price", 20_000, nullable=False, kind="domain", element=NUMERIC)


def admit(column: Column, copies: bool = True, and_column: Column | None = None, **options: str) -> None:
    named = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
    blocks = {"row.blocks": "last"} if copies else {}
    login = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    config = parse("postgres", login | blocks | named)
    columns = (column,) if and_column is None else (column, and_column)
    Admission(EventSettings.from_options(config), FORM).admit(TableSchema(TableId("d", "s", "t"), columns, ("id",)))


@pytest.mark.parametrize(
    ("column", "options", "why"),
    [
        (NUMERIC, {"decimal_handling_mode": "double"}, "is shown as a double"),
        (TIMESTAMP, {"time_precision_mode": "connect"}, "has 6 digits of a second, of which 3 are shown"),
        (DOMAIN, {"decimal_handling_mode": "double"}, "is shown as a double"),
        (Column("id", "varbit", 1562), {}, "is a bit varying"),
        (Column("id", "timetz", 1266), {}, "is a time with a zone"),
        (Column("id", "interval", 1186), {}, "is an interval"),
        (TEXT, {"column_truncate_to_3_chars": "s.t.id"}, "is cut or masked"),
        (TEXT, {"column_mask_with_3_chars": "s.t.id"}, "is cut or masked"),
    ],
)
def test_a_key_that_may_merge_two_rows_is_refused(column: Column, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        admit(column, **options)
    assert "s.t" in caught.value.message
    assert caught.value.remedy
    # Events are Debezium's.
    admit(column, copies=False, **options)


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (NUMERIC, {"decimal_handling_mode": "string"}),
        (Column("id", "interval", 1186), {"interval_handling_mode": "string"}),
        (NUMERIC, {}),
        (TIMESTAMP, {}),
        (Column("id", "timestamp", 1114, 3, nullable=False), {"time_precision_mode": "connect"}),
        (TEXT, {"column_mask_hash_SHA-256_with_salt_x": "s.t.id"}),
        (TEXT, {"column_truncate_to_3_chars": "s.t.other"}),
    ],
)
def test_a_key_that_tells_rows_apart_is_taken(column: Column, options: dict[str, str]) -> None:
    admit(column, **options)


@pytest.mark.parametrize(
    ("kind", "digits", "is_refused"),
    [
        ("datetime2", 7, True),
        ("datetime2", 6, False),
        ("time", 7, True),
        ("datetimeoffset", 7, True),
        ("time", 3, False),
    ],
)
def test_a_tenth_of_a_microsecond_is_no_part_of_a_key(kind: str, digits: int, is_refused: bool) -> None:
    """SQL Server has tenths of a microsecond, and tables do not."""
    column = Column("id", kind, 42, digits, nullable=False)
    table = TableSchema(TableId("d", "dbo", "t"), (column,), ("id",))
    admission = Admission(event_settings("p", "d", "sqlserver", blocks="last"), CAPTURED)
    if not is_refused:
        admission.admit(table)
        return
    with pytest.raises(ConfigError, match="has 7 digits of a second, of which 6 are shown"):
        admission.admit(table)


@pytest.mark.parametrize(
    ("kind", "options", "is_refused"),
    [
        ("datetime(6)", {"time.precision.mode": "connect"}, True),
        ("datetime", {"time.precision.mode": "connect"}, False),
        ("datetime(6)", {}, False),
        ("time(6)", {"time.precision.mode": "connect"}, True),
        ("time", {"time.precision.mode": "connect"}, False),
        ("decimal(12,2) unsigned", {"decimal.handling.mode": "double"}, True),
        ("decimal(12,2)", {}, False),
        ("timestamp(6)", {"time.precision.mode": "connect"}, False),
    ],
)
def test_types_that_have_their_length_in_the_name(kind: str, options: dict[str, str], is_refused: bool) -> None:
    login = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p", "database.server.id": "1"}
    config = parse("mysql", login | {"row.blocks": "last"} | options)
    table = TableSchema(TableId("d", "s", "t"), (Column("id", kind, 0, nullable=False),), ("id",))
    admission = Admission(EventSettings.from_options(config), form_of(MYSQL))
    if not is_refused:
        admission.admit(table)
        return
    with pytest.raises(ConfigError, match=r"Two keys of s\.t may become one"):
        admission.admit(table)


def test_a_time_without_a_fraction_is_a_key(caplog: pytest.LogCaptureFixture) -> None:
    table = TableSchema(TableId("d", "s", "t"), (Column("id", "TIME", 92, nullable=False),), ("id",))
    Admission(event_settings("p", "d", "db2", blocks="last"), OF_DB2).admit(table)
    assert not caplog.records


@pytest.mark.parametrize(
    ("column", "options", "why"),
    [
        (Column("v", "varbit", 1562), {}, "its column v is a bit varying"),
        (Column("v", "timetz", 1266), {}, "its column v is a time with a zone"),
        (Column("v", "interval", 1186), {}, "its column v is an interval"),
        (Column("v", "interval", 1186), {"interval_handling_mode": "string"}, ""),
        (Column("v", "timestamp", 1114), {"time_precision_mode": "connect"}, ""),
        (Column("v", "numeric", 1700, (12 << 16 | 2) + 4), {"decimal_handling_mode": "double"}, ""),
    ],
)
def test_a_column_whose_type_loses_a_part_of_its_values_is_told(
    column: Column, options: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An option that loses a part was chosen by its name."""
    admit(TEXT, **options, and_column=column)
    assert [why in record.message and "; remedy: " in record.message for record in caplog.records] == [True] * bool(why)
    caplog.clear()
    admit(TEXT, copies=False, **options, and_column=column)
    assert not caplog.records


def test_a_tenth_of_a_microsecond_that_a_copy_has_not_is_told(caplog: pytest.LogCaptureFixture) -> None:
    columns = (Column("id", "int", 56, nullable=False), Column("at", "datetime2", 42, 7), Column("on", "time", 41, 6))
    admission = Admission(event_settings("p", "d", "sqlserver", blocks="last"), CAPTURED)
    admission.admit(TableSchema(TableId("d", "dbo", "t"), columns, ("id",)))
    assert "its column at has 7 digits of a second, of which 6 are shown" in caplog.text
    assert "column on" not in caplog.text


def test_typed_rows_of_such_a_table_warn(caplog: pytest.LogCaptureFixture) -> None:
    login = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    settings = EventSettings.from_options(parse("postgres", login | {"rows": "typed"})).as_typed(TypedRows(), ("key",))
    table = TableSchema(TableId("d", "s", "t"), (Column("id", "timetz", 1266, nullable=False),), ("id",))
    Admission(settings, FORM).admit(table)
    assert "two keys of s.t may become one in a copy: its column id is a time with a zone" in caplog.text


PAIR = Column("pair", "pair", 20_001, nullable=False, kind="composite")


@pytest.mark.parametrize("options", [{"row.blocks": "last"}, {"row.blocks": "kept"}, {"row.copy": "true"}])
def test_a_key_without_one_of_its_columns_is_refused(options: dict[str, str]) -> None:
    """A type without a form in events is left out, and rows that differ there alone would be one row."""
    table = TableSchema(TableId("d", "s", "t"), (TEXT, PAIR), ("id", "pair"))
    login = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}

    def admitted(**more: str) -> Admission:
        config = parse("postgres", login | {name.replace("_", "."): text for name, text in more.items()})
        admission = Admission(EventSettings.from_options(config), FORM)
        admission.admit(table)
        return admission

    with pytest.raises(ConfigError, match=r"s\.t may become one in a copy: its column pair has the type pair"):
        admitted(**options)
    assert not admitted(**options, message_key_columns="s[.]t:id").warnings
    assert not admitted(**options, include_unknown_datatypes="true").warnings
    # a table of every change needs no key, and events are Debezium's
    assert "its column pair has the type pair" in " ".join(admitted(row_blocks="every").warnings)
    assert not admitted().warnings


def test_a_key_that_may_be_null_is_told_where_copies_need_whole_keys() -> None:
    """Without a primary key a unique index is the key in events, as in Debezium, and its columns may be null."""
    table = TableSchema(TableId("d", "s", "t"), (Column("a", "int4", 23), TEXT), ("a", "id"))
    login = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}

    def warnings(**more: str) -> str:
        config = parse("postgres", login | {name.replace("_", "."): text for name, text in more.items()})
        admission = Admission(EventSettings.from_options(config), FORM)
        admission.admit(table)
        return " ".join(admission.warnings)

    assert "a row of s.t ends the run of a copy if it has null in a:" in warnings(row_copy="true")
    assert not warnings()
    assert not warnings(row_copy="true", message_key_columns="s[.]t:id")
