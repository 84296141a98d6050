"""Each rule of acceptance covers its condition and stops where the condition ends."""

from __future__ import annotations

import base64

import pytest

from tests.golden import wire
from tests.golden.accept import Place, schema_reason, value_reason


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
DEFAULT = place('{"default":"it\'s"}', '{"default":"it"}')
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
        (DEFAULT, '"it"', '"it\'s"'),
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
        (DEFAULT, '"its"', '"it\'s"'),
    ],
)
def test_not_covered(where: Place, wanted: str, got: str) -> None:
    assert value_reason(where, read(wanted), read(got)) is None


BITS = '{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","field":"b"}'


@pytest.mark.parametrize(
    ("wanted", "got", "covered"),
    [
        (BITS, f'{{"type":"array","items":{BITS},"optional":true,"field":"b"}}', True),
        (BITS, f'{{"type":"array","items":{BITS},"optional":false,"field":"b"}}', False),
        (BITS, '{"type":"array","items":{"type":"bytes"},"optional":true,"field":"b"}', False),
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
