"""The layout of a CloudEvent: attributes and data, from an envelope's layout or from headers. Worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import ABSENT, BYTES, STRING, LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.cloudevents.options import GENERATE, HEADER, CloudEventsOptions
from tailrace.formats.json.numeric import schema_with_numbers
from tailrace.records.layout import (
    RECORD,
    BlockColumn,
    ComputedColumn,
    Constant,
    ImageColumn,
    Member,
    Node,
    RecordLayout,
    Struct,
    Text,
)
from tailrace.values.json_text import Verbatim, schema_text

DATA = BlockColumn("cloudevents.data", BYTES, RECORD)
"""The data of events whose data has its own encoding."""

_TEXT = STRING.with_optional(True)
_NOTHING = Constant(None, _TEXT)
_IMAGES = ("before", "after", "updateDescription")
_OUTSIDE = re.compile(r"[^a-zA-Z0-9]")
_ORDERS = (("id", "txid"), ("total_order", "txtotalorder"), ("data_collection_order", "txdatacollectionorder"))


@dataclass(frozen=True, slots=True)
class EventLayout:
    """The layout of an event. If `data` is not None, it is the layout of the data, and the event's data is DATA."""

    layout: Struct
    data: Struct | None


@dataclass(frozen=True, slots=True)
class _Facts:
    """The parts of a record that make an event."""

    source: Node
    op: Node
    transaction: Node
    data: Struct


def event(value: Node, record: RecordLayout, options: CloudEventsOptions) -> EventLayout | None:
    """Return the event of a record; None if it is not a change. Raises ConversionError if a header is missing."""
    facts = _facts(value, record, options)
    if facts is None:
        return None
    connector = _text(_part(facts.source, "connector"))
    name = _text(_part(facts.source, "name"))
    attributes = [
        Member("id", _chosen(options.id, "id", record) or _id(facts.source)),
        Member("source", Constant(f"/debezium/{connector}/{name}", STRING)),
        Member("specversion", Constant("1.0", STRING)),
        Member("type", _chosen(options.type, "type", record)
               or Constant(f"io.debezium.connector.{connector}.DataChangeEvent", STRING)),
        Member("time", ComputedColumn((_part(facts.source, "ts_ms"),), iso_time, STRING)),
        Member("datacontenttype", Constant(f"application/{options.data_format}", STRING)),
    ]  # fmt: skip
    if options.data_format == "avro":
        attributes.append(Member("dataschema", Constant("", STRING)))
    if options.tracing:
        parent = _header(record, "traceparent")
        if parent is not None:
            attributes.append(Member("traceparent", parent))
    if options.extensions:
        attributes += _extensions(facts, options.nulls_stay)
    schema_name = options.schema_name or f"{name}.{_text(_part(facts.source, 'db'))}.CloudEvents.Envelope"
    data: Struct | None = facts.data
    shown: Node = DATA
    if options.data_format == "json":
        data, shown = None, _in_json(facts.data, options)
    layout = Struct((*attributes, Member("data", shown)), options.adjusted(schema_name))
    return EventLayout(layout, data)


def _facts(value: Node, record: RecordLayout, options: CloudEventsOptions) -> _Facts | None:
    if not isinstance(value, Struct):
        return None
    if options.metadata == HEADER:
        found = {name: _header(record, name) for name in ("source", "op", "transaction")}
        source, op = found["source"], found["op"]
        if source is None or op is None:
            if (value.name or "").endswith(".Envelope") or record.op in ("r", "c", "u", "d", "t"):
                raise ConversionError(
                    "CloudEventsConverter takes metadata from headers, but a record has no headers source and op.",
                    "Let HeaderFrom copy source, op and transaction into headers, or leave metadata.source out.",
                )
            return None
        data = replace(value, name=_data_name(source, record, options), version=None)
        return _Facts(source, op, found["transaction"] or _NOTHING, data)
    source, op = value.part("source"), value.part("op")
    if not (value.name or "").endswith(".Envelope") or source is None or op is None:
        return None
    images = tuple(Member(name, part) for name in _IMAGES if (part := value.part(name)) is not None)
    data = Struct(images, _data_name(source, record, options))
    return _Facts(source, op, value.part("transaction") or _NOTHING, data)


def _data_name(source: Node, record: RecordLayout, options: CloudEventsOptions) -> str:
    """Return the name of the data's schema."""
    named = _chosen(options.data_name, "dataSchemaName", record)
    if named is None:
        return options.adjusted(f"io.debezium.connector.{_text(_part(source, 'connector'))}.Data")
    if not isinstance(named, Constant) or not isinstance(named.value, str):
        raise ConversionError(
            "CloudEventsConverter takes the name of the data's schema from the header dataSchemaName, which is not a "
            "constant text.",
            "Add the header by InsertHeader.",
        )
    return named.value


def _in_json(data: Struct, options: CloudEventsOptions) -> Node:
    if not options.json_schemas:
        return data
    kind = schema_with_numbers(data.type) if options.json.numeric else data.type
    schema = Constant(Verbatim(schema_text(kind)), STRING)
    return Struct((Member("schema", schema), Member("payload", data)))


def _extensions(facts: _Facts, nulls_stay: bool) -> Iterator[Member]:
    """Yield CloudEvents' extension attributes: the operation, the source block and the place in a transaction.

    With `nulls_stay`, nulls in the source block still become their defaults in attributes.
    """
    yield Member("iodebeziumop", _as_text(facts.op))
    for part in facts.source.type.fields:
        node = _part(facts.source, part.name)
        if nulls_stay and part.type.default not in (ABSENT, None):
            node = ComputedColumn((node,), partial(_filled, part.type.default), part.type)
        yield Member("iodebezium" + _OUTSIDE.sub("", part.name), _as_text(node))
    for name, shown in _ORDERS:
        node = _as_text(_part(facts.transaction, name))
        yield Member("iodebezium" + shown, _with_type(node, _TEXT))


def _id(source: Node) -> Text:
    """Return the id of the event, made of fields of the connector's source block."""
    fields = {part.name for part in source.type.fields}
    if "change_lsn" in fields:
        shown = {"change_lsn": "change_lsn", "commit_lsn": "commit_lsn", "event_serial_no": "event_serial_no"}
    elif {"file", "pos"} <= fields:
        shown = {"file": "file", "pos": "pos"}
    elif "ord" in fields:
        shown = {"ts": "ts_ms", "ord": "ord"}
    else:
        shown = {"lsn": "lsn", "txId": "txId", "sequence": "sequence"}
    parts: list[str | BlockColumn] = ["name:", *_parts(_part(source, "name"))]
    for word, name in shown.items():
        if name in fields:
            parts += [f";{word}:", *_parts(_part(source, name))]
    return Text(tuple(parts))


def _parts(node: Node) -> tuple[str | BlockColumn, ...]:
    """Return a leaf as parts of a text."""
    if isinstance(node, Constant):
        return ("null" if node.value is None else str(node.value),)
    if isinstance(node, Text):
        return node.parts
    if isinstance(node, BlockColumn):
        return (node,)
    raise ConversionError(
        "The id of a CloudEvent cannot be made of a computed source block.",
        "Leave the transforms of source out, or take ids from headers (metadata.source=value,id:header).",
    )


def _part(node: Node, name: str) -> Node:
    """Return a part of a struct, wherever its values are."""
    if isinstance(node, Struct):
        found = node.part(name)
        if found is not None:
            return found
    kinds = {part.name: part.type for part in node.type.fields}
    if name not in kinds:
        return Constant(None, _TEXT)
    if isinstance(node, Constant):
        return Constant(None if node.value is None else node.value[name], kinds[name].with_optional(True))
    return ComputedColumn((node,), partial(_field, name), kinds[name].with_optional(True))


def _field(name: str, structs: pa.Array) -> pa.Array:
    return pc.struct_field(structs, name)


def _filled(default: Any, values: pa.Array) -> pa.Array:
    return pc.fill_null(values, default)


def _as_text(node: Node) -> Node:
    """Return a leaf as an attribute: 64-bit integers as text, without semantic types."""
    schema = node.type
    if schema.connect != "int64":
        return _with_type(node, LogicalType(schema.connect, optional=schema.optional))
    kind = STRING.with_optional(schema.optional)
    if isinstance(node, Constant):
        return Constant(None if node.value is None else str(node.value), kind)
    return ComputedColumn((node,), digits, kind)


def _with_type(node: Node, kind: LogicalType) -> Node:
    """Return the same values under another schema of their Connect type."""
    if isinstance(node, Constant | BlockColumn | Text):
        return replace(node, type=kind)
    if isinstance(node, ComputedColumn):
        return replace(node, type=kind)
    assert isinstance(node, ImageColumn)
    return ComputedColumn((node,), _same, kind)


def digits(numbers: pa.Array) -> pa.Array:
    """Return integers as text."""
    return numbers.cast(pa.int64()).cast(pa.string())


def _same(values: pa.Array) -> pa.Array:
    return values


def iso_time(milliseconds: pa.Array) -> pa.Array:
    """Return times, in ms since 1970, in the form of RFC 3339."""
    moments = milliseconds.cast(pa.int64()).cast(pa.timestamp("ms"))
    return pc.strftime(moments, format="%Y-%m-%dT%H:%M:%SZ")


def _text(node: Node) -> str:
    if isinstance(node, Constant) and node.value is not None:
        return str(node.value)
    raise ConversionError(
        "A CloudEvent needs the names of connector, server and database, which a transform has changed.",
        "Leave that transform of the source block out.",
    )


def _header(record: RecordLayout, name: str) -> Node | None:
    return next((header.node for header in record.headers if header.name == name), None)


def _chosen(where: str, name: str, record: RecordLayout) -> Node | None:
    """Return the attribute from the header with its name; None if it is generated."""
    if where == GENERATE:
        return None
    found = _header(record, name)
    if found is None:
        raise ConversionError(
            f"CloudEventsConverter takes the attribute {name} from a header, but a record has no header of that name.",
            "Add the header by InsertHeader or HeaderFrom, or have the attribute generated: metadata.source=…,"
            f"{name}:generate.",
        )
    return found
