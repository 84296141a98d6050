"""Texts, bytes and numbers as keys, values and headers equal the output of Kafka Connect's own converters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace import formats
from tailrace.columns import Column
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT32,
    INT64,
    STRING,
    Field,
    LogicalType,
    array,
    mapping,
    semantic,
    struct,
)
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.formats.simple.java import in_header, to_string
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout
from tests.event_settings import event_settings
from tests.unit.events.changes import batch, table

RECORD = RecordLayout("c", "topic", None, None)
DECIMAL = semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="8")
MOMENT = semantic(INT64, "org.apache.kafka.connect.data.Timestamp")
DAY = semantic(INT32, "org.apache.kafka.connect.data.Date")
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def keys(chosen: EventSettings, *columns: Column, texts: tuple[str | None, ...]) -> Any:
    """Return the key of one row whose first column is the key."""
    described = table("t", columns, columns[0].name)
    (found,) = to_rows(batch(described, [("c", None, texts)]), chosen, FORM)
    return found.to_pylist()[0]


def test_a_struct_is_what_java_calls_it() -> None:
    chosen = event_settings("server", "golden", key_format="simplestring", value_format="simplestring")
    row = keys(chosen, Column("id", "int4", 23, nullable=False), Column("v", "text", 25), texts=("7", None))
    assert row["key"] == b"Struct{id=7}"
    assert row["value"].startswith(b"Struct{after=Struct{id=7},source=Struct{version=")
    row = keys(chosen, Column("name", "text", 25, nullable=False), texts=('a "b", ü',))
    assert row["key"] == 'Struct{name=a "b", ü}'.encode()


@pytest.mark.parametrize(
    ("value", "schema", "text", "header"),
    [
        ("a", STRING, "a", "a"),
        (True, BOOLEAN, "true", "true"),
        (1.0, DOUBLE, "1.0", "1.0"),
        ("NaN", DOUBLE, "NaN", "NaN"),
        (1e10, DOUBLE, "1.0E10", "1.0E10"),
        ("AQ==", BYTES, "java.nio.HeapByteBuffer[pos=0 lim=1 cap=1]", "AQ=="),
        ("AQ==", DECIMAL, "1E-8", "1E-8"),
        ("AA==", replace(DECIMAL, parameters=(("scale", "2"),)), "0.00", "0.00"),
        (["a", None], array(STRING.with_optional(True)), "[a, null]", '["a",null]'),
        ({"a": 1}, mapping(INT32), "{a=1}", '{"a":1}'),
        (0, MOMENT, "Thu Jan 01 00:00:00 UTC 1970", "00:00:00.000Z"),
        (-1, MOMENT, "Wed Dec 31 23:59:59 UTC 1969", "23:59:59.999Z"),
        (-69_120_000_000_000, MOMENT, "Sat Sep 08 00:00:00 UTC 222", "00:00:00.000Z"),
        (-62_135_769_600_000, MOMENT, "Sat Jan 01 00:00:00 UTC 1", "00:00:00.000Z"),
        (9_007_199_254_740_992, MOMENT, "Wed Oct 12 08:59:00 UTC 287396", "287396-10-12T08:59:00.992Z"),
        (2_147_483_647, DAY, "Fri Jul 11 00:00:00 UTC 5881580", "5881580-07-11"),
        (86_400_000, MOMENT, "Fri Jan 02 00:00:00 UTC 1970", "1970-01-02"),
        (86_400_001, MOMENT, "Fri Jan 02 00:00:00 UTC 1970", "1970-01-02T00:00:00.001Z"),
        (["AQ==", None], array(BYTES.with_optional(True)),
         "[java.nio.HeapByteBuffer[pos=0 lim=1 cap=1], null]", '["AQ==",null]'),
        ({"a": None, "b": 'x"\\'}, struct(Field("a", INT32.with_optional(True)), Field("b", STRING)),
         'Struct{b=x"\\}', '{"a":null,"b":"x\\"\\\\"}'),
    ],
)  # fmt: skip
def test_values_are_shown_as_java_shows_them(value: Any, schema: LogicalType, text: str, header: str) -> None:
    assert to_string(value, schema) == text
    assert in_header(value, schema) == header
    node = Constant(value, schema)
    assert formats.find("simplestring").one(node, False, RECORD) == text.encode()
    assert formats.find("simpleheader").one(node, False, RECORD) == header.encode()


def test_null_is_null() -> None:
    for name in ("simplestring", "simpleheader", "bytearray", "integer"):
        node = Constant(None, STRING.with_optional(True))
        assert formats.find(name).compile(node, True, RECORD) is None
        assert formats.find(name).one(node, True, RECORD) is None


def test_headers_of_text_are_text() -> None:
    chosen = event_settings("server", "golden", header_format="simpleheader", run_id="run")
    described = table("t", [Column("id", "int4", 23, nullable=False)], "id")
    (found,) = to_rows(batch(described, [("u", ("1",), ("2",))]), chosen, FORM)
    headers = {pair["key"]: pair["value"] for pair in found.to_pylist()[0]["headers"]}
    assert headers["__debezium.newkey"] == b'{"id":2}'
    assert headers["__debezium.context.connectorLogicalName"] == b"server"


@pytest.mark.parametrize(
    ("name", "schema", "value", "data"),
    [
        ("short", LogicalType("int16"), -2, b"\xff\xfe"),
        ("integer", INT32, 1, b"\0\0\0\1"),
        ("long", INT64, -1, b"\xff" * 8),
        ("float", LogicalType("float"), 1.5, b"\x3f\xc0\0\0"),
        ("double", DOUBLE, 1.5, b"\x3f\xf8" + b"\0" * 6),
        ("boolean", BOOLEAN, True, b"\1"),
        ("bytearray", BYTES, "AQI=", b"\1\2"),
        ("integer", semantic(INT32, "io.debezium.time.Date"), 300, b"\0\0\1\x2c"),
    ],
)
def test_numbers_and_bytes_are_as_they_are(name: str, schema: LogicalType, value: Any, data: bytes) -> None:
    assert formats.find(name).one(Constant(value, schema), True, RECORD) == data


def test_a_converter_of_one_type_says_what_it_cannot_write() -> None:
    with pytest.raises(ConversionError, match="IntegerConverter cannot write a struct, in the record c for topic"):
        formats.find("integer").compile(Constant({}, struct(Field("id", INT32))), True, RECORD)
    decimal = semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="2")
    for name in ("bytearray", "binary"):
        with pytest.raises(
            ConversionError, match="ByteArrayConverter cannot write a decimal, in the record c for topic"
        ):
            formats.find(name).compile(Constant("AQI=", decimal), True, RECORD)


class Columns:
    """A block of two records without columns."""

    index = np.zeros((5, 2), np.int32)
    kept: dict[Any, Any]
    made: dict[Any, Any]


def test_a_value_that_is_null_in_one_record_is_null() -> None:
    leaf = ComputedColumn((), lambda: pa.array([b"x", None], pa.binary()), BYTES.with_optional(True))
    for name in ("bytearray", "binary"):
        encoding = formats.find(name)
        document = encoding.compile(leaf, True, RECORD)
        found = encoding.block(Columns()).encode([document], np.zeros(2, np.int32))  # type: ignore[arg-type]
        assert found.to_pylist() == [b"x", None]


def test_what_is_no_bytes_goes_to_the_converter_beside() -> None:
    options = (("delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter"),
               ("delegate.converter.type.schemas.enable", "false"))  # fmt: skip
    encoding = formats.find(Format("binary", "value", options))
    assert encoding.one(Constant("AQI=", BYTES), True, RECORD) == b"\1\2"
    assert encoding.one(Constant(7, INT32), True, RECORD) == b"7"
    with pytest.raises(ConversionError, match="BinaryDataConverter writes only bytes"):
        formats.find("binary").one(Constant(7, INT32), True, RECORD)
    binary = "io.debezium.converters.BinaryDataConverter"
    with pytest.raises(ConfigError, match="is the same converter"):
        parse("postgres", POSTGRES | {"value.converter": binary, "value.converter.delegate.converter.type": binary})


def test_text_may_have_another_charset() -> None:
    given = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    found = parse("postgres", POSTGRES | given | {"value.converter.converter.encoding": "ISO-8859-1"})
    encoding = formats.find(EventSettings.from_options(found).value_format)
    assert encoding.one(Constant("ü", STRING), True, RECORD) == b"\xfc"
    with pytest.raises(ConversionError, match="characters that iso8859-1 does not have"):
        encoding.one(Constant("東", STRING), True, RECORD)
    with pytest.raises(ConfigError, match=r"converter\.encoding = klingon is not supported"):
        parse("postgres", POSTGRES | given | {"value.converter.converter.encoding": "klingon"})


def test_decimals_may_be_numbers() -> None:
    chosen = event_settings("server", "golden", key_format=Format("json", "key", (("decimal.format", "NUMERIC"),)))
    row = keys(
        replace(chosen, key_schemas_enable=False), Column("n", "numeric", 1700, (9 << 16 | 3) + 4, nullable=False),
        texts=("1.500",),
    )  # fmt: skip
    assert row["key"] == b'{"n":1.500}'
    kept = Constant({"n": "Bdw=", "l": ["Bdw=", None]}, struct(Field("n", DECIMAL), Field("l", array(DECIMAL))))
    found = formats.find(Format("json", "key", (("decimal.format", "NUMERIC"),))).one(kept, False, RECORD)
    assert found == b'{"n":0.00001500,"l":[0.00001500,null]}'


def test_a_converter_of_headers_is_not_one_of_values() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter = .*SimpleHeaderConverter is not supported"):
        parse("postgres", POSTGRES | {"value.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"})
    with pytest.raises(
        ConfigError, match=r"header\.converter = .*AvroConverter is not supported: headers are written by"
    ):
        parse("postgres", POSTGRES | {"header.converter": "io.confluent.connect.avro.AvroConverter"})
