"""Every type's values and defaults, by the plain conversion and by the compiled one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.connectors.postgres.values import plain
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, plain_json
from tests.event_settings import event_settings

BASE = event_settings("server", "golden")


def plan(column: Column, **modes: Any) -> ColumnPlan:
    table = TableSchema(TableId("golden", "public", "t"), (column,), ())
    return plan_columns(table, replace(BASE, **modes))[0][0]


def both(shown: ColumnPlan, text: str) -> str:
    """Return the JSON of a text, on which the two conversions must agree."""
    column = pa.array([b"", text.encode()], pa.binary()).slice(1)
    fragment, _ = column_fragment(shown, column, None)
    begin, end = fragment.offsets
    compiled = bytes(fragment.data[begin:end]).decode()
    compiled = f'"{compiled}"' if fragment.quoted else compiled
    plain = plain_json(shown, text.encode())
    assert compiled == (shown.null if plain is None else plain).decode()
    return compiled


def numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


@pytest.mark.parametrize(
    ("type_name", "modifier", "text", "json"),
    [
        ("bool", -1, "t", "true"),
        ("int8", -1, "-9223372036854775808", "-9223372036854775808"),
        ("float8", -1, "5e-324", "4.9E-324"),
        ("float8", -1, "1e-323", "9.9E-324"),
        ("float8", -1, "1.7976931348623157e+308", "1.7976931348623157E308"),
        ("float8", -1, "0.001", "0.001"),
        ("float8", -1, "0.0001", "1.0E-4"),
        ("float8", -1, "9999999", "9999999.0"),
        ("float8", -1, "10000000", "1.0E7"),
        ("float8", -1, "-0", "-0.0"),
        ("float8", -1, "-Infinity", '"-Infinity"'),
        ("float4", -1, "NaN", '"NaN"'),
        ("float4", -1, "1e-45", "1.4E-45"),
        ("float4", -1, "3.4028235e+38", "3.4028235E38"),
        ("numeric", numeric(10, 2), "12345.67", '"EtaH"'),
        ("numeric", numeric(10, 2), "-99999999.99", '"/av0HAE="'),
        ("numeric", numeric(38, 10), "-9999999999999999999999999999.9999999999", '"tMSzV6V5O4X2dd3AAAAAAQ=="'),
        ("numeric", numeric(5, -2), "1234600", '"MDo="'),
        ("numeric", numeric(10, 2), "NaN", "null"),
        ("numeric", -1, "1.500", '{"scale":1,"value":"Dw=="}'),
        ("numeric", -1, "1000000000000000000000000000000", '{"scale":0,"value":"DJ8snNBGdO3qQAAAAA=="}'),
        ("numeric", -1, "-0.00000000000000000001", '{"scale":20,"value":"/w=="}'),
        ("money", -1, "-$92,233,720,368,547,758.08", '"gAAAAAAAAAA="'),
        ("text", -1, 'line\n\t"q" \\ \x01 é 😀', '"line\\n\\t\\"q\\" \\\\ \\u0001 é \\uD83D\\uDE00"'),
        ("name", -1, "a_name", '"a_name"'),
        ("bytea", -1, "\\x00010203fffefbef", '"AAECA//+++8="'),
        ("date", -1, "1582-10-10", "-141432"),
        ("date", -1, "0044-03-15 BC", "-735160"),
        ("date", -1, "infinity", "2147483647"),
        ("time", -1, "24:00:00", "86400000000"),
        ("time", 3, "23:59:59.999", "86399999"),
        ("timetz", -1, "13:51:30.123-05:30", '"19:21:30.123Z"'),
        ("timetz", -1, "24:00:00+00", '"00:00:00Z"'),
        ("timestamp", -1, "1900-01-01 00:00:00.000001", "-2208988799999999"),
        ("timestamp", 3, "1969-12-31 23:59:59.999", "-1"),
        ("timestamp", 3, "-infinity", "-9223372036832400"),
        ("timestamp", -1, "infinity", "9223372036825200000"),
        ("timestamp", -1, "294276-12-31 23:59:59.999999", "null"),
        ("timestamptz", -1, "2016-11-04 13:51:30.12+02", '"2016-11-04T11:51:30.120000Z"'),
        ("timestamptz", 0, "0044-03-15 12:00:00+00 BC", '"-0043-03-15T12:00:00Z"'),
        ("timestamptz", -1, "294276-12-31 23:59:59.999999+00", '"+294276-12-31T23:59:59.999999Z"'),
        ("timestamptz", -1, "infinity", '"infinity"'),
        ("interval", -1, "-1 years -2 mons +3 days -04:05:06.789", "-36572706789000"),
        ("interval", -1, "100 years 40 days 30:00:00", "3159324000000000"),
        ("interval", -1, "300000 years", "9223372036854775807"),
        ("interval", -1, "-178000000 years", "-9223372036854775808"),
        ("interval", -1, "300000 years -10000000 days", "8603280000000000000"),
        ("interval", -1, "2562047788:00:54.775807", "9223372036854775807"),
        ("interval", -1, "1 day", "86400000000"),
        ("bit", 3, "101", '"BQ=="'),
        ("bit", 9, "100000001", '"AQE="'),
        ("varbit", -1, "000", '""'),
        ("bit", 1, "1", "true"),
        ("hstore", -1, '"k"=>"v", "q\\"uote"=>NULL', '"{\\"k\\":\\"v\\",\\"q\\\\\\"uote\\":null}"'),
        ("point", -1, "(0.1,1e+300)", '{"x":0.1,"y":1.0E300,"wkb":"AQEAAACamZmZmZm5P5x1AIg85Dd+","srid":null}'),
        ("vector", -1, "[1,2.5]", "[1.0,2.5]"),
    ],
)
def test_values_are_as_recorded(type_name: str, modifier: int, text: str, json: str) -> None:
    assert both(plan(Column("c", type_name, 0, modifier)), text) == json


@pytest.mark.parametrize(
    ("type_name", "text", "option", "mode", "json"),
    [
        ("numeric", "12345.670", "decimal_handling_mode", "string", '"12345.670"'),
        ("numeric", "NaN", "decimal_handling_mode", "string", '"NAN"'),
        ("numeric", "-Infinity", "decimal_handling_mode", "string", '"NEGATIVE_INFINITY"'),
        ("numeric", "1234567890.0123456789", "decimal_handling_mode", "double", "1.2345678900123458E9"),
        ("numeric", "NaN", "decimal_handling_mode", "double", '"NaN"'),
        ("money", "$1,234.56", "decimal_handling_mode", "string", '"1234.56"'),
        ("money", "-$0.01", "decimal_handling_mode", "double", "-0.01"),
        ("date", "2016-11-04", "time_precision_mode", "isostring", '"2016-11-04Z"'),
        ("time", "13:51:30.5", "time_precision_mode", "isostring", '"13:51:30.5Z"'),
        ("timestamp", "infinity", "time_precision_mode", "isostring", '"+294247-01-10T04:00:25.2Z"'),
        ("timestamp", "1900-01-01 00:00:00.000001", "time_precision_mode", "connect", "-2208988800000"),
        ("timestamp", "infinity", "time_precision_mode", "nanoseconds", "9223372036854775807"),
        ("timestamp", "2262-04-11 23:47:16.854776", "time_precision_mode", "nanoseconds", "null"),
        ("time", "00:00:00.000001", "time_precision_mode", "nanoseconds", "1000"),
        ("bytea", "\\xfffe", "binary_handling_mode", "base64-url-safe", '"__4="'),
        ("bytea", "\\xfffe", "binary_handling_mode", "hex", '"fffe"'),
        ("interval", "1 year 00:00:06.780", "interval_handling_mode", "string", '"P1Y0M0DT0H0M6.78S"'),
        ("hstore", '"k"=>"v"', "hstore_handling_mode", "map", '{"k":"v"}'),
        ("timestamptz", "1900-01-01 00:00:00.5+00", "event_format", "1.7", '"1900-01-01T00:00:00.5Z"'),
    ],
)
def test_modes_change_the_form(type_name: str, text: str, option: str, mode: str, json: str) -> None:
    assert both(plan(Column("c", type_name, 0), **{option: mode}), text) == json


@pytest.mark.parametrize(
    ("element", "text", "json"),
    [
        (Column("c", "int4", 23), "{1,NULL}", "[1,null]"),
        (Column("c", "text", 25), '{"a b","q\\"uote",NULL,"NULL",""}', '["a b","q\\"uote",null,"NULL",""]'),
        (Column("c", "numeric", 1700), "{1.10,3}", '[{"scale":1,"value":"Cw=="},{"scale":0,"value":"Aw=="}]'),
        (Column("c", "bytea", 17), '{"\\\\x0102"}', '["AQI="]'),
        (Column("c", "int4", 23), "{{1},{2}}", "null"),
        (Column("c", "int4", 23), "[5:6]={1,2}", "[1,2]"),
        (Column("c", "mood", 0, kind="enum", enum_labels=("a",)), "{a,NULL}", "null"),
    ],
)
def test_arrays_have_the_form_of_their_elements(element: Column, text: str, json: str) -> None:
    assert both(plan(Column("c", "_e", 0, kind="array", element=element)), text) == json


@pytest.mark.parametrize(
    ("type_name", "modifier", "expression", "default"),
    [
        ("int4", -1, "nextval('t_id_seq'::regclass)", 0),
        ("int8", -1, "'-5'::integer", -5),
        ("bool", -1, "true", True),
        ("float8", -1, "2.5", 2.5),
        ("numeric", numeric(6, 2), "12.3", "BM4="),
        ("numeric", -1, "1.25", ABSENT),
        ("money", -1, "9.99", ABSENT),
        ("text", -1, "'it''s'::text", "it's"),
        ("bpchar", 9, "'x'::bpchar", "x"),
        ("bit", 3, "'101'::\"bit\"", "BQ=="),
        ("bit", 1, "B'1'::\"bit\"", True),
        ("date", -1, "'2020-02-03'::date", 18295),
        ("date", -1, "CURRENT_DATE", 0),
        ("timestamp", -1, "now()", 0),
        ("timestamptz", -1, "'2020-02-03 02:05:06+00'::timestamp with time zone", "2020-02-03T02:05:06.000000Z"),
        ("date", -1, "'2020-01-01 00:00:00'::timestamp without time zone", 18_262),
        ("timetz", -1, "'01:02:03+02'::time with time zone", ABSENT),
        (
            "timestamptz",
            -1,
            "('2020-02-03 02:05:06'::timestamp without time zone)::timestamp with time zone",
            "2020-02-03T02:05:06.000000Z",
        ),
        ("int4", -1, "('1.7'::numeric)::integer", ABSENT),
        ("int4", -1, "o.f()", 0),
        ("interval", -1, "'1 day'::interval", 86_400_000_000),
        ("uuid", -1, "gen_random_uuid()", "00000000-0000-0000-0000-000000000000"),
        ("int4", -1, "(1 + 1)", ABSENT),
        ("text", -1, "NULL::text", ABSENT),
        ("text", -1, "upper('x'::text)", ""),
        ("text", -1, "(upper('a'::text) || 'b'::text)", ""),
        ("timestamptz", -1, "(now() + '1 day'::interval)", "1970-01-01T00:00:00.000000Z"),
        ("int4", -1, "((random() * (10)::double precision))::integer", ABSENT),
        ("int4", -1, "(- abs(3))", ABSENT),
        ("date", -1, "(CURRENT_DATE + 1)", ABSENT),
    ],
)
def test_defaults_are_read_from_the_expression(type_name: str, modifier: int, expression: str, default: object) -> None:
    shown = plan(Column("c", type_name, 0, modifier, default=expression))
    found = shown.schema.default
    assert found == default or str(found) == str(default)


def test_numbers_as_text_have_a_zero_of_their_scale() -> None:
    exact = Column("c", "numeric", 1700, numeric(8, 3), nullable=False)
    plain, money = replace(exact, modifier=-1), Column("c", "money", 790, nullable=False)
    call = "(random())::numeric"

    def shown(column: Column) -> tuple[object, bytes]:
        found = plan(column, decimal_handling_mode="string")
        return found.schema.default, found.null

    assert [shown(column)[1] for column in (exact, plain, money)] == [b'"0.000"', b'"0"', b'"0.00"']
    assert shown(replace(exact, default=call)) == ("0.000", b'"0.000"')
    assert shown(replace(plain, default=call)) == ("0.0", b'"0.0"')
    found = plan(plain, decimal_handling_mode="string", placeholder=b"gone")
    assert found.unavailable == b'"gone"'


def test_nulls_take_the_default_only_where_asked_for() -> None:
    column = Column("c", "int4", 23, default="7")
    assert plan(column).null == b"7"
    assert plan(column, replace_null_with_default=False).null == b"null"
    assert plan(replace(column, nullable=False, default=None)).null == b"0"


def test_a_domain_is_shown_as_its_base_type() -> None:
    base = Column("c", "numeric", 1700, numeric(8, 3))
    shown = plan(Column("c", "d_num", 0, kind="domain", element=base))
    assert both(shown, "2.5") == '"CcQ="'
    assert dict(shown.schema.parameters) == {"scale": "3", "connect.decimal.precision": "8"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$1,234.56", "1234.56"),
        ("-$0.01", "-0.01"),
        ("1.234.567,89 €", "1234567.89"),
        ("-0,05 €", "-0.05"),
        ("($12.00)", "-12.00"),
        ("Rs.12,34,567.80", "1234567.80"),
        ("1 234,56 kr.", "1234.56"),
        ("￥1,234", "1234"),
        ("7", "7"),
        ("KD 1,234.567", "1234.567"),
    ],
)
def test_money_is_read_in_the_forms_of_many_countries(text: str, expected: str) -> None:
    assert plain.money_digits(text) == expected
    assert plain.money_numbers(pa.array([text.encode(), None], pa.binary())).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("text", "digits", "why"),
    [
        ("$12,345.67", 2, ""),
        ("12.345,67 €", 2, ""),
        ("￥12,346", 2, ""),
        ("12.346 ₫", 2, "which is read as 12.346"),
        ("12.345,670 DT", 3, "which is read as 12.345670"),
        ("KD 12,345.670", 2, "has 3 digits behind the point of money, of which 2 are kept"),
        ("KD 12,345.670", 3, ""),
        ("1.2.3 x", 2, "which is not read as a number"),
    ],
)
def test_money_that_is_read_wrongly_is_told(text: str, digits: int, why: str) -> None:
    found = plain.money_fault(text, digits)
    assert (why in found) if why else not found
