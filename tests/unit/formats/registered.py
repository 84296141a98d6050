"""Formats whose schemas are in a registry, and records read back by these schemas."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from tailrace.config.formats import Format
from tests.property.proto_text import message_class
from tests.servers.registry import Registry


def avro(registry: Registry, part: str = "value", **options: str) -> Format:
    """Return Avro as Apicurio's converter writes it for Confluent's readers; `_` in the names of options is a dot."""
    given = {
        "apicurio.registry.as-confluent": "true",
        "apicurio.registry.auto-register": "true",
        "apicurio.registry.headers.enabled": "false",
        "apicurio.registry.url": registry.apicurio,
    }
    return Format("avro-apicurio", part, _sorted(given | _dotted(options)))


def confluent(registry: Registry, name: str, part: str = "value", **options: str) -> Format:
    """Return the format of this name, `avro` or `protobuf`, as Confluent's converter writes it."""
    return Format(name, part, _sorted({"schema.registry.url": registry.address} | _dotted(options)))


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in options.items()}


def _sorted(options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.items()))


def schema_text(registry: Registry, data: bytes) -> str:
    """Return the schema that the bytes of a record name."""
    assert data[0] == 0
    return registry.schemas[int.from_bytes(data[1:5], "big")]


def read_avro(registry: Registry, data: bytes) -> Any:
    """Return what another library reads, without logical types. It must write the same bytes again."""
    schema = fastavro.parse_schema(_plain(json.loads(schema_text(registry, data))))
    source = io.BytesIO(data[5:])
    found = fastavro.schemaless_reader(source, schema)
    assert source.read() == b""
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, found)
    assert again.getvalue() == data[5:]
    return found


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            name: part if "default" in name else _plain(part) for name, part in schema.items() if name != "logicalType"
        }
    return schema


def read_protobuf(registry: Registry, data: bytes, message: str) -> Any:
    """Return the message of this full name that google's library reads, with the schema that the bytes name."""
    assert data[5] == 0, "the first message of its file"
    return message_class(schema_text(registry, data), message).FromString(data[6:])
