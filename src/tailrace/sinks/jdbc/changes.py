"""What a record says of a row: its key and its columns as texts, read from JSON with schemas. Pure, driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from tailrace.sinks.jdbc.fields import Kind, Unsupported, kind_of

Action = Literal["write", "delete", "truncate"]

_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'


class Unreadable(Exception):
    """A record that says nothing of a row, or not in a form that is known; the text holds no data."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a row: `text` is its value, None for null; `required` that it may not be null."""

    name: str
    kind: Kind
    text: str | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """A key or a value with its schema; `payload` None is null."""

    schema: Mapping[str, Any]
    payload: Any

    @property
    def is_envelope(self) -> bool:
        return str(self.schema.get("name") or "").endswith(".Envelope")


class Reader:
    """Reads JSON with schemas. The schema of a topic is the same for many records, and is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Mapping[str, Any]]] = {}

    def read(self, data: bytes, where: str) -> Parsed:
        """The document `data`; `where` names the place whose schemas are alike. Raises Unreadable."""
        start, schema = self._known.get(where, (b"", {}))
        if not start or not data.startswith(start):
            start, schema = self._begin(data)
            self._known[where] = start, schema
        try:
            return Parsed(schema, json.loads(data[len(start) : -1], parse_float=str))
        except ValueError:
            raise Unreadable("it is no JSON") from None

    def _begin(self, data: bytes) -> tuple[bytes, Mapping[str, Any]]:
        """The bytes before the payload, and the schema in them."""
        if not data.startswith(_SCHEMA):
            raise Unreadable("it has no schema")
        try:
            text = data.decode()
            schema, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA))
        except ValueError:
            raise Unreadable("it is no JSON") from None
        start = text[:end].encode() + _PAYLOAD
        if not isinstance(schema, dict) or not data.startswith(start):
            raise Unreadable("it has no schema")
        return start, schema


def header_payload(data: bytes) -> Any:
    """Return what a header of JSON holds, with a schema or without. Raises Unreadable."""
    try:
        found = json.loads(data, parse_float=str)
    except ValueError:
        raise Unreadable("a header is no JSON") from None
    return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found


def cells(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> list[Cell]:
    """The columns of a struct, in their order; raises Unreadable for a field that cannot be written."""
    found = []
    for field in schema.get("fields") or ():
        name = field["field"]
        try:
            kind = _kind(json.dumps(field))
            value = payload.get(name)
            text = None if value is None else kind.text(value)
        except Unsupported as reason:
            raise Unreadable(f"its field {name} is {reason}, which the sink does not write") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Unreadable(f"its field {name} has a value that its schema does not allow") from None
        found.append(Cell(name, kind, text, not field.get("optional", False)))
    return found


@lru_cache(maxsize=10_000)
def _kind(field: str) -> Kind:
    return kind_of(json.loads(field))


def part(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The schema of a field of a struct; empty where there is none."""
    return next((field for field in schema.get("fields") or () if field["field"] == name), {})


def placeholders(placeholder: bytes) -> frozenset[str]:
    """The texts by which an event shows a value that the database did not tell, in all its forms."""
    encoded = base64.b64encode(placeholder).decode()
    word = placeholder.decode("utf-8", "replace")
    forms = {
        word,
        encoded,
        base64.urlsafe_b64encode(placeholder).decode(),
        placeholder.hex(),
        f"\\x{placeholder.hex()}",
    }
    maps = (json.dumps({word: word}, separators=separators) for separators in ((",", ":"), (", ", ": ")))
    return frozenset({*forms, f'{{"{word}"}}', f'{{"\\\\x{placeholder.hex()}"}}', *maps})
