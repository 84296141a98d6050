"""Each rule of acceptance covers its condition, and nothing beyond it."""

from __future__ import annotations

import base64

import pytest

from tests.golden import wire
from tests.golden.accept import Place, fitted_reason, key_reason, key_schema_reason, schema_reason, value_reason


def read(text: str) -> object:
    return wire.Reader().read(text)


def decimal(number: int) -> str:
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return f'"{base64.b64encode(data).decode()}"'


def place(got: str, wanted: str = "", op: str = "r", type_name: str | None = None) -> Place:
    return Place(read(wanted or got), read(got), "c", op, type_name)


def named(name: str) -> str:
    return f'{{"name":"{name}"}}'


DATE = place(named("io.debezium.time.Date"))
STREAMED_DATE = place(named("io.debezium.time.Date"), op="c")
ZONED = place(named("io.debezium.time.ZonedTimestamp"))
MICROS = place(named("io.debezium.time.MicroTimestamp"), op="c")
JSON = place(named("io.debezium.data.Json"))
TEXT = place('{"type":"string"}', op="c")
NAME = place('{"type":"string"}', op="c", type_name="name")
SCALE = '{{"name":"org.apache.kafka.connect.data.Decimal","parameters":{{"scale":"{}"}}}}'
NEGATIVE = place(SCALE.format(-2), SCALE.format(2046))
MONEY = place(SCALE.format(2), type_name="money")
NUMERIC = place(SCALE.format(2), type_name="numeric")
ARRAY = place('{"type":"array","items":{"type":"array"}}')
INTS = place('{"type":"array"}', type_name="_int4")
OIDS = place('{"type":"array"}', type_name="oidvector")
SPARSE = place(named("io.debezium.data.SparseDoubleVector"))
ISO_DATE, ISO_SPAN = place(named("io.debezium.time.IsoDate"), op="c"), place(named("io.debezium.time.Interval"))
TIMES = place('{"type":"array"}', type_name="_time")
SCALED = place('{"type":"string"}', type_name="numeric")
DEFAULT = place('{"default":"it\'s"}', '{"default":"it"}')
TOLD = '{{"__debezium.source.column.type":"{}","__debezium.source.column.length":"{}"}}'
BYTES = place('{"type":"string"}', op="u", type_name="bytea")
CITEXTS = place('{"type":"array"}', op="u", type_name="_citext")
LABELS = '{{"name":"io.debezium.data.Enum","parameters":{{"allowed":"{}"}}}}'
FLOAT, DOUBLE = place('{"type":"float"}'), place('{"type":"double"}')
NANO_TIMES = place(named("io.debezium.time.NanoTime"), type_name="_time")
SPAN = place(named("io.debezium.time.MicroDuration"))
TIME_COLUMN = place(named("io.debezium.time.NanoTime"), type_name="time")
LEAST = -(2**63)


@pytest.mark.parametrize(
    ("where", "wanted", "got"),
    [
        (DATE, "-141422", "-141432"),
        (DATE, "-622191234", "2147483647"),
        (STREAMED_DATE, "-2147472692", "2147483647"),
        (ZONED, '"0000-12-30T00:00:00Z"', '"0001-01-01T00:00:00Z"'),
        (MICROS, "-9223372036853775810", "null"),
        (JSON, r'"{\"a\":\"1\",\"b\":null}"', r'"{\"b\":null,\"a\":\"1\"}"'),
        (NAME, "null", '"a"'),
        (NEGATIVE, decimal(12 * 10**2048), decimal(12)),
        (MONEY, decimal(LEAST - 192), decimal(LEAST)),
        (ARRAY, "null", "[[1],[2]]"),
        (INTS, "[null,null]", "null"),
        (OIDS, "[]", "[1,2]"),
        (SPARSE, '{"dimensions":9,"vector":[[5,-3.0],[3,2.5]]}', '{"dimensions":9,"vector":[[3,2.5],[5,-3.0]]}'),
        (ISO_DATE, '"-5877611-06-21Z"', '"+5881580-07-11Z"'),
        (TIMES, "null", "[1]"),
        (ISO_SPAN, '"P-1Y0M3DT0H-5M-6.788999999S"', '"P-1Y0M3DT0H-5M-6.789S"'),
        (SCALED, '"0E-2046"', '"0"'),
        (SCALED, '"1234600.' + 2046 * "0" + '"', '"1234600"'),
        (DEFAULT, '"it"', '"it\'s"'),
        (FLOAT, "1.17549435E-38", "1.1754944E-38"),
        (DOUBLE, "2.0E-3", "0.002"),
        (NANO_TIMES, "49890123000000", "49890123456000"),
        (BYTES, "null", '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
        (CITEXTS, "null", '["__debezium_unavailable_value"]'),
        (SPAN, "315607606200000000", "315607606199999999"),
    ],
)
def test_covered(where: Place, wanted: str, got: str) -> None:
    assert value_reason(where, read(wanted), read(got))


@pytest.mark.parametrize(
    ("where", "wanted", "got"),
    [
        (DATE, "-141427", "-141426"),
        (DATE, "null", "-141432"),
        (STREAMED_DATE, "-141422", "-141432"),
        (ZONED, '"1582-10-16T00:00:00Z"', '"1582-10-15T00:00:00Z"'),
        (MICROS, "1", "null"),
        (JSON, r'"{\"a\":\"1\"}"', r'"{\"a\":\"2\"}"'),
        (JSON, r'"{\"a\":1,\"b\":2}"', r'"{\"b\":2,\"a\":1}"'),
        (TEXT, "null", '"a"'),
        (NAME, '"b"', '"a"'),
        (NAME, '"a"', "null"),
        (NEGATIVE, decimal(12 * 10**2048), decimal(13)),
        (NUMERIC, decimal(LEAST - 192), decimal(LEAST)),
        (MONEY, decimal(100), decimal(101)),
        (ARRAY, "null", "[1,2]"),
        (ARRAY, "[]", "[[1],[2]]"),
        (INTS, "[null,1]", "null"),
        (INTS, "[]", "null"),
        (OIDS, "[1]", "[1,2]"),
        (INTS, "[]", "[1,2]"),
        (SPARSE, '{"dimensions":9,"vector":[[5,-3.0]]}', '{"dimensions":9,"vector":[[5,3.0]]}'),
        (SPARSE, '{"dimensions":8,"vector":[]}', '{"dimensions":9,"vector":[]}'),
        (ISO_DATE, '"2020-01-01Z"', '"2020-01-02Z"'),
        (ISO_DATE, "null", '"+5881580-07-11Z"'),
        (INTS, "null", "[1]"),
        (ISO_SPAN, '"P-1Y0M3DT0H-5M-6.788S"', '"P-1Y0M3DT0H-5M-6.789S"'),
        (ISO_SPAN, '"P0Y0M3DT0H-5M-6.789S"', '"P-1Y0M3DT0H-5M-6.789S"'),
        (SCALED, '"12346.' + 2046 * "0" + '"', '"12345"'),
        (SCALED, '"12345.00"', '"12345"'),
        (SCALED, '"0E-2"', '"0"'),
        (DEFAULT, '"its"', '"it\'s"'),
        (FLOAT, "1.17549435E-38", "1.175495E-38"),
        (DOUBLE, "1.17549435E-38", "1.1754944E-38"),
        (NANO_TIMES, "49890124000000", "49890123456000"),
        (BYTES, "null", '"AQ=="'),
        (BYTES, '"AQ=="', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
        (TEXT, "null", '"__debezium_unavailable_value"'),
        (SPAN, "315607606200000100", "315607606199999999"),
        (SPAN, "9007199254740991", "9007199254740992"),
        (TIME_COLUMN, "49890123000000", "49890123456000"),
    ],
)
def test_not_covered(where: Place, wanted: str, got: str) -> None:
    assert value_reason(where, read(wanted), read(got)) is None


BIT = '{"type":"boolean","optional":true,"field":"b"}'
BITS = '{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","field":"b"}'


@pytest.mark.parametrize(
    ("wanted", "got", "covered"),
    [
        (BITS, f'{{"type":"array","items":{BITS},"optional":true,"field":"b"}}', True),
        (BITS, f'{{"type":"array","items":{BITS},"optional":false,"field":"b"}}', False),
        (BITS, '{"type":"array","items":{"type":"bytes"},"optional":true,"field":"b"}', False),
        (BIT, f'{{"type":"array","items":{BIT},"optional":true,"field":"b"}}', True),
        (BIT, f'{{"type":"array","items":{BIT},"optional":false,"field":"b"}}', False),
        ('{"type":"boolean","field":"b"}', '{"type":"array","items":{"type":"boolean"},"field":"b"}', True),
        ('{"type":"array","items":{"type":"int64"}}', '{"type":"array","items":{"type":"int32"}}', False),
        ('{"default":"it\'\'s"}', '{"default":"it\'s"}', True),
        ("{\"default\":\"it''''s\"}", '{"default":"it\'s"}', False),
        (LABELS.format("b,a,first"), LABELS.format("first,b,a"), True),
        ('{"type":"string"}', '{"type":"string","default":"a\\nb"}', True),
        ('{"type":"string"}', '{"type":"string","default":"ab"}', False),
        ('{"type":"int32"}', '{"type":"string","default":"a\\nb"}', False),
        (TOLD.format("SERIAL", 10), TOLD.format("INT4", 10), True),
        (TOLD.format("SERIAL", 10), TOLD.format("INT8", 10), False),
        (TOLD.format("SERIAL", 10), TOLD.format("INT4", 9), False),
        (LABELS.format("b,a"), LABELS.format("b,first,a"), True),
        (LABELS.format("b,a,first"), LABELS.format("b,a"), False),
        (SCALE.format(2046), SCALE.format(-2), True),
        (SCALE.format(2045), SCALE.format(-2), False),
        (SCALE.format(2), SCALE.format(-2), False),
        ('{"default":"it"}', '{"default":"it\'s"}', True),
        ('{"default":"it"}', '{"default":"its"}', False),
        ('{"optional":true}', '{"optional":false}', False),
    ],
)
def test_schemas(wanted: str, got: str, covered: bool) -> None:
    assert bool(schema_reason(read(wanted), read(got))) == covered


TOLD = '{"__debezium.source.column.type":"NUMERIC","__debezium.source.column.length":"%s"%s}'
COMMENT = ',"__debezium.source.column.comment":"who it is"'
SCALE_0 = ',"__debezium.source.column.scale":"0"'


def test_a_comment_may_be_told_in_addition_and_nothing_else() -> None:
    assert schema_reason(read(TOLD % (5, "")), read(TOLD % (5, COMMENT)))
    assert not schema_reason(read(TOLD % (5, COMMENT)), read(TOLD % (5, "")))
    assert not schema_reason(read(TOLD % (6, "")), read(TOLD % (5, COMMENT)))


def test_a_numeric_of_any_scale_may_tell_its_digits_in_snapshots() -> None:
    assert schema_reason(read(TOLD % (0, "")), read(TOLD % (131089, SCALE_0)))
    assert not schema_reason(read(TOLD % (0, COMMENT)), read(TOLD % (131089, SCALE_0)))
    assert not schema_reason(read(TOLD % (5, "")), read(TOLD % (131089, SCALE_0)))


def test_a_cut_may_spare_half_a_character_at_the_end() -> None:
    assert value_reason(TEXT, read('"ab\\uD83D"'), read('"ab"'))
    assert not value_reason(TEXT, read('"ab\\uD83D"'), read('"a"'))
    assert not value_reason(TEXT, read('"abc"'), read('"ab"'))


def test_only_a_key_column_that_values_leave_out_may_have_another_value() -> None:
    apart = frozenset({"id"})
    assert key_reason(apart, "id", read("0"))
    assert not key_reason(apart, "id", read("7"))
    assert not key_reason(apart, "other", read("0"))
    optional, required = (f'{{"type":"int32","optional":{flag},"field":"id"}}' for flag in ("true", "false"))
    assert key_schema_reason(apart, read(optional), read(required))
    assert not key_schema_reason(apart, read(required), read(optional))
    assert not key_schema_reason(frozenset(), read(optional), read(required))


def message(name: str, fields: str = '[{"type":"string","optional":true,"field":"payload"}]') -> object:
    return read(f'{{"type":"struct","fields":{fields},"optional":false,"name":"{name}","version":1}}')


def test_a_messages_schema_may_be_named_after_another_route() -> None:
    one, other = message("p.public.t.sales/order.Value"), message("p.public.t.crm.eu.Value")
    assert schema_reason(one, other)
    assert schema_reason(one, message("p.public.u.crm.Value")) is None
    assert schema_reason(one, message("p.public.t.Value")) is None
    row = '[{"type":"string","optional":true,"field":"id"}]'
    assert schema_reason(message("p.public.t.a.Value", row), message("p.public.t.b.Value", row)) is None
    assert schema_reason(message("p.public.t.a.Value", row), message("p.public.t.b.Value")) is None


def test_a_text_that_is_cut_to_fit_may_be_a_few_characters_longer() -> None:
    text = place('{"type":"string"}')

    def reason(wanted: int, got: int) -> str | None:
        return fitted_reason(text, read(f'"{"x" * wanted}"'), read(f'"{"x" * got}"'))

    assert reason(1380, 1381)
    assert reason(1380, 1376)
    assert reason(1380, 1385) is None
    assert reason(900, 901) is None
    assert fitted_reason(text, read(f'"{"x" * 1380}"'), read(f'"y{"x" * 1380}"')) is None
    assert value_reason(text, read(f'"{"x" * 1380}"'), read(f'"{"x" * 1381}"')) is None
