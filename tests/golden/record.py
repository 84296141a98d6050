"""Records of a topic, as in a recording and as from a run of ours."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.golden import avro, wire

_VOLATILE = (
    (re.compile(r"\b(lsn|txId|xmin|ts_ms|ts_us|ts_ns)=\d+"), r"\1=<number>"),
    (re.compile(r"\bsequence=\[[^]]*\]"), "sequence=<sequence>"),
    (re.compile(r"\bid=\d+:\d+"), "id=<transaction>"),
    (re.compile(r"\b01[0-9a-f]{6}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<run>"),
)
"""Matches parts of texts by Java's `toString` that differ in each run."""

PLACES = ("partition", "timestamp")
"""Further parts of records in some recordings."""


@dataclass(slots=True)
class Record:
    """A record with its parts parsed by `wire`; a tombstone's value is the JSON null.

    `partition` and `timestamp` are null if the record sets none, and in recordings that do not show them.
    """

    topic: str
    key: object
    value: object
    headers: list[tuple[str, object]]
    partition: object = wire.NULL
    timestamp: object = wire.NULL


class AnyReader(wire.Reader):
    """A reader of bytes of any format: JSON, Avro by the ids in `schemas`, and all others unchanged."""

    def __init__(self, schemas: Callable[[], Mapping[int, str]]) -> None:
        super().__init__()
        self.schemas = schemas

    def other(self, data: bytes) -> object:
        """Return the parsed form of bytes that are not compact JSON. Avro shows its schema as JSON does."""
        found = avro.opened(data, self.schemas())
        if found is None:
            text = _shown(data)
            if text is not None:
                return wire.quote(text)
            return {"bytes": wire.quote(base64.b64encode(data).decode())}
        self.within(found.get("payload") if isinstance(found, dict) else None)
        return found

    def within(self, event: object) -> object:
        """Return the value with nested parts opened: Avro in a CloudEvent, and a schema in place of its number, which
        is that of one registry."""
        if isinstance(event, dict) and set(event) == {"schemaId", "payload"}:
            event["schemaId"] = wire.quote(self.schemas()[int(str(event["schemaId"]))])
        if isinstance(event, dict) and "specversion" in event and event.get("datacontenttype") == '"application/avro"':
            data = base64.b64decode(event["data"].string)
            number = int.from_bytes(data[1:5], "big")
            if re.fullmatch(rf'"http://[^"]+/schemas/ids/{number}"', event["dataschema"]):
                event["dataschema"] = wire.Text('"<the address of the schema that the data names>"')
            event["data"] = self.other(data)
        return event


def schemas(path: Path) -> dict[int, str]:
    """Return the schemas of a `schemas.jsonl` by their ids; {} if there is no such file."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"]: row["schema"] for row in rows}


def recorded(path: Path) -> list[Record]:
    """Return the records of an `expected.jsonl.gz` in order."""
    known = schemas(path.with_name("schemas.jsonl"))
    reader = AnyReader(lambda: known)
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [_line(reader, line.rstrip("\n")) for line in lines]


def produced(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    reader: wire.Reader,
    places: tuple[int | None, int | None] = (None, None),
) -> Record:
    """Return a record of ours. Bytes that are not compact JSON become one opaque text, which equals no recorded one.

    `places` are its partition and its timestamp.
    """
    shown = [(name, _parse(v, reader)) for name, v in headers]
    partition, timestamp = (wire.NULL if place is None else wire.Text(str(place)) for place in places)
    return Record(topic, _parse(key, reader), _parse(value, reader), shown, partition, timestamp)


def _shown(data: bytes) -> str | None:
    """Return text without the parts of a single run; None for bytes that are not text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if any(char < " " for char in text):
        return None
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text


def _parse(data: bytes | None, reader: wire.Reader) -> object:
    if data is None:
        return wire.NULL
    try:
        found = reader.read(data.decode("utf-8"))
        return reader.within(found) if isinstance(reader, AnyReader) else found
    except ValueError as error:
        if isinstance(reader, AnyReader):
            return reader.other(data)
        return wire.Text(f"not compact JSON ({error}): {data!r}")


def _body(part: object, reader: AnyReader) -> object:
    """Return a recorded key, value or header: Avro is opened, other bytes are read as a run's, all else stays."""
    if isinstance(part, dict) and set(part) == {"bytes"}:
        return _parse(base64.b64decode(part["bytes"].string), reader)
    if not isinstance(part, dict) or set(part) != {"schema_subject", "id", "avro"}:
        return reader.within(part)
    return reader.other(base64.b64decode(part["avro"].string))


def _line(reader: AnyReader, line: str) -> Record:
    # The line holds the wire's texts unchanged.
    parts: dict[str, object] = {}
    at = 0
    for name in ("topic", "partition", "timestamp", "key", "value", "headers"):
        label = f'"{name}":'
        if not line.startswith(label, at + 1):
            if name in PLACES:
                parts[name] = wire.NULL
                continue
            raise ValueError(f"no {name} in the line {line[:80]!r}")
        parts[name], at = reader.read_head(line, at + 1 + len(label))
    topic, headers = parts["topic"], parts["headers"]
    if not isinstance(topic, wire.Text) or not isinstance(headers, list):
        raise ValueError(f"no topic or no headers in the line {line[:80]!r}")
    pairs = [(header["key"].string, _body(header["value"], reader)) for header in headers]
    key, value = _body(parts["key"], reader), _body(parts["value"], reader)
    return Record(topic.string or "", key, value, pairs, parts["partition"], parts["timestamp"])
