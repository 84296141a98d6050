"""The ids of schemas: asked for once in a process for each subject and schema, never for a record. Worker."""

from __future__ import annotations

import json
import re
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tailrace.errors import ConfigError, RegistryError
from tailrace.formats.registry import apicurio, confluent
from tailrace.formats.registry.base import Client, RegistryUnanswered
from tailrace.formats.registry.options import Access, Registry, variable

# --- shapes of Avro's schemas -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeMeaning:
    """The meaning of values beyond their type, such as a decimal's scale or a moment's unit; None if not stated.

    `is_known`: the schema states meanings, so None means that there is none.
    """

    value: Any
    is_known: bool = False


def alike(own: Any, other: Any) -> bool:
    """Return True if two shapes are equal and no meaning in `other` contradicts that in `own`."""
    if isinstance(own, TypeMeaning) and isinstance(other, TypeMeaning):
        return other.value in (None, own.value) or (own.value is None and not own.is_known)
    if isinstance(own, list) and isinstance(other, list):
        return len(own) == len(other) and all(map(alike, own, other))
    return bool(own == other)


def shape(text: str) -> Any:
    """Return the shape of an Avro schema: types with their meanings, field names in order, named types by full names.

    It decides how bytes are written and what they mean.
    """
    return _shape(json.loads(text), "", '"connect.name"' in text)


def _shape(schema: Any, space: str, tells: bool) -> Any:
    if isinstance(schema, list):
        return [_shape(branch, space, tells) for branch in schema]
    if isinstance(schema, str):
        if schema in _PLAIN:
            return [schema, TypeMeaning(None, tells)]
        return schema if "." in schema or not space else f"{space}.{schema}"
    kind = schema["type"]
    if kind in ("record", "enum", "fixed"):
        name = str(schema["name"])
        own = name.rpartition(".")[0] or str(schema.get("namespace", space))
        full = name if "." in name or not own else f"{own}.{name}"
        fields = [[part["name"], _shape(part["type"], own, tells)] for part in schema.get("fields", ())]
        meaning = [_meaning(schema, tells)] if kind == "fixed" else []
        return [kind, full, fields, schema.get("symbols"), schema.get("size"), *meaning]
    if kind in ("array", "map"):
        return [kind, _shape(schema["items" if kind == "array" else "values"], space, tells)]
    if isinstance(kind, str) and kind in _PLAIN:
        return [kind, _meaning(schema, tells)]
    return _shape(kind, space, tells)


def _meaning(schema: dict[str, Any], tells: bool) -> TypeMeaning:
    name = schema.get("connect.name")
    logical = _LOGICAL.get(str(schema.get("logicalType")))
    if _DECIMAL in (name, logical):
        scale: Any = schema.get("scale", dict(schema.get("connect.parameters") or {}).get("scale", 0))
        return TypeMeaning((_DECIMAL, int(scale)), tells)
    return TypeMeaning(_SAME.get(str(name), name) or logical, tells)


_PLAIN = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LOGICAL = {
    "decimal": _DECIMAL,
    "date": "io.debezium.time.Date",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_SAME = {f"org.apache.kafka.connect.data.{name}": f"io.debezium.time.{name}" for name in ("Date", "Time", "Timestamp")}
"""Kafka Connect's own types correspond to Debezium's of the same unit."""


# --- shapes of Protobuf's schemas -------------------------------------------------------------------------------------


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[\w.]+|\S', re.DOTALL)
_LABELS = ("optional", "required", "repeated")
_KNOWN = ("google.", "confluent.")
_CLOSING = {"{": "}", "[": "]", "<": ">"}


def proto_shape(text: str) -> Any:
    """Return the shape of a Protobuf schema: its messages in order, each with its fields and inner messages.

    Fields have the names of their types, so messages of other files are known by name only.
    """
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(("//", "/*"))]
    return _Reader(tokens).messages()


@dataclass(slots=True)
class _Reader:
    tokens: list[str]
    at: int = 0
    _lines: list[Any] = field(default_factory=list)

    def messages(self) -> list[Any]:
        """Return the messages up to the end of the text or of the enclosing message; their fields go into `_lines`."""
        found: list[Any] = []
        while self.at < len(self.tokens) and self._token != "}":
            if self._token == "message":
                name = self.tokens[self.at + 1]
                inside = _Reader(self.tokens, self.at + 3)
                messages = inside.messages()
                self.at = inside.at + 1
                found.append([name, sorted(inside._lines, key=_place), messages])
            elif self._token == "oneof":
                inside = _Reader(self.tokens, self.at + 3)
                inside.messages()
                self.at = inside.at + 1
                self._lines += inside._lines
            else:
                self._statement()
        return found

    @property
    def _token(self) -> str:
        return self.tokens[self.at]

    def _statement(self) -> None:
        """Read a field, or anything else up to its semicolon or the end of its braces."""
        words: list[str] = []
        scale = TypeMeaning(None)
        while self.at < len(self.tokens) and self._token != ";":
            if self._token in _CLOSING:
                skipped = self._skip()
                if skipped[0] == "<":
                    words[-1] += "".join(skipped)
                elif skipped[0] == "{":
                    break
                else:
                    scale = _scale(skipped)
            else:
                words.append(self._token)
                self.at += 1
        else:
            self.at += 1
        label = words.pop(0) if words and words[0] in _LABELS else ""
        if len(words) == 4 and words[2] == "=" and words[3].isdigit():
            self._lines.append([int(words[3]), label, _name(words[0]), words[1], scale])

    def _skip(self) -> list[str]:
        """Return the tokens from an opening brace to its closing one."""
        first, depth = self.at, 0
        opening, closing = self._token, _CLOSING[self._token]
        while self.at < len(self.tokens):
            depth += (self._token == opening) - (self._token == closing)
            self.at += 1
            if not depth:
                break
        return self.tokens[first : self.at]


def _place(line: list[Any]) -> tuple[int, str]:
    return line[0], line[3]


def _scale(options: list[str]) -> TypeMeaning:
    """Return the scale in the options of a decimal field."""
    pair: dict[str, str] = {}
    for place, token in enumerate(options):
        if token in "{}":
            pair = {}
        elif options[place - 1] == ":" and options[place - 2] in ("key", "value"):
            pair[options[place - 2]] = token.strip("\"'")
        if pair.get("key") == "scale" and pair.get("value", "").lstrip("-").isdigit():
            return TypeMeaning(int(pair["value"]))
    return TypeMeaning(None)


def _name(kind: str) -> str:
    """Return the name of a field's type: the last part for messages of the schema's own."""
    kind = kind.removeprefix(".")
    return kind if kind.startswith(_KNOWN) else kind.rpartition(".")[2]


# --- ids --------------------------------------------------------------------------------------------------------------


_TRIES, _WAIT = 3, 0.3
_Found = TypeVar("_Found")
_lock = threading.Lock()
_known: dict[tuple[Registry, str, str], int] = {}
_clients: dict[tuple[str, Access], Client] = {}


def prefix(registry: Registry, topic: str, schema: str, record: str | None, kind: str = "AVRO") -> bytes:
    """Return the bytes before records of this schema: a zero byte and the schema's id; nothing if ids are in headers.

    `record` is the schema's full name, None if it is not a record; `kind` is the registry's name of the schema
    language. Raises RegistryError if there is no id.
    """
    number = schema_id(registry, topic, schema, record, kind)
    if registry.in_headers:
        return b""
    return struct.pack(">bi" if registry.width == 4 else ">bq", 0, number)


def id_headers(registry: Registry, topic: str, schema: str, record: str | None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that name the schema of records; none if their bytes do. Raises like `prefix`."""
    if not registry.in_headers:
        return ()
    name, number = f"apicurio.{registry.part}.", schema_id(registry, topic, schema, record)
    word = "globalId" if registry.is_global else "contentId"
    return (name + word, struct.pack(">q", number)), (f"{name}encoding", b"BINARY")


def schema_id(registry: Registry, topic: str, schema: str, record: str | None, kind: str = "AVRO") -> int:
    """Return the id of a schema; register it if the options say so."""
    subject = registry.subject(topic, record)
    # Apicurio's converters identify a schema by its text, under whichever subject it was registered first
    by_text = registry.kind == "apicurio" and not registry.latest
    place = (registry, "" if by_text else subject, schema)
    with _lock:
        if place not in _known:
            grouped = replace(registry, group=registry.group_of(record))
            _known[place] = _asked(grouped, subject, schema, kind)
        return _known[place]


def forget() -> None:
    """Forget all ids and clients, as in a new process."""
    with _lock:
        _known.clear()
        _clients.clear()


def _asked(registry: Registry, subject: str, schema: str, kind: str) -> int:
    access = registry.access
    if not access.url:
        raise ConfigError(
            f"{registry.option} is missing.",
            "In Kafka Connect the worker may name the registry; here the configuration has to, or the environment: "
            f"{variable(registry.option)}.",
        )
    client = _clients.get((registry.kind, access))
    if client is None:
        make: Callable[[Access], Client] = confluent.Client if registry.kind == "confluent" else apicurio.Client
        client = _clients[registry.kind, access] = make(access)
    if registry.registers:
        return _answer(lambda: client.register(registry, subject, schema, kind), registry)
    if not registry.latest:
        return _answer(lambda: client.find(registry, subject, schema, kind), registry)
    number, text = _answer(lambda: client.latest(registry, subject), registry)
    if not same(schema, text, kind):
        raise RegistryError(
            f"The latest schema of the subject {subject} has other fields than the records, or other scales or units.",
            "Register the schema that the records have, or let the converter do it.",
        )
    return number


def same(own: str, other: str, kind: str) -> bool:
    """Return True if bytes written with `own` can be read with `other` and mean the same.

    Both have the same types and the same fields in the same order; decimals and moments in `other` agree with `own`.
    """
    found: Callable[[str], Any] = proto_shape if kind == "PROTOBUF" else shape
    return alike(found(own), found(other))


def _answer(ask: Callable[[], _Found], registry: Registry) -> _Found:
    """Return the registry's answer; ask again a few times if there is none."""
    for remaining in reversed(range(_TRIES)):
        try:
            return ask()
        except RegistryUnanswered as fault:
            if not remaining:
                raise RegistryError(
                    f"The schema registry of {registry.option} does not answer: {fault}.",
                    "Check that it runs and that Spark's workers can reach it; then start the query again: it goes on "
                    "where it stopped.",
                ) from None
            time.sleep(_WAIT * (_TRIES - remaining))
    raise AssertionError("unreachable")
