"""Values of MySQL and MariaDB in events: what the server's text becomes, plainly and by columns."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.connectors.binlog.descriptor import MYSQL_CONNECTOR
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.tables import schema_of
from tailrace.connectors.binlog.values.conversions import plan_columns
from tailrace.connectors.binlog.values.converters import converter_faults
from tailrace.connectors.binlog.values.rules import rules_of_options
from tailrace.events.event_settings import EventSettings
from tailrace.values.arrow import arrow, arrow_type
from tailrace.values.conversion import ColumnPlan, fragment_of, plain_text
from tailrace.values.fragments import json_array
from tailrace.values.texts import ShownValues, Texts

LOST = object()


def settings(**more: str) -> EventSettings:
    """Return the settings of a configuration with these options, with dots for underscores."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    from tailrace.config import parse

    options = {"database.hostname": "h", "database.user": "u", "topic.prefix": "l"} | named
    config = parse(MYSQL_CONNECTOR.traits, MYSQL_CONNECTOR.load_options(), options, lambda name: "")
    return EventSettings.from_options(config)


def schema(columns: str) -> TableSchema:
    return schema_of(catalog.definition(f"CREATE TABLE `t` ({columns}) DEFAULT CHARSET=utf8mb4", ("d", "t"), MYSQL))


def plan(declared: str, **more: str) -> ColumnPlan:
    """Return the plan of a column that is declared so."""
    plans, unknown = plan_columns(schema(f"`c` {declared}"), settings(**more))
    assert unknown == ()
    return plans[0]


def shown(one: ColumnPlan, text: str) -> Any:
    """Return a value in JSON, the same by the plain conversion and by columns of one and of several values."""
    plain = plain_text(one.conversion, text.encode(), one.null)
    for count in (1, 3):
        texts = Texts.of(pa.array([text.encode()] * count, pa.binary()))
        fragment, lost = fragment_of(one.conversion, texts, ShownValues("c", one.null, one.unavailable, b"null"))
        if plain is None:
            assert lost == count
        else:
            written = [f'"{one}"' if fragment.quoted else one for one in json_array(fragment).to_pylist()]
            assert written == [plain.decode()] * count
    return LOST if plain is None else json.loads(plain)


BINARY = "\\x"


@pytest.mark.parametrize(
    ("declared", "text", "expected"),
    [
        ("tinyint", "-128", -128),
        ("tinyint(1)", "1", 1),
        ("int(6) unsigned zerofill", "000123", 123),
        ("bool", "-1", True),
        ("boolean", "0", False),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint unsigned", "18446744073709551615", -1),
        ("bigint unsigned", "9223372036854775807", 2**63 - 1),
        ("bit(1)", BINARY + "01", True),
        ("bit", BINARY + "00", False),
        ("bit(12)", BINARY + "0801", "AQg="),
        ("bit(64)", BINARY + "8000000000000001", "AQAAAAAAAIA="),
        ("float", "3.4028235e38", 3.4028235e38),
        ("float(7,4)", "999.9999", 999.9998779296875),
        ("float(7,4)", "999.9998779296875", 999.9998779296875),
        ("float(30)", "0.1", 0.1),
        ("double", "1e22", 1e22),
        ("decimal(5,2)", "-999.99", "/nlh"),
        ("decimal", "5", "BQ=="),
        ("varchar(5)", 'a"ü', 'a"ü'),
        ("char(5) character set latin1", "é", "é"),
        ("binary(2)", BINARY + "0100", "AQA="),
        ("enum('a','b,c')", "b,c", "b,c"),
        ("set('a','b')", "a,b", "a,b"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("year", "2024", 2024),
        ("year", "0000", 0),
        ("date", "1582-10-04", -141438),
        ("date", "0069-03-04", 36222),
        ("date", "0099-01-01", 10592),
        ("date", "2024-00-15", None),
        ("date", "0000-00-00", None),
        ("date", "2023-02-31", LOST),
        ("time", "23:59:59", 86399000000),
        ("time(6)", "-838:59:59.000001", -3020399000001),
        ("time(3)", "838:59:59.5", 3020399500000),
        ("time(1)", "-00:00:00.1", -100000),
        ("datetime", "2024-02-29 13:14:15", 1709212455000),
        ("datetime(3)", "1969-12-31 23:59:59.999", -1),
        ("datetime(6)", "9999-12-31 23:59:59.999999", 253402300799999999),
        ("datetime", "2024-02-00 01:02:03", None),
        ("timestamp", "2001-02-03 04:05:06", "2001-02-03T04:05:06Z"),
        ("timestamp(3)", "2001-02-03 04:05:06.700", "2001-02-03T04:05:06.700Z"),
        ("timestamp(3)", "2001-02-03 04:05:06.7", "2001-02-03T04:05:06.7Z"),
        ("timestamp", "0000-00-00 00:00:00", None),
        ("timestamp", "nonsense", LOST),
        ("point", BINARY + "e6100000" + "0101000000000000000000f03f0000000000000040",
         {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 4326}),
        ("geometry", BINARY + "00000000" + "010700000000000000", {"wkb": "AQcAAAAAAAAA", "srid": None}),
        ("vector(2)", "[1.5,-2]", [1.5, -2.0]),
    ],
)  # fmt: skip
def test_a_value_becomes_what_debezium_shows(declared: str, text: str, expected: Any) -> None:
    assert shown(plan(declared), text) == expected or (expected is LOST and shown(plan(declared), text) is LOST)


@pytest.mark.parametrize(
    ("mode", "declared", "text", "expected"),
    [
        ("connect", "time", "24:00:00", 86400000),
        ("connect", "time(3)", "01:02:03.456", 3723456),
        ("connect", "time", "-00:00:01", LOST),
        ("connect", "time", "24:00:01", LOST),
        ("connect", "datetime(6)", "1970-01-01 00:00:00.123456", 123),
        ("connect", "date", "1970-01-02", 1),
        ("nanoseconds", "time", "-838:59:59", -3020399000000000),
        ("nanoseconds", "datetime", "1970-01-01 00:00:01", 1000000000),
        ("microseconds", "datetime", "1970-01-01 00:00:01", 1000000),
        ("microseconds", "time(6)", "00:00:00.000001", 1),
        ("isostring", "time(1)", "23:59:59.9", "23:59:59.9Z"),
        ("isostring", "date", "2024-02-29", "2024-02-29Z"),
        ("isostring", "datetime(6)", "1582-10-04 12:00:00.250000", "1582-10-04T12:00:00.25Z"),
        ("isostring", "timestamp", "2001-02-03 04:05:06", "2001-02-03T04:05:06Z"),
    ],
)
def test_times_follow_their_mode(mode: str, declared: str, text: str, expected: Any) -> None:
    found = shown(plan(declared, time_precision_mode=mode), text)
    assert found is LOST if expected is LOST else found == expected


def test_modes_of_numbers_and_bytes() -> None:
    precise = plan("bigint unsigned", bigint_unsigned_handling_mode="precise")
    assert precise.schema.parameters == (("scale", "0"), ("connect.decimal.precision", "20"))
    assert shown(precise, "18446744073709551615") == "AP//////////"
    assert shown(plan("decimal(5,2)", decimal_handling_mode="double"), "-1.25") == -1.25
    assert shown(plan("blob", binary_handling_mode="hex"), BINARY + "00ff") == "00ff"
    assert shown(plan("date", enable_time_adjuster="false"), "0069-03-04") == -694263


@pytest.mark.parametrize("declared", ["date", "datetime(3)"])
def test_a_copy_shows_no_other_year(declared: str) -> None:
    text = "0069-03-04" if declared == "date" else "0069-03-04 01:02:03.004"
    as_it_is = shown(plan(declared, enable_time_adjuster="false"), text)
    assert shown(plan(declared, row_copy="true"), text) == as_it_is
    assert shown(plan(declared, row_copy="true", enable_time_adjuster="true"), text) == shown(plan(declared), text)
    assert shown(plan(declared), text) != as_it_is


def test_a_required_column_shows_the_epoch_for_a_partial_date() -> None:
    assert plan("date not null").null == b"0"
    assert plan("timestamp not null").null == b'"1970-01-01T00:00:00Z"'
    assert plan("date").null == b"null"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("int default 5", 5),
        ("int default 0x10", 16),
        ("bool default true", True),
        ("bigint unsigned default 18446744073709551615", 9223372036854775807),
        ("decimal(10,3) default 1.5", "Bdw="),
        ("varchar(9) default 'it''s \\n'", "it's \n"),
        ("bit(8) default b'101'", "BQ=="),
        ("bit default 1", True),
        ("binary(4) default 'ab'", "YWIAAA=="),
        ("varbinary(4) default x'00ff'", "AP8="),
        ("year default '99'", 1999),
        ("time default '-10:00:00'", -36000000000),
        ("date default '2024-00-10'", ABSENT),
        ("date not null default '0000-00-00'", 0),
        ("datetime default now()", 0),
        ("timestamp null default current_timestamp", ABSENT),
        ("timestamp not null default current_timestamp", "1970-01-01T00:00:00Z"),
        ("datetime(6) default '2024-01-02 03:04:05.678901'", 1704164645678901),
        ("int default (1 + 2)", ABSENT),
        ("int default null", ABSENT),
        ("int", ABSENT),
    ],
)
def test_defaults_stand_in_schemas(declared: str, expected: Any) -> None:
    assert plan(declared).schema.default == expected


def test_labels_and_declared_types_stand_in_schemas() -> None:
    assert plan("enum('a','b,c','it''s')").schema.parameters == (("allowed", "a,b\\,c,it's"),)
    found = plan("float(7,3)", column_propagate_source_type=".*").schema.parameters
    prefix = "__debezium.source.column."
    assert found == (
        (f"{prefix}type", "FLOAT"),
        (f"{prefix}length", "7"),
        (f"{prefix}scale", "3"),
        (f"{prefix}name", "c"),
    )


def test_converters_change_the_columns_that_they_select() -> None:
    kind = "io.debezium.connector.binlog.converters."
    options = {"converters": "b,s", "b.type": f"{kind}TinyIntOneToBooleanConverter", "b.selector": r"d\.t\.c",
               "s.type": f"{kind}JdbcSinkDataTypesConverter", "s.selector.string": r"d\.t\.c"}  # fmt: skip
    assert [shown(plan("tinyint(1)", **options), text) for text in ("1", "-1", "0", "127")] == [
        True,
        False,
        False,
        True,
    ]
    assert shown(plan("tinyint(2)", **options), "1") == 1
    assert shown(plan("tinyint", **options, **{"b.length.checker": "false"}), "1") is True
    found = plan("varchar(3) character set latin1", **options).schema.parameters
    assert found == (("__debezium.source.column.character_set", "latin1"),)
    given = {"bigint.unsigned.handling.mode": "long", "enable.time.adjuster": True, "converters": []}
    told = given | {"on.zero.date": None}
    assert rules_of_options(told, ())


@pytest.mark.parametrize(
    ("option", "nullable", "expected"),
    [
        (None, True, None),
        (None, False, 0),
        ("null", False, None),
        ("epoch", True, 0),
        ("epoch", False, 0),
        ("error", True, LOST),
    ],
)
def test_dates_without_a_month_or_a_day_are_what_the_option_says(
    option: str | None, nullable: bool, expected: object
) -> None:
    more = {} if option is None else {"on_zero_date": option}
    dated, stamped = (f"{kind} {'null' if nullable else 'not null'}" for kind in ("date", "timestamp"))
    for text in ("0000-00-00", "2024-00-15", "2024-02-00"):
        assert shown(plan(dated, **more), text) == expected
    found = shown(plan(stamped, **more), "0000-00-00 00:00:00")
    assert found == ("1970-01-01T00:00:00Z" if expected == 0 else expected)
    assert shown(plan(dated, **more), "2024-02-03") == 19756
    assert plan(dated, **more).schema.optional == (nullable or option == "null")


def test_a_copy_allows_nulls_for_zero_dates_unless_the_option_says_otherwise() -> None:
    table = TableSchema(TableId("d", "d", "t"), (Column("a", "date", 0, nullable=False),), ())
    copy = replace(settings(), copy=True)
    assert plan_columns(table, copy)[0][0].schema.optional
    epoch = replace(settings(on_zero_date="epoch"), copy=True)
    assert not plan_columns(table, epoch)[0][0].schema.optional


def test_columns_that_only_the_log_knows_are_not_shown() -> None:
    table = TableSchema(TableId("d", "d", "t"), (Column("a", "int", 0), Column("", "", 0, kind="hidden")), ())
    assert [one.name for one in plan_columns(table, settings())[0]] == ["a"]


@pytest.mark.parametrize(
    ("declared", "text", "expected"),
    [
        ("timestamp(6)", "2001-02-03 04:05:06.5", "2001-02-03 04:05:06.500000+00:00"),
        ("date", "2024-02-29", "2024-02-29"),
        ("date", "2024-00-29", "None"),
        ("bit(12)", BINARY + "0801", "b'\\x01\\x08'"),
        ("bigint unsigned", "5", "5"),
        ("bool", "1", "True"),
    ],
)
def test_typed_values(declared: str, text: str, expected: str) -> None:
    one = plan(declared)
    values = arrow(one, pa.array([text.encode()], pa.binary()))
    assert values.type == arrow_type(one)
    assert str(values.to_pylist()[0]) == expected


def test_a_copy_never_shows_another_number() -> None:
    """Events wrap as Debezium's do; a copy has decimals, or a number that cannot be converted where long is set."""
    most = "18446744073709551615"
    assert shown(plan("bigint unsigned"), most) == -1
    assert shown(plan("bigint unsigned", row_copy="true", bigint_unsigned_handling_mode="long"), "7") == 7
    assert shown(plan("bigint unsigned", row_copy="true", bigint_unsigned_handling_mode="long"), most) is LOST
    copied = plan("bigint unsigned", row_copy="true")
    assert arrow_type(copied) == pa.decimal128(20, 0)
    values = arrow(copied, pa.array([most.encode()], pa.binary()))
    assert values.to_pylist() == [Decimal(most)]


KIND = "io.debezium.connector.mysql.converters."


@pytest.mark.parametrize(
    ("declared", "more", "text", "expected"),
    [
        ("tinyint(1)", {}, "-1", 0),
        ("bool", {}, "7", 1),
        ("tinyint(2)", {}, "7", 7),
        ("float", {}, "0.1", 0.10000000149011612),
        ("double", {}, "0.1", 0.1),
        ("real", {}, "0.1", 0.1),
        ("float", {"s.treat.real.as.double": "false"}, "0.1", 0.1),
        ("double", {"s.treat.real.as.double": "false"}, "0.10000000149011612", 0.1),
        ("int", {}, "7", 7),
    ],
)
def test_the_converter_for_jdbc_sinks_shows_booleans_as_numbers_and_reals_as_doubles(
    declared: str, more: dict[str, str], text: str, expected: object
) -> None:
    options = {"converters": "s", "s.type": f"{KIND}JdbcSinkDataTypesConverter", "s.selector.boolean": ".*",
               "s.selector.real": ".*"}  # fmt: skip
    assert shown(plan(declared, **options, **more), text) == expected


def test_the_converter_for_jdbc_sinks_changes_only_columns_that_it_selects() -> None:
    options = {"converters": "s", "s.type": f"{KIND}JdbcSinkDataTypesConverter"}
    for declared, text in (("bool", "7"), ("float", "0.1"), ("varchar(3)", "x")):
        assert plan(declared, **options).schema == plan(declared).schema
        assert shown(plan(declared, **options), text) == shown(plan(declared), text)


@pytest.mark.parametrize(
    ("declared", "more", "text", "expected"),
    [
        ("date", {}, "0000-00-00", None),
        ("date not null", {}, "0000-00-00", None),
        ("date", {"z.fallback.date": "1970-01-11"}, "2024-00-00", 10),
        ("date", {"z.fallback.date": "1970-01-11"}, "1970-01-02", 1),
        ("date", {"z.fallback.date": "1970-01-11T01:02:03Z"}, "0000-00-00", 10),
        ("date", {"z.fallback.date": "1970-01-11", "z.column.d.t.c.fallback": "1970-01-03"}, "0000-00-00", 2),
        ("date", {"z.fallback.date": "1970-01-11", "z.column.d.t.c.fallback": "null"}, "0000-00-00", None),
        ("datetime", {"z.fallback.datetime": "1970-01-01T00:00:01Z"}, "0000-00-00 00:00:00", 1000),
        ("datetime", {"z.fallback.datetime": "1970-01-02"}, "0000-00-00 00:00:00", 86_400_000),
        ("timestamp", {"z.fallback.timestamp": "2001-02-03 04:05:06"}, "0000-00-00 00:00:00", "2001-02-03T04:05:06Z"),
        ("date not null", {"z.fallback.date": "1970-01-11", "z.target.types": "DATETIME"}, "0000-00-00", 0),
        ("date not null", {"z.fallback.date": "1970-01-11", "z.selector": r"d\.t\.other"}, "0000-00-00", 0),
        ("date", {}, "0069-03-04", -694263),
    ],
)
def test_the_converter_for_zero_dates_replaces_them(
    declared: str, more: dict[str, str], text: str, expected: object
) -> None:
    options = {"converters": "z", "z.type": f"{KIND}ZeroDateFallbackConverter"}
    assert shown(plan(declared, **options, **more), text) == expected


def test_a_required_column_whose_zero_dates_become_null_is_optional() -> None:
    options = {"converters": "z", "z.type": f"{KIND}ZeroDateFallbackConverter"}
    assert plan("date not null", **options).schema.optional
    assert not plan("date not null", **options, **{"z.fallback.date": "1970-01-11"}).schema.optional
    assert not plan("int not null", **options).schema.optional


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "c.type is missing, and converters names c"),
        ({"c.type": "org.example.Own"}, "c.type = org.example.Own is not supported"),
        ({"c.type": f"{KIND}TinyIntOneToBooleanConverter", "c.x": "1"}, "c.x is not an option of TinyIntOneToBoolean"),
        ({"c.type": f"{KIND}TinyIntOneToBooleanConverter", "c.selector": "a,("}, "c.selector: "),
        ({"c.type": f"{KIND}TinyIntOneToBooleanConverter", "c.length.checker": "maybe"},
         "c.length.checker must be true or false, not 'maybe'"),
        ({"c.type": f"{KIND}ZeroDateFallbackConverter", "c.target.types": "DATE,TIME"},
         "c.target.types knows DATE, DATETIME, TIMESTAMP, not 'TIME'"),
        ({"c.type": f"{KIND}ZeroDateFallbackConverter", "c.fallback.date": "soon"},
         "c.fallback.date must be NULL, or a date or time as the database writes it, not 'soon'"),
    ],
)  # fmt: skip
def test_a_fault_of_a_converter_names_its_option(options: dict[str, str], fault: str) -> None:
    (found,) = converter_faults({"converters": ["c"], **options})
    assert found.startswith(fault)
