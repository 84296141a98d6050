"""Comparison of two runs: topic by topic, in order, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.golden.accept import (
    Catalog,
    Place,
    any_order,
    key_reason,
    key_schema_reason,
    same_but_for_chunks,
    schema_reason,
    value_reason,
)
from tests.golden.misread import comparable
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS, Normaliser, payload
from tests.golden.record import Record
from tests.golden.wire import Text, same, write

WIDTH = 300
IMAGES = ("before", "after")
KEYS = (".key", ".headers.__debezium.newkey", ".headers.__debezium.oldkey")


@dataclass(frozen=True, slots=True)
class Terms:
    """The facts that a comparison needs beside the records.

    A table of more than `chunk_rows` rows may have its snapshot rows in another order (0: no table may). `heartbeats`
    and `notifications` name topics, as in Normaliser. `normaliser` makes a normaliser for another database than
    PostgreSQL. The reasons explain why a value, or a piece of a schema, may differ.
    """

    chunk_rows: int = 0
    heartbeats: str = HEARTBEATS
    notifications: str = NOTIFICATIONS
    catalog: Catalog = field(default_factory=Catalog)
    normaliser: Callable[[], Normaliser] | None = None
    value_reason: Callable[[Place, object, object], str | None] = value_reason
    schema_reason: Callable[[object, object], str | None] = schema_reason


def difference(expected: list[Record], got: list[Record], terms: Terms | None = None) -> str | None:
    """Return the first of the `differences`, or None."""
    return next(differences(expected, got, terms), None)


def differences(expected: list[Record], got: list[Record], terms: Terms | None = None) -> Iterator[str]:
    """Return the differences between a recording and a run, record by record. Both are normalised in place.

    Fixed parts are compared first, then the names of variable parts, so that a missing record is not reported as a
    shift of all log positions.
    """
    terms = terms or Terms()
    make = terms.normaliser or (lambda: Normaliser(terms.heartbeats, terms.notifications))
    sides = [make() for _ in range(2)]
    expected, got = comparable(expected, got)
    wanted, found = sides[0].normalise(expected), sides[1].normalise(got)
    equal = wanted.keys() == found.keys()
    for topic in wanted:
        if topic not in found:
            yield f"{topic}: {len(wanted[topic])} records expected, got none; {_topics(found)}"
    for topic in found:
        if topic not in wanted:
            yield f"{topic}: no records expected, got {len(found[topic])}, the first {_short(found[topic][0])}"
    shared = [topic for topic in wanted if topic in found]
    for topic in shared:
        for answer in _topic(topic, wanted[topic], found[topic], terms):
            equal = False
            yield answer
    if equal:
        for side in sides:
            side.name()
        for topic in shared:
            yield from _topic(topic, wanted[topic], found[topic], terms)


def _topics(found: dict[str, list[Record]]) -> str:
    return "got " + (", ".join(f"{topic} ({len(records)})" for topic, records in found.items()) or "nothing at all")


def _topic(topic: str, wanted: list[Record], found: list[Record], terms: Terms) -> Iterator[str]:
    different = False
    shown: frozenset[str] | None = None
    alike: set[tuple[int, int]] = set()
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        # A tombstone shows no column; the columns of the record before it count.
        shown = _shown(other) or shown
        for answer in _record(one, other, _Walk(other, terms, shown, alike)):
            if not different and terms.chunk_rows and same_but_for_chunks(wanted, found, terms.chunk_rows):
                return
            different = True
            yield f"{topic}[{index}]{answer} (of {len(wanted)} records; got {len(found)})"
    if len(wanted) != len(found):
        more, side = (wanted, "missing") if len(wanted) > len(found) else (found, "too many")
        at = min(len(wanted), len(found))
        yield f"{topic}: {len(wanted)} records expected, got {len(found)}; {side}: [{at}] {_short(more[at])}"


def _shown(record: Record) -> frozenset[str] | None:
    """Return the fields of a change event's rows; None for any other record."""
    value = payload(record.value)
    rows = [value.get(image) for image in IMAGES] if isinstance(value, dict) and "source" in value else []
    row = next((row for row in rows if isinstance(row, dict)), None)
    return None if row is None else frozenset(row)


def _record(wanted: Record, got: Record, walk: _Walk) -> Iterator[str]:
    yield from walk.part(".partition", wanted.partition, got.partition)
    yield from walk.part(".timestamp", wanted.timestamp, got.timestamp)
    yield from walk.part(".key", wanted.key, got.key)
    yield from walk.part(".value", wanted.value, got.value)
    names, others = [name for name, _ in wanted.headers], [name for name, _ in got.headers]
    if names != others:
        yield f".headers: expected {names}, got {others}"
        return
    for (name, one), (_, other) in zip(wanted.headers, got.headers, strict=True):
        yield from walk.part(f".headers.{name}", one, other)


class _Walk:
    """A search for the places where two records differ in a way that no rule of acceptance covers.

    `alike` has the identities of schemas that were found equal: records share them.
    """

    def __init__(self, got: Record, terms: Terms, shown: frozenset[str] | None, alike: set[tuple[int, int]]) -> None:
        self.alike = alike
        key = payload(got.key)
        self.apart = frozenset(key) - shown if isinstance(key, dict) and shown is not None else frozenset()
        value = payload(got.value)
        self.envelope = isinstance(value, dict) and "op" in value and "source" in value
        self.op = _string(value, "op")
        source = value.get("source") if isinstance(value, dict) else None
        self.table = (_string(source, "schema") or "", _string(source, "table") or "")
        self.terms = terms

    def part(self, path: str, wanted: object, got: object) -> Iterator[str]:
        """Compare a whole key, value or header. Texts decide, by `same`; the walk finds the place."""
        if isinstance(wanted, dict) and isinstance(got, dict) and set(wanted) == set(got) == {"schema", "payload"}:
            schemas = (id(wanted["schema"]), id(got["schema"]))
            if schemas in self.alike or same(wanted["schema"], got["schema"]):
                self.alike.add(schemas)
                if list(wanted) == list(got) and same(wanted["payload"], got["payload"]):
                    return
            if list(wanted) != list(got):
                yield f"{path}: expected the keys {_keys(wanted)}, got {_keys(got)}"
            yield from self.schema(f"{path}.schema", wanted["schema"], got["schema"])
            place = Place(wanted["schema"], got["schema"], op=self.op)
            yield from self.value(f"{path}.payload", wanted["payload"], got["payload"], place)
        elif not same(wanted, got):
            yield from self.value(path, wanted, got, Place(op=self.op))

    def schema(self, path: str, wanted: object, got: object) -> Iterator[str]:
        """Compare two schemas, or two pieces of them."""
        if same(wanted, got) or self.terms.schema_reason(wanted, got):
            return
        if path.startswith(KEYS) and key_schema_reason(self.apart, wanted, got):
            return
        if isinstance(wanted, dict) and isinstance(got, dict) and list(wanted) == list(got):
            for key in wanted:
                yield from self.schema(f"{path}.{key}", wanted[key], got[key])
        elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
            for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
                yield from self.schema(f"{path}[{index}]", one, other)
        else:
            yield _unequal(path, wanted, got)

    def value(self, path: str, wanted: object, got: object, place: Place) -> Iterator[str]:
        """Compare two values with their schemas."""
        if same(wanted, got) or self.terms.value_reason(place, wanted, got):
            return
        if isinstance(wanted, dict) and isinstance(got, dict):
            if set(wanted) != set(got) or (list(wanted) != list(got) and not any_order(place)):
                yield _unequal(path, wanted, got)
                return
            for key in wanted:
                if path.startswith(KEYS) and key_reason(self.apart, key, wanted[key]):
                    continue
                yield from self.value(f"{path}.{key}", wanted[key], got[key], self._member(path, place, key))
        elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
            inner = replace(place, wanted_schema=_items(place.wanted_schema), got_schema=_items(place.got_schema))
            for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
                yield from self.value(f"{path}[{index}]", one, other, inner)
        else:
            yield _unequal(path, wanted, got)

    def _member(self, path: str, place: Place, key: str) -> Place:
        """Return the place of a member: in a row image, a key or a flat row, it is a column."""
        root = path.removesuffix(".payload") in (".key", ".value")
        image = path.rpartition(".")[2] in IMAGES and self.envelope
        column = place.column
        if column is None and (image or (root and not (self.envelope and path.startswith(".value")))):
            column = write(Text(key))
        return Place(
            _field(place.wanted_schema, key),
            _field(place.got_schema, key),
            column,
            place.op,
            self.terms.catalog.types.get((*self.table, column)) if column else None,
        )


def _string(block: object, name: str) -> str | None:
    leaf = block.get(name) if isinstance(block, dict) else None
    return leaf.string if isinstance(leaf, Text) else None


def _field(schema: object, key: str) -> object:
    """Return the schema of one field of a struct, or of a map's values."""
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == '"map"':
        return schema.get("values")
    fields = schema.get("fields")
    found = [field for field in fields if field.get("field") == f'"{key}"'] if isinstance(fields, list) else []
    return found[0] if found else None


def _items(schema: object) -> object:
    return schema.get("items") if isinstance(schema, dict) else None


def _unequal(path: str, wanted: object, got: object) -> str:
    if isinstance(wanted, dict) and isinstance(got, dict):
        return f"{path}: expected the keys {_keys(wanted)}, got {_keys(got)}"
    if isinstance(wanted, list) and isinstance(got, list):
        count = f"expected {len(wanted)} elements, got {len(got)}"
        return f"{path}: {count}: {_cut(write(wanted))} {_cut(write(got))}"
    return f"{path}: expected {_cut(write(wanted))}, got {_cut(write(got))}"


def _keys(block: dict[str, object]) -> str:
    return "[" + ", ".join(block) + "]"


def _short(record: Record) -> str:
    return _cut(f"{write(record.key)} -> {write(record.value)}")


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}… ({len(text)} characters)"
