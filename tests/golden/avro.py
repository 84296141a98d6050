"""Avro in Confluent's wire format, read as the texts of `wire`: the payload, and the schema beside it."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Mapping
from typing import Any

from tests.golden import wire
from tests.golden.wire import NULL, Text, quote

_HEAD = 5


def opened(data: bytes, schemas: Mapping[int, str]) -> object | None:
    """Return schema and payload of bytes that name one of the schemas; None for others."""
    if len(data) < _HEAD or data[0]:
        return None
    schema = schemas.get(int.from_bytes(data[1:_HEAD], "big"))
    if schema is None:
        return None
    source = _Source(data[_HEAD:], json.loads(schema))
    payload = source.read(json.loads(schema), "")
    if source.rest():
        return Text(f"bytes behind the record: {data!r}")
    return {"schema": wire.Reader().read(schema), "payload": payload}


class _Source:
    def __init__(self, data: bytes, schema: Any) -> None:
        self._data = io.BytesIO(data)
        self._named: dict[str, tuple[Any, str]] = {}
        self._learn(schema, "")

    def rest(self) -> bytes:
        return self._data.read()

    def _learn(self, schema: Any, space: str) -> None:
        """Register the named types, wherever they are defined."""
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch, space)
        elif isinstance(schema, dict):
            if schema["type"] == "record":
                space = schema.get("namespace", space)
                self._named[f"{space}.{schema['name']}"] = schema, space
                for part in schema["fields"]:
                    self._learn(part["type"], space)
            for part in ("type", "items", "values"):
                self._learn(schema.get(part), space)

    def _long(self) -> int:
        shift = found = 0
        while True:
            byte = self._data.read(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7

    def _bytes(self) -> bytes:
        size = self._long()
        data = self._data.read(size)
        if len(data) != size:
            raise ValueError("the record ends too early")
        return data

    def read(self, schema: Any, space: str) -> object:
        """Read the next value."""
        if isinstance(schema, list):
            return self.read(schema[self._long()], space)
        if isinstance(schema, str):
            if schema not in _PLAIN:
                return self.read(*self._named[schema if "." in schema else f"{space}.{schema}"])
            return self._plain(schema)
        kind = schema["type"]
        if kind == "record":
            space = schema.get("namespace", space)
            return {part["name"]: self.read(part["type"], space) for part in schema["fields"]}
        if kind == "array":
            return self._items(schema["items"], space)
        if kind == "map":
            return dict(self._pairs(schema["values"], space))
        return self.read(kind, space)

    def _items(self, schema: Any, space: str) -> list[object]:
        found: list[object] = []
        while count := self._long():
            found += [self.read(schema, space) for _ in range(count)]
        return found

    def _pairs(self, schema: Any, space: str) -> list[tuple[str, object]]:
        found: list[tuple[str, object]] = []
        while count := self._long():
            found += [(str(quote(self._bytes().decode()))[1:-1], self.read(schema, space)) for _ in range(count)]
        return found

    def _plain(self, kind: str) -> Text:
        match kind:
            case "null":
                return NULL
            case "boolean":
                return Text("true" if self._data.read(1) == b"\x01" else "false")
            case "float" | "double":
                form = "<f" if kind == "float" else "<d"
                return Text(repr(struct.unpack(form, self._data.read(struct.calcsize(form)))[0]))
            case "bytes":
                return quote(base64.b64encode(self._bytes()).decode())
            case "string":
                return quote(self._bytes().decode())
        return Text(str(self._long()))


_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
