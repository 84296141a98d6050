"""Records of a topic, as a recording holds them and as a run of ours yields them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from tests.golden import wire

PLACES = ("partition", "timestamp")
"""What some recordings tell besides, of the records that have it."""


@dataclass(slots=True)
class Record:
    """One record with its parts parsed by `wire`; a tombstone's value is the JSON null.

    `partition` and `timestamp` are null where the record asks for none, and in recordings that do not tell them.
    """

    topic: str
    key: object
    value: object
    headers: list[tuple[str, object]]
    partition: object = wire.NULL
    timestamp: object = wire.NULL


def recorded(path: Path) -> list[Record]:
    """The records of an `expected.jsonl.gz`, in order."""
    reader = wire.Reader()
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
    """A record of ours; bytes that are no compact JSON become one opaque text, which equals no recorded one.

    `places` are its partition and its timestamp.
    """
    shown = [(name, _parse(v, reader)) for name, v in headers]
    partition, timestamp = (wire.NULL if place is None else wire.Text(str(place)) for place in places)
    return Record(topic, _parse(key, reader), _parse(value, reader), shown, partition, timestamp)


def _parse(data: bytes | None, reader: wire.Reader) -> object:
    if data is None:
        return wire.NULL
    try:
        return reader.read(data.decode("utf-8"))
    except ValueError as error:
        return wire.Text(f"not compact JSON ({error}): {data!r}")


def _line(reader: wire.Reader, line: str) -> Record:
    # The wire's texts stand in the line as they were.
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
    pairs = [(header["key"].string, header["value"]) for header in headers]
    return Record(topic.string or "", parts["key"], parts["value"], pairs, parts["partition"], parts["timestamp"])
