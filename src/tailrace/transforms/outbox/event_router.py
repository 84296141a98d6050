"""EventRouter: turns the rows of an outbox table into messages, routed by one of their columns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BOOLEAN, INT64, STRING
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import substituted
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, Header, Leaf, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import as_optional, is_envelope, op_of, opened, with_defaults
from tailrace.records.transform import (
    ANY_TOPIC,
    LeftOutRecords,
    RefusedRecord,
    Rewritten,
    VaryingLayout,
    by_distinct,
    either,
)
from tailrace.transforms.key_or_value import is_missing
from tailrace.transforms.option_reader import OptionReader
from tailrace.transforms.outbox import json_shapes
from tailrace.transforms.outbox.json_kernels import signatures

log = logging.getLogger("tailrace")
_PLACES = ("header", "envelope", "partition")
_MOMENTS = (
    "io.debezium.time.Timestamp",
    "io.debezium.time.MicroTimestamp",
    "io.debezium.time.NanoTimestamp",
    "org.apache.kafka.connect.data.Timestamp",
)
_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes."""
_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}
_TIME = INT64.with_optional(True)
_KEY, _OLDER_KEY = "table.field.event.key", "table.field.event.payload.id"
_IDLE = {
    "table.field.event.type": "Debezium declares it and does not use it",
    "tracing.span.context.field": "no spans are traced",
    "tracing.operation.name": "no spans are traced",
    "tracing.with.context.field.only": "no spans are traced",
}
_told: set[str] = set()


@dataclass(frozen=True, slots=True)
class Placement:
    """A column of the outbox and its place: header, envelope (the value) or partition. `alias` is its name there."""

    column: str
    place: str
    alias: str

    @classmethod
    def read(cls, text: str) -> Placement:
        """Parse `column:place` or `column:place:alias`. Raises ConfigError."""
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in (2, 3) or not all(parts) or parts[1].lower() not in _PLACES:
            raise ConfigError(
                f"{text!r} places no column.", "Write column:header, column:envelope or column:partition, each :alias."
            )
        return cls(parts[0], parts[1].lower(), parts[2] if len(parts) == 3 else parts[0])


@dataclass(frozen=True, slots=True)
class _Topics:
    """Maps routing values to topics. Raises RefusedRecord for a null."""

    field: str
    regex: str
    replacement: str

    def __call__(self, values: pa.Array) -> pa.Array:
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            raise RefusedRecord(f"EventRouter finds no value in the field {self.field}, by which it routes", row)
        return by_distinct(self.named, pa.string(), values)

    def named(self, value: str) -> str:
        """Return the topic of one value."""
        found = substituted(compile_groups(self.regex), self.replacement, value)
        return value if found is None else found


@dataclass(frozen=True, slots=True)
class _Shape:
    """Maps payloads to their schemas as text; null for a payload that stays a text."""

    shapes: json_shapes.Shapes

    def __call__(self, payloads: pa.Array) -> pa.Array:
        known = pc.dictionary_encode(signatures(payloads))
        codes = known.indices.to_numpy()
        first = np.zeros(len(known.dictionary), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        made = [self._written(payload) for payload in payloads.take(pa.array(first)).to_pylist()]
        return pa.array(made, pa.string()).take(known.indices)

    def _written(self, payload: str | None) -> str | None:
        if payload is None or not payload.startswith(("{", "[")):
            return None
        try:
            return json_shapes.written(self.shapes.of_text(payload))
        except json_shapes.UnclearJson:
            if "payload" not in _told:
                _told.add("payload")
                log.warning(
                    "EventRouter leaves payloads as they are if their JSON is not an object or has mixed types."
                )
            return None


@dataclass(frozen=True, slots=True)
class _Expanded:
    """Maps payloads of the same schema to their values."""

    schema: str

    def __call__(self, payloads: pa.Array) -> pa.Array:
        return json_shapes.array_of_texts(payloads, json_shapes.read(self.schema))


def _is_blank(payloads: pa.Array) -> pa.Array:
    """Return a mask of the payloads that are null or consist of blanks."""
    if not pa.types.is_string(payloads.type):
        return payloads.is_null()
    return pc.fill_null(pc.equal(pc.binary_length(pc.utf8_trim(payloads, characters=_BLANKS)), 0), True)


def _milliseconds(moments: pa.Array, times: pa.Array) -> pa.Array:
    """Return moments in ms since 1970; for nulls the times of the events."""
    return pc.coalesce(pc.divide(moments.cast(pa.int64()), _PER_MS[moments.type.unit]), times)


@dataclass(frozen=True, slots=True)
class EventRouter:
    """A records.transform.Transform. Each field is the option with nearly the same name."""

    event_id: str
    key: str
    payload: str
    timestamp: str
    version: str
    placements: tuple[Placement, ...]
    needs_placed: bool
    invalid: str
    shapes: json_shapes.Shapes | None
    route_by: str
    regex: str
    replacement: str
    tombstones: bool
    notices: tuple[str, ...] = ()

    @property
    def places_partitions(self) -> bool:
        """True if records may name their partition."""
        return any(placement.place == "partition" for placement in self.placements)

    @property
    def places_times(self) -> bool:
        """True if records have a timestamp of their own."""
        return bool(self.timestamp)

    def route(self, topic: str) -> str:
        return ANY_TOPIC

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if is_missing(record.value):
            return None
        if not is_envelope(record):
            return record
        assert isinstance(record.value, Struct)
        op = op_of(record.value)
        if op == "d":
            return None
        if op not in ("c", "r"):
            return self._invalid(op)
        row = record.value.part("after")
        row = None if row is None else opened(row)
        if not isinstance(row, Struct):
            raise RefusedRecord("EventRouter finds no row in the field after")
        return self._routed(record, record.value, row)

    def _invalid(self, op: str) -> Rewritten:
        what = {"u": "an update", "t": "a truncate"}.get(op, f"an operation {op}")
        if self.invalid == "fatal":
            raise RefusedRecord(
                f"EventRouter takes no {what.partition(' ')[2]} of an outbox (table.op.invalid.behavior)"
            )
        return LeftOutRecords(f"{what} of an outbox, which EventRouter leaves out", is_error=self.invalid == "error")

    def _routed(self, record: RecordLayout, envelope: Struct, row: Struct) -> Rewritten:
        # as in Debezium, nulls are their defaults, except those that place a message or date it
        payload, route = with_defaults(self._column(row, self.payload)), as_optional(self._column(row, self.route_by))
        if route.type.connect != "string":
            raise RefusedRecord(f"EventRouter needs a text in the field {self.route_by}, by which it routes")
        topics = _Topics(self.route_by, self.regex, self.replacement)
        placed = [(placement, row.part(placement.column)) for placement in self.placements]
        missing = next((placement.column for placement, node in placed if node is None), None)
        if missing is not None and self.needs_placed:
            raise RefusedRecord(f"EventRouter finds no column {missing}, which is to be placed")
        found = [(placement, with_defaults(node)) for placement, node in placed if node is not None]
        headers = [Header("id", with_defaults(self._column(row, self.event_id)))]
        headers += [Header(placement.alias, node) for placement, node in found if placement.place == "header"]
        key = row.part(self.key)
        base = replace(
            record,
            topic=ComputedColumn((route,), topics, STRING),
            key=None if key is None else with_defaults(key),
            headers=(*record.headers, *headers),
            partition=self._partition(found),
            timestamp=self._timestamp(envelope, row),
        )
        values = _Values(self, base, row, route, topics, payload, found)
        made: Rewritten = values.of_payload(payload)
        if self.shapes is not None and payload.type.connect == "string":
            kinds = ComputedColumn((payload,), _Shape(self.shapes), STRING.with_optional(True))
            made = VaryingLayout(kinds, values.of_shape)
        if self.tombstones:
            return either(ComputedColumn((payload,), _is_blank, BOOLEAN), replace(base, value=None), made)
        return made

    def _column(self, row: Struct, name: str) -> Node:
        found = row.part(name)
        if found is None:
            raise RefusedRecord(f"EventRouter finds no column {name}")
        return found

    def _partition(self, placed: list[tuple[Placement, Node]]) -> Leaf | None:
        node = next((node for placement, node in placed if placement.place == "partition"), None)
        if node is None:
            return None
        if isinstance(node, Struct) or node.type.connect != "int32":
            raise RefusedRecord("EventRouter needs an int32 in the column that names the partition")
        found = as_optional(node)
        assert not isinstance(found, Struct)
        return found

    def _timestamp(self, envelope: Struct, row: Struct) -> Leaf | None:
        time = envelope.part("ts_ms")
        if not self.timestamp:
            return None if time is None or isinstance(time, Struct) else time
        node = self._column(row, self.timestamp)
        if node.type.name not in _MOMENTS:
            raise RefusedRecord(f"EventRouter needs a timestamp without time zone in the field {self.timestamp}")
        inputs = as_optional(node), Constant(None, _TIME) if time is None else time
        return ComputedColumn(inputs, _milliseconds, _TIME)


@dataclass(frozen=True, slots=True)
class _Values:
    """Builds the messages of one layout for a payload."""

    router: EventRouter
    base: RecordLayout
    row: Struct
    route: Node
    topics: _Topics
    payload: Node
    placed: list[tuple[Placement, Node]]

    def of_shape(self, schema: str | None) -> Rewritten:
        """Return the messages whose payload has this schema; for None, the payload stays a text."""
        if schema is None:
            return self.of_payload(self.payload)
        kind = json_shapes.read(schema)
        return self.of_payload(ComputedColumn((self.payload,), _Expanded(schema), kind))

    def of_payload(self, payload: Node) -> Rewritten:
        """Return the messages with this payload: alone, or in a struct with the columns placed in the envelope."""
        beside = [Member(placement.alias, node) for placement, node in self.placed if placement.place == "envelope"]
        if not beside:
            return replace(self.base, value=payload)
        value = Struct((Member("payload", payload), *beside), self.row.name)
        if not self.router.version:
            return VaryingLayout(self.route, partial(self._named, value))
        version = self.router._column(self.row, self.router.version)
        if version.type.connect != "int32":
            raise RefusedRecord(f"EventRouter needs an int32 in the field {self.router.version}, the schema's version")
        return VaryingLayout(as_optional(version), partial(self._versioned, value))

    def _versioned(self, value: Struct, version: Any) -> Rewritten:
        return VaryingLayout(self.route, partial(self._named, replace(value, version=version)))

    def _named(self, value: Struct, route: Any) -> Rewritten:
        """Name the schema after the row's, with the routing value inserted before the last part."""
        if route is None:
            return replace(self.base, value=value)
        start, _, last = (self.row.name or "").rpartition(".")
        return replace(self.base, topic=self.topics.named(route), value=replace(value, name=f"{start}.{route}.{last}"))


def event_router(options: Mapping[str, str]) -> EventRouter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    expands = given.boolean("table.expand.json.payload", False)
    nulls = given.word("table.json.payload.null.behavior", "ignore", ("ignore", "optional_bytes")) != "ignore"
    regex, replacement = given.substitution(
        "route.topic.regex", "route.topic.replacement", ("(?<routedByValue>.*)", "outbox.event.${routedByValue}")
    )
    payload = given.text("table.field.event.payload", "payload")
    needs_placed = given.word("table.field.additional.missing", "error", ("error", "ignore")) == "error"
    made = EventRouter(
        event_id=given.text("table.field.event.id", "id"),
        key=given.text(_KEY, given.text(_OLDER_KEY, "aggregateid")),
        payload=payload,
        timestamp=given.text("table.field.event.timestamp"),
        version=given.text("table.field.event.schema.version"),
        placements=tuple(map(Placement.read, given.names("table.fields.additional.placement"))),
        needs_placed=given.boolean("table.fields.additional.error.on.missing", needs_placed),
        invalid=given.word("table.op.invalid.behavior", "warn", ("warn", "error", "fatal")),
        shapes=json_shapes.Shapes(nulls, payload) if expands else None,
        route_by=given.text("route.by.field", "aggregatetype"),
        regex=regex,
        replacement=replacement,
        tombstones=given.boolean("route.tombstone.on.empty.payload", False),
        notices=_notices(given),
    )
    given.done()
    return made


def _notices(given: OptionReader) -> tuple[str, ...]:
    """Return notices about options without effect, and about older names."""
    idle = given.idle(_IDLE)
    if not given.has(_OLDER_KEY):
        return idle
    beside = (
        f"has no effect beside {_KEY}" if given.has(_KEY) else f"is the older name of {_KEY}, which Debezium 3 reads"
    )
    return (*idle, f"{_OLDER_KEY} {beside}.")
