"""ExtractNewRecordState: replaces a change event with the row after the change.

A delete has no such row: an option decides about deletes and their tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import STRING
from tailrace.errors import ConfigError
from tailrace.records.layout import (
    ComputedColumn,
    Constant,
    Header,
    Member,
    Node,
    RecordLayout,
    Struct,
)
from tailrace.records.nodes import as_optional, at, is_envelope, op_of, with_defaults, with_headers
from tailrace.records.transform import ANY_TOPIC, RefusedRecord, Rewritten, Shared, VaryingLayout
from tailrace.transforms.key_or_value import is_missing
from tailrace.transforms.option_reader import OptionReader

_MODES = {
    "drop": ("drop", False),
    "tombstone": ("null", False),
    "rewrite": ("rewrite", False),
    "rewrite-with-tombstone": ("rewrite", True),
    "delete-to-tombstone": ("tombstone", False),
}
_OLDER = {"drop": "drop", "none": "null", "rewrite": "rewrite"}
_ENVELOPE_FIELDS = ("op", "ts_ms", "ts_us", "ts_ns")
_TRANSACTION_FIELDS = ("id", "total_order", "data_collection_order")
_OF_DOCUMENTS = ("array.encoding", "flatten.struct", "flatten.struct.delimiter", "sanitize.field.names")
_DELETED = "__deleted"
_PARTED = "\x00"


@dataclass(frozen=True, slots=True)
class Reference:
    """A field of the event, at `path`, that is added to rows or headers as `name`."""

    path: tuple[str, ...]
    name: str

    @classmethod
    def read(cls, text: str, prefix: str) -> Reference:
        """Parse `field` or `struct.field`, optionally followed by `:name`. Raises ConfigError."""
        place, colon, name = (part.strip() for part in text.partition(":"))
        path = tuple(place.split("."))
        if not all(path) or len(path) > 2 or (colon and not name):
            raise ConfigError(f"{text!r} names no field.", "Write field, struct.field, or either with :name behind it.")
        if len(path) == 1:
            path = (*_home(place), place)
        return cls(path, prefix + (name or place.replace(".", "_")))

    def of(self, envelope: Struct) -> Node | None:
        """Return the field as optional; None if the event has no such field."""
        found = at(envelope, self.path)
        if found is None and len(self.path) > 1:
            found = envelope.part(self.path[-1])
        return None if found is None else as_optional(found)


def _home(field: str) -> tuple[str, ...]:
    """Return the path of the struct in which a field given without a struct is searched."""
    if field in _ENVELOPE_FIELDS or field == "updateDescription":
        return ()
    return ("transaction",) if field in _TRANSACTION_FIELDS else ("source",)


@dataclass(frozen=True, slots=True)
class _Routed:
    """Maps the texts of a column to topics; the record keeps its topic if the text is null or blank."""

    topic: str | None

    def __call__(self, fields: pa.Array, topics: pa.Array | None = None) -> pa.Array:
        blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(fields)), 0)
        own = pa.scalar(self.topic) if topics is None else topics
        return pc.if_else(pc.fill_null(blank, True), own, fields)


def _joined(lists: pa.Array) -> pa.Array:
    """Join each list of names into one text."""
    return pc.binary_join(lists, _PARTED)


@dataclass(frozen=True, slots=True)
class ExtractNewRecordState:
    """A records.transform.Transform.

    `deletes` is the handling of deletes: drop, null (a null of the row's type), tombstone or rewrite; "" without an
    option for it.
    """

    deletes: str
    keeps_tombstones: bool
    route_by: str
    fields: tuple[Reference, ...]
    headers: tuple[Reference, ...]
    dropping: str
    drops_from_key: bool
    drops_optional_alone: bool
    fills_defaults: bool
    notices: tuple[str, ...] = ()

    def in_form(self, form: str) -> ExtractNewRecordState:
        """Return the transform with the defaults of the Debezium version of the event format `form`: before version 3,
        deletes and tombstones were dropped."""
        if self.deletes:
            return self
        older = int(form.partition(".")[0]) < 3
        return replace(self, deletes="drop" if older else "null", keeps_tombstones=older and self.keeps_tombstones)

    def route(self, topic: str) -> str:
        return ANY_TOPIC if self.route_by else topic

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if is_missing(record.value):
            return self._tombstone(record)
        if not is_envelope(record):
            return record
        envelope = record.value
        assert isinstance(envelope, Struct)
        op = op_of(envelope)
        if op == "t":
            return None
        record, _ = self.shared(record)
        row = envelope.part("before" if op == "d" else "after")
        if row is None:
            raise RefusedRecord(f"ExtractNewRecordState finds no field {'before' if op == 'd' else 'after'}")
        return self._deleted(record, envelope, row) if op == "d" else self._changed(record, envelope, row)

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        if not is_envelope(record):
            return record, True
        assert isinstance(record.value, Struct)
        added = ((reference.name, reference.of(record.value)) for reference in self.headers)
        return with_headers(record, *(Header(name, node) for name, node in added if node is not None)), False

    def _tombstone(self, record: RecordLayout) -> RecordLayout | None:
        if not self.keeps_tombstones:
            return None
        ops = (reference.name for reference in self.headers if reference.path == ("op",))
        return with_headers(record, *(Header(name, Constant("d", STRING)) for name in ops))

    def _changed(self, record: RecordLayout, envelope: Struct, row: Node) -> Rewritten:
        # rows that are marked have their defaults before they are routed
        record = self._routed(record, row, self.deletes == "rewrite" and self.fills_defaults)
        if isinstance(row, Struct):
            row = self._added(self._marked(row, "false"), envelope)
        return self._dropped(replace(record, value=row), None)

    def _deleted(self, record: RecordLayout, envelope: Struct, row: Node) -> Rewritten:
        if self.deletes == "drop":
            return None
        record = self._routed(record, row)
        if self.deletes == "tombstone":
            return replace(record, value=None)
        if self.deletes in ("", "null") or not isinstance(row, Struct):
            after = envelope.part("after")
            return replace(record, value=Constant(None, row.type if after is None else after.type))
        return self._dropped(replace(record, value=self._marked(row, "true")), envelope)

    def _marked(self, row: Struct, deleted: str) -> Struct:
        """Return the row as a value, with the field __deleted if deletes are rewritten as rows."""
        row = replace(row, optional=False)
        if self.deletes != "rewrite":
            return row
        if self.fills_defaults:
            row = replace(row, members=tuple(Member(part.name, with_defaults(part.node)) for part in row.members))
        return row.with_part(_DELETED, Constant(deleted, STRING.with_optional(True)))

    def _added(self, row: Struct, envelope: Struct) -> Struct:
        for reference in self.fields:
            node = reference.of(envelope)
            row = row if node is None else row.with_part(reference.name, node)
        return row

    def _routed(self, record: RecordLayout, row: Node, filled: bool = False) -> RecordLayout:
        if not self.route_by or not isinstance(row, Struct):
            return record
        field = row.part(self.route_by)
        if field is None or field.type.connect != "string":
            raise RefusedRecord(
                f"ExtractNewRecordState finds no column of text {self.route_by}, by which it is to route"
            )
        # otherwise a null is no topic, whatever its default
        field = with_defaults(field) if filled else as_optional(field)
        if isinstance(record.topic, ComputedColumn):
            return replace(record, topic=ComputedColumn((field, record.topic), _Routed(None), STRING))
        return replace(record, topic=ComputedColumn((field,), _Routed(record.topic), STRING))

    def _dropped(self, record: RecordLayout, envelope: Struct | None) -> Rewritten:
        """Return the record without the fields that its header names, then with the added fields of `envelope`."""
        header = next((header.node for header in record.headers if header.name == self.dropping), None)
        if not self.dropping or header is None or header.type.connect != "array":
            return self._without(record, (), envelope)
        if isinstance(header, Constant):
            return self._without(record, tuple(header.value or ()), envelope)
        return VaryingLayout(
            ComputedColumn((header,), _joined, STRING.with_optional(True)),
            lambda names: self._without(record, tuple((names or "").split(_PARTED)), envelope),
        )

    def _without(self, record: RecordLayout, names: tuple[str, ...], envelope: Struct | None) -> RecordLayout:
        value, key = record.value, record.key
        if isinstance(value, Struct):
            value = self._less(value, names)
            value = value if envelope is None else self._added(value, envelope)
        if self.drops_from_key and isinstance(key, Struct):
            key = self._less(key, names)
        return replace(record, value=value, key=key)

    def _less(self, struct: Struct, names: tuple[str, ...]) -> Struct:
        droppable = (
            member.name
            for member in struct.members
            if member.name in names and (member.node.type.optional or not self.drops_optional_alone)
        )
        return struct.without(*droppable)


def extract_new_record_state(options: Mapping[str, str]) -> ExtractNewRecordState:
    """Make the transform from its options, including those of Debezium 1 and 2. Raises ConfigError."""
    given = OptionReader(options)
    deletes, keeps_tombstones, notices = _deletes(given)
    fields_prefix = given.verbatim("add.fields.prefix", "__")
    headers_prefix = given.verbatim("add.headers.prefix", "__")
    fields = [Reference.read(text, fields_prefix) for text in given.names("add.fields")]
    headers = [Reference.read(text, headers_prefix) for text in given.names("add.headers")]
    for name in given.names("add.source.fields"):
        fields.append(Reference(("source", name), fields_prefix + name))
    if given.has("add.source.fields"):
        notices.append("add.source.fields is read as Debezium 1 does: add.fields takes its place.")
    if given.boolean("operation.header", False):
        headers.append(Reference(("op",), headers_prefix + "op"))
        notices.append("operation.header is read as Debezium 1 does: add.headers=op takes its place.")
    made = ExtractNewRecordState(
        deletes=deletes,
        keeps_tombstones=keeps_tombstones,
        route_by=given.text("route.by.field"),
        fields=tuple(fields),
        headers=tuple(headers),
        dropping=given.text("drop.fields.header.name"),
        drops_from_key=given.boolean("drop.fields.from.key", False),
        drops_optional_alone=given.boolean("drop.fields.keep.schema.compatible", True),
        fills_defaults=given.boolean("replace.null.with.default", True),
        notices=(*notices, *given.idle(dict.fromkeys(_OF_DOCUMENTS, "it is for documents alone"))),
    )
    given.done()
    return made


def _deletes(given: OptionReader) -> tuple[str, bool, list[str]]:
    """Return the handling of deletes, True if tombstones stay, and notices about older options."""
    newer, handling = "delete.tombstone.handling.mode", "delete.handling.mode"
    older = [name for name in (handling, "drop.deletes", "drop.tombstones") if given.has(name)]
    if given.has(newer):
        notices = [f"{name} has no effect beside {newer}." for name in older]
        return *_MODES[given.word(newer, "tombstone", tuple(_MODES))], notices
    keeps = not given.boolean("drop.tombstones", True)
    if given.has(handling) or given.has("drop.deletes"):
        kept = "none" if not given.boolean("drop.deletes", True) else "drop"
        deletes = _OLDER[given.word(handling, kept, tuple(_OLDER))]
        today = next((mode for mode, same in _MODES.items() if same == (deletes, keeps)), "")
        instead = f", as {newer}={today} says it today" if today else ""
        return deletes, keeps, [f"{' and '.join(older)}: read as Debezium 2 does{instead}; Debezium 3 ignores them."]
    notices = [f"drop.tombstones has an effect in events of Debezium 2 and 1 alone: {newer} takes its place."]
    return "", keeps, notices if older else []
