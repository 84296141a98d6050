"""Access to layouts, and changes of them, for transforms. Pure, any process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.records.layout import (
    BlockColumn,
    ComputedColumn,
    Constant,
    Header,
    ImageColumn,
    Member,
    Node,
    RecordLayout,
    ShownTexts,
    Struct,
    Text,
)
from tailrace.values.arrow import arrow_type_of
from tailrace.values.decimals import variable_part
from tailrace.values.json_text import dumps

ENVELOPE = ".Envelope"
"""The end of the schema names of change events."""


@dataclass(frozen=True, slots=True)
class PickedField:
    """Maps an array of structs to one of their fields."""

    name: str

    def __call__(self, structs: pa.Array) -> pa.Array:
        if pa.types.is_string(structs.type):
            # numbers with a scale each are structs in events, but texts in Arrow
            return variable_part(self.name, structs)
        return pc.struct_field(structs, self.name)


def is_envelope(record: RecordLayout) -> bool:
    """Return True if the record is a change event: no tombstone, heartbeat, message or marker."""
    return isinstance(record.value, Struct) and (record.value.name or "").endswith(ENVELOPE)


def op_of(envelope: Node | None) -> str:
    """Return the letter of the envelope's operation; "" without one."""
    node = envelope.part("op") if isinstance(envelope, Struct) else None
    return str(node.value) if isinstance(node, Constant) and node.value else ""


def opened(node: Node) -> Node:
    """Return a constant struct as a struct of constants; any other node unchanged."""
    if not isinstance(node, Constant) or node.type.connect != "struct" or node.value is None:
        return node
    members = (Member(field.name, Constant(node.value[field.name], field.type)) for field in node.type.fields)
    return Struct(tuple(members), node.type.name, node.type.version, node.type.optional)


def part_of(node: Node, name: str) -> Node | None:
    """Return the named part of a node; None if its type has no such part. Parts of a null struct are null."""
    node = opened(node)
    if isinstance(node, Struct):
        return node.part(name)
    kind = next((field.type for field in node.type.fields if field.name == name), None)
    if kind is None:
        return None
    kind = kind.with_optional(kind.optional or node.type.optional)
    return Constant(None, kind) if isinstance(node, Constant) else ComputedColumn((node,), PickedField(name), kind)


def at(node: Node | None, path: Iterable[str]) -> Node | None:
    """Return the part at the end of a path; None if there is none."""
    for name in path:
        node = None if node is None else part_of(node, name)
    return node


def as_optional(node: Node) -> Node:
    """Return the node as optional and without a default, so that its nulls stay null."""
    if isinstance(node, Struct):
        return replace(node, optional=True)
    kind = replace(node.type, optional=True, default=ABSENT)
    match node:
        case ImageColumn():
            null = b"null" if node.type.optional else node.column.null
            return replace(node, column=replace(node.column, schema=kind, null=null))
        case BlockColumn() if node.type.default != ABSENT:
            # the snapshot marker, the only column with a default
            return BlockColumn("bare_marker", kind, node.by)
        case Constant() | BlockColumn() | Text() | ComputedColumn():
            return replace(node, type=kind)


def as_shown(node: Node) -> Node | ShownTexts:
    """Return a node in the form that events show: instants with a zone as texts."""
    instants = node.type.connect == "string" and pa.types.is_temporal(arrow_type_of(node.type))
    return ShownTexts(node) if instants and isinstance(node, ImageColumn | Constant | ComputedColumn) else node


def with_type(node: Node, kind: LogicalType) -> Node:
    """Return the same values under another schema; a struct is returned unchanged."""
    match node:
        case ImageColumn():
            return replace(node, column=replace(node.column, schema=kind))
        case Constant() | BlockColumn() | Text() | ComputedColumn():
            return replace(node, type=kind)
    return node


def with_defaults(node: Node) -> Node:
    """Return the node with its default instead of nulls, whatever the converter does with nulls."""
    if isinstance(node, ImageColumn) and node.type.optional and node.type.default not in (ABSENT, None):
        return replace(node, column=replace(node.column, null=dumps(node.type.default).encode()))
    if isinstance(node, BlockColumn) and node.type.default not in (ABSENT, None):
        # the snapshot marker, the only column with a default
        return BlockColumn("filled_marker", node.type, node.by)
    return node


def with_headers(record: RecordLayout, *headers: Header) -> RecordLayout:
    """Return the record with further headers after its own."""
    return replace(record, headers=(*record.headers, *headers))
