"""HeaderToValue: copies or moves headers into fields of the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.columns.logical import Field, LogicalType
from tailrace.errors import ConfigError
from tailrace.records.layout import Constant, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import opened
from tailrace.records.transform import RefusedRecord, Shared
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class HeaderToValue:
    """A records.transform.Transform. `pairs` are header names with the paths of their fields."""

    pairs: tuple[tuple[str, tuple[str, ...]], ...]
    moves: bool

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        made = self.rewrite(record)
        return (record, made is record) if self.moves else (made, True)

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        value = None if record.value is None else opened(record.value)
        found = {header.name: header.node for header in record.headers}
        paths = dict(reversed(self.pairs))
        # the record's headers order the fields, whatever the order of the options
        pairs = [(name, paths[name]) for name in found if name in paths]
        if not pairs or value is None or (isinstance(value, Constant) and value.value is None):
            return record
        if not isinstance(value, Struct):
            raise RefusedRecord("HeaderToValue finds no struct in the value")
        present = {member.name for member in value.members}
        # structs that are created for paths come after all other fields
        for name, path in sorted(pairs, key=lambda pair: len(pair[1]) > 1 and pair[1][0] not in present):
            value = _placed(value, path, found[name])
        headers = record.headers
        if self.moves:
            moved = {name for name, _ in pairs}
            headers = tuple(header for header in headers if header.name not in moved)
        return replace(record, value=value, headers=headers)


def _placed(struct: Struct, path: tuple[str, ...], node: Node) -> Struct:
    """Return the struct with the node at `path`; missing structs on the path are created."""
    name, *rest = path
    if not rest:
        return struct.with_part(name, node)
    inner = struct.part(name)
    if inner is None:
        inner = Struct((), optional=True)
    inner = opened(inner)
    if isinstance(inner, Constant) and inner.type.connect == "struct":
        # a null struct stays null, and gets the field only in its schema
        return struct.with_part(name, Constant(None, _with_field(inner.type, tuple(rest), node.type)))
    if not isinstance(inner, Struct):
        raise RefusedRecord(f"HeaderToValue finds no struct in the field {name}")
    # as in Debezium, a struct that gets a field is no longer optional
    optional = inner.optional and not inner.members
    return struct.with_part(name, replace(_placed(inner, tuple(rest), node), optional=optional))


def _with_field(kind: LogicalType, path: tuple[str, ...], of: LogicalType) -> LogicalType:
    name, *rest = path
    if rest:
        inner = next((field.type for field in kind.fields if field.name == name), LogicalType("struct", optional=True))
        of = _with_field(inner, tuple(rest), of)
    members = Struct(tuple(Member(field.name, Constant(None, field.type)) for field in kind.fields))
    fields = members.with_part(name, Constant(None, of)).type.fields
    return replace(kind, fields=tuple(Field(field.name, field.type) for field in fields))


def header_to_value(options: Mapping[str, str]) -> HeaderToValue:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("headers")
    given.required("fields")
    headers, fields = given.names("headers"), given.names("fields")
    if len(headers) != len(fields):
        raise ConfigError("headers and fields are lists of one length.", "Name a field for each header.")
    moves = given.word("operation", "copy", ("copy", "move")) == "move"
    given.done()
    paths = (tuple(field.split(".")) for field in fields)
    return HeaderToValue(tuple(zip(headers, paths, strict=True)), moves)
