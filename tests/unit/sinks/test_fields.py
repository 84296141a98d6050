"""Fields of records get PostgreSQL types, and JDBC URLs become libpq's options."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tailrace.columns.table import Column
from tailrace.connectors.postgres.values.conversions import conversion
from tailrace.events.event_settings import EventSettings
from tailrace.sinks.jdbc.changes import Reader, UnreadableRecord, Unsupported, cells, kind_of, placeholders
from tailrace.sinks.jdbc.url import libpq


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("schema", "value", "kind", "text"),
    [
        ({"type": "int16"}, -3, "smallint", "-3"),
        ({"type": "int64"}, 2**63 - 1, "bigint", "9223372036854775807"),
        ({"type": "double"}, "1.5e300", "double precision", "1.5e300"),
        ({"type": "boolean"}, False, "boolean", "false"),
        ({"type": "bytes"}, b64(b"\x00\xff"), "bytea", "\\x00ff"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, 19_000, "date", "2022-01-08"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, -719_529, "date", "0002-12-31 BC"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, 2**31 - 1, "date", "infinity"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 86_399_999, "time(6)", "23:59:59.999000"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 86_400_000_000, "time(6)", "24:00:00.000000"),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 1_999, "time(6)", "00:00:00.000001"),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, "timestamp(6)", "1969-12-31 23:59:59.999000"),
        (
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
            -62_167_219_200_000_001,
            "timestamp(6)",
            "0002-12-31 23:59:59.999999 BC",
        ),
        (
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
            -9_223_372_036_832_400_000,
            "timestamp(6)",
            "-infinity",
        ),
        (
            {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
            1_500,
            "timestamp(6)",
            "1970-01-01 00:00:00.000001",
        ),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, -(2**63), "timestamp(6)", "-infinity"),
        ({"type": "string", "name": "io.debezium.time.IsoDate"}, "+5881580-07-11Z", "date", "infinity"),
        ({"type": "string", "name": "io.debezium.time.IsoDate"}, "-0043-03-15Z", "date", "0044-03-15 BC"),
        (
            {"type": "string", "name": "io.debezium.time.IsoTimestamp"},
            "+294247-01-10T04:00:25.2Z",
            "timestamp(6)",
            "infinity",
        ),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            "-0043-03-15T12:00:00Z",
            "timestamptz(6)",
            "0044-03-15T12:00:00Z BC",
        ),
        ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, -5, "interval", "-5 microseconds"),
        (DECIMAL | {"parameters": {"scale": "2"}}, b64(b"\xff"), "numeric", "-0.01"),
        (
            DECIMAL | {"parameters": {"scale": "2", "connect.decimal.precision": "9"}},
            b64((12_345).to_bytes(2, "big")),
            "numeric(9,2)",
            "123.45",
        ),
        (DECIMAL | {"parameters": {"scale": "-3"}}, b64(b"\x07"), "numeric", "7000"),
        (
            {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 1, "value": b64(b"\x0f")},
            "numeric",
            "1.5",
        ),
        (
            {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}},
            b64(b"\x05\x02"),
            "bit varying(10)",
            "1000000101",
        ),
        (
            {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": str(2**31 - 1)}},
            b64(b"\x05\x02"),
            "bit varying",
            "1000000101",
        ),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"a":1}', "json", '{"a":1}'),
        ({"type": "array", "items": {"type": "string"}}, ['a"\\', None, ""], "text[]", '{"a\\"\\\\",NULL,""}'),
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "int32"}}},
            [[1, 2], [None, 4]],
            "integer[]",
            '{{"1","2"},{NULL,"4"}}',
        ),
    ],
)
def test_kinds(schema: dict[str, Any], value: Any, kind: str, text: str) -> None:
    found = kind_of(schema)
    assert (found.type, found.text(value)) == (kind, text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "struct", "name": "io.debezium.data.geometry.Point"},
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {"type": "array", "items": {"type": "struct"}},
        {},
    ],
)
def test_what_has_no_type_there_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="of the type"):
        kind_of(schema)


ROW = {"type": "struct", "name": "n", "optional": False, "fields": [
    {"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"},
]}  # fmt: skip


def document(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def test_documents_are_read_with_a_schema_that_may_change() -> None:
    reader = Reader()
    odd = ROW | {"fields": [{"type": "string", "optional": True, "field": ',"payload":'}]}
    for schema, payload in ((ROW, {"id": 1, "v": "a"}), (ROW, {"id": 2, "v": None}), (odd, {',"payload":': "x"})):
        found = reader.read(document(schema, payload), "t")
        assert (found.schema, found.payload) == (schema, payload)
    assert reader.read(document(ROW, None), "t").payload is None
    assert [(cell.name, cell.text, cell.required) for cell in cells(ROW, {"id": 1, "v": None})] == [
        ("id", "1", True),
        ("v", None, False),
    ]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"id":1}', b'{"schema":null,"payload":{}}', b'{"schema":{', b"\xff"])
def test_what_has_no_schema_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        Reader().read(data, "t")


def test_a_value_against_its_schema_is_named_by_its_field_alone() -> None:
    with pytest.raises(UnreadableRecord, match="its field v has a value that its schema does not allow") as raised:
        cells({"fields": [{"type": "bytes", "field": "v"}]}, {"v": "hush hush"})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("number", ["1E+2", "12.50", "-0.001", "7", "123456789012345678901234567890.5"])
def test_decimals_may_be_numbers(number: str) -> None:
    """With decimal.format = NUMERIC; 1E+2 is base64 of another number."""
    schema = {"type": "struct", "fields": [{**DECIMAL, "parameters": {"scale": "-2"}, "field": "v"}]}
    data = b'{"schema":%b,"payload":{"v":%b}}' % (json.dumps(schema, separators=(",", ":")).encode(), number.encode())
    parsed = Reader().read(data, "t")
    assert cells(parsed.schema, parsed.payload)[0].text == number


def test_placeholders_are_known_in_every_form() -> None:
    found = placeholders(b"gone")
    assert {"gone", b64(b"gone"), "\\x676f6e65", '{"gone"}', '{"gone":"gone"}'} <= found


@pytest.mark.parametrize("binary", ["bytes", "base64", "base64-url-safe", "hex"])
@pytest.mark.parametrize("placeholder", ["__debezium_unavailable_value", "g\u00f6ne"])
def test_placeholders_of_arrays_are_those_of_events(binary: str, placeholder: str) -> None:
    settings = EventSettings(
        logical_name="p", database="d", connector="postgresql", version="3", placeholder=placeholder.encode(),
        binary_handling_mode=binary,
    )  # fmt: skip
    known = placeholders(placeholder.encode())
    for name in ("int2", "int4", "int8", "oid", "date", "bytea", "uuid", "text", "varchar", "json"):
        array = Column("v", f"_{name}", 0, kind="array", element=Column(name, name, 0))
        made = conversion(array, settings)
        assert made is not None, name
        assert made.logical.items is not None, name
        items = {"type": made.logical.items.connect, "name": made.logical.items.name}
        field = {"type": "array", "items": items, "field": "v"}
        assert cells({"fields": [field]}, {"v": made.unavailable})[0].text in known, name


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("jdbc:postgresql://h/d", {"host": "h", "port": "5432", "dbname": "d"}),
        ("jdbc:postgresql://h:1,i:2/d%20e", {"host": "h,i", "port": "1,2", "dbname": "d e"}),
        ("jdbc:postgresql://[::1]:7/d", {"host": "::1", "port": "7", "dbname": "d"}),
        ("jdbc:postgresql:d", {"host": "localhost", "port": "5432", "dbname": "d"}),
        (
            "jdbc:postgresql://h/d?ssl=true&currentSchema=a,b&ApplicationName=x&reWriteBatchedInserts=true",
            {"host": "h", "port": "5432", "dbname": "d", "sslmode": "verify-full", "options": "-csearch_path=a,b",
             "application_name": "x"},
        ),
        (
            "jdbc:postgresql://h/d?ssl=true&sslmode=require&user=u&password=p%26&targetServerType=primary",
            {"host": "h", "port": "5432", "dbname": "d", "sslmode": "require", "user": "u", "password": "p&",
             "target_session_attrs": "primary"},
        ),
    ],
)  # fmt: skip
def test_urls(url: str, options: dict[str, str]) -> None:
    assert libpq(url) == options


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://h/d", "must begin with jdbc:postgresql:"),
        ("jdbc:mysql://h/d?password=hush", r"not supported \(mysql\)"),
        ("jdbc:postgresql://u:hush@h/d", "must hold no user before the host"),
        ("jdbc:postgresql://h/d?hostRecheckSeconds=3&password=hush", "has the parameter hostRecheckSeconds"),
    ],
)
def test_urls_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        libpq(url)
    assert "hush" not in str(raised.value)
