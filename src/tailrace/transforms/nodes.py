"""Looking into layouts, and changing them, as transforms need it. Pure, any process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.assembly.json_text import dumps
from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.records.layout import (
    Column,
    Computed,
    Constant,
    Header,
    ImageColumn,
    Member,
    Node,
    RecordLayout,
    Struct,
    Text,
)

ENVELOPE = ".Envelope"
"""How the names of the schemas of change events end."""


@dataclass(frozen=True, slots=True)
class Picked:
    """Gives a field of the structs of an array."""

    name: str

    def __call__(self, structs: pa.Array) -> pa.Array:
        return pc.struct_field(structs, self.name)


def is_envelope(record: RecordLayout) -> bool:
    """Whether the record is a change event; tombstones are not, nor heartbeats, messages and markers."""
    return isinstance(record.value, Struct) and (record.value.name or "").endswith(ENVELOPE)


def op_of(envelope: Node | None) -> str:
    """The letter of the envelope's operation; empty where it has none."""
    node = envelope.part("op") if isinstance(envelope, Struct) else None
    return str(node.value) if isinstance(node, Constant) and node.value else ""


def opened(node: Node) -> Node:
    """The struct of constants that a constant struct is; any other node as it is."""
    if not isinstance(node, Constant) or node.type.connect != "struct" or node.value is None:
        return node
    members = (Member(field.name, Constant(node.value[field.name], field.type)) for field in node.type.fields)
    return Struct(tuple(members), node.type.name, node.type.version, node.type.optional)


def part_of(node: Node, name: str) -> Node | None:
    """The part of this name of a node; None where its type has none. Parts of a struct that is null are null."""
    node = opened(node)
    if isinstance(node, Struct):
        return node.part(name)
    kind = next((field.type for field in node.type.fields if field.name == name), None)
    if kind is None:
        return None
    kind = kind.with_optional(kind.optional or node.type.optional)
    return Constant(None, kind) if isinstance(node, Constant) else Computed((node,), Picked(name), kind)


def at(node: Node | None, path: Iterable[str]) -> Node | None:
    """The part that a path leads to; None where there is none."""
    for name in path:
        node = None if node is None else part_of(node, name)
    return node


def as_optional(node: Node) -> Node:
    """The node as an optional one without a default, whose nulls stay null."""
    if isinstance(node, Struct):
        return replace(node, optional=True)
    kind = replace(node.type, optional=True, default=ABSENT)
    match node:
        case ImageColumn():
            null = b"null" if node.type.optional else node.column.null
            return replace(node, column=replace(node.column, schema=kind, null=null))
        case Column() if node.type.default != ABSENT:
            # the snapshot's marker, the one such column
            return Column("shown_marker", kind, node.by)
        case Constant() | Column() | Text() | Computed():
            return replace(node, type=kind)


def with_type(node: Node, kind: LogicalType) -> Node:
    """The same values under another schema, for a node that is no struct."""
    match node:
        case ImageColumn():
            return replace(node, column=replace(node.column, schema=kind))
        case Constant() | Column() | Text() | Computed():
            return replace(node, type=kind)
    return node


def with_defaults(node: Node) -> Node:
    """The node with its default in the place of nulls, whatever the converter does with them."""
    if isinstance(node, ImageColumn) and node.type.optional and node.type.default not in (ABSENT, None):
        return replace(node, column=replace(node.column, null=dumps(node.type.default).encode()))
    return node


def with_headers(record: RecordLayout, *headers: Header) -> RecordLayout:
    """The record with further headers behind its own."""
    return replace(record, headers=(*record.headers, *headers))
