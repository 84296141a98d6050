"""Documents of one shape as layouts: Kafka Connect's types for BSON's, and the columns of the values. Any process.

The schema follows from the values, so each shape of documents has its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tailrace.columns import logical
from tailrace.columns.logical import Field, LogicalType
from tailrace.connectors.mongodb.documents.tree import ArrayItems, Branch, Code, DocumentStyle, Leaves, Scalar, Tree
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.shape_kernels import WHOLE
from tailrace.connectors.mongodb.values.text_kernels import OPTIONS, PATTERN
from tailrace.errors import ConversionError
from tailrace.records.layout import Constant, Member, Node, Struct

BOOLEAN = logical.BOOLEAN.with_optional(True)
INT32 = logical.INT32.with_optional(True)
INT64 = logical.INT64.with_optional(True)
DOUBLE = logical.DOUBLE.with_optional(True)
STRING = logical.STRING.with_optional(True)
BYTES = logical.BYTES.with_optional(True)
TIME = LogicalType("int64", "org.apache.kafka.connect.data.Timestamp", 1, optional=True)
REGEX = LogicalType(
    "struct", "io.debezium.mongodb.regex", fields=(Field("regex", STRING), Field("options", STRING)), optional=True
)
_TYPES = {
    fields.DOUBLE: DOUBLE, fields.STRING: STRING, fields.BINARY: BYTES, fields.OBJECT_ID: STRING,
    fields.BOOLEAN: BOOLEAN, fields.DATE: TIME, fields.NULL: STRING, fields.REGEX: REGEX, fields.CODE: STRING,
    fields.INT32: INT32, fields.TIMESTAMP: TIME, fields.INT64: INT64, fields.DECIMAL: STRING, WHOLE: STRING,
}  # fmt: skip
_NULL = Scalar(fields.NULL, 0)
_INVALID = re.compile(r"[^a-zA-Z0-9_]")
Fields = list[tuple[str, Node]]


def shown_name(name: str, manner: DocumentStyle) -> str:
    """Return the name of a field in records."""
    if not manner.sanitize:
        return name
    found = _INVALID.sub("_", name)
    return f"_{found}" if found[:1].isdigit() else found


def type_of(tree: Tree, name: str | None, manner: DocumentStyle, inside: bool = False) -> LogicalType:
    """Return the schema of a value.

    `inside` is True within an array that is shown as a struct: there structs have names even if they are empty. Raises
    ConversionError for an array whose elements have no common schema, or for a type that Connect does not have.
    """
    match tree:
        case Scalar():
            found = _TYPES.get(tree.kind)
            if found is None:
                raise ConversionError("A document has an array with a value whose type Connect does not have.")
            return found
        case Branch():
            parts = _parts(tree, name, manner, inside)
            named = name if parts or inside or tree.is_array or not manner.today else None
            return LogicalType("struct", named, fields=_once(parts), optional=True)
        case Code():
            scope = Field("scope", type_of(tree.scope, f"{name}.scope", manner))
            return LogicalType("struct", name, fields=(Field("code", STRING), scope))
        case ArrayItems():
            return _array_type(tree, name, manner)


def _parts(tree: Branch, name: str | None, manner: DocumentStyle, inside: bool) -> list[Field]:
    """Return the fields of a struct, in order."""
    found = []
    for part, value in dict(tree.parts).items():
        if not is_left_out(value):
            shown = part if tree.is_array else shown_name(part, manner)
            found.append(Field(shown, type_of(value, _path(name, shown, tree), manner, inside or tree.is_array)))
    return found


def _path(name: str | None, part: str, tree: Branch) -> str:
    """Return the schema name of a part of a struct."""
    return f"{name}.{part}" if tree.is_array else f"{name or 'null'}.{part}"


def is_left_out(tree: Tree) -> bool:
    """Return True for a type that Connect does not have; Debezium leaves such fields out."""
    return isinstance(tree, Scalar) and tree.kind not in _TYPES


def _once(parts: list[Field]) -> tuple[Field, ...]:
    """Return the fields without duplicates. The last of equal names takes the place of the first."""
    return tuple(Field(name, kind) for name, kind in {part.name: part.type for part in parts}.items())


def _array_type(tree: ArrayItems, name: str | None, manner: DocumentStyle) -> LogicalType:
    elements = tree.elements
    if all(element == _NULL for element in elements):
        return LogicalType("array", items=STRING, optional=True)
    # All elements have the name of the array; elements of a nested array have none.
    within = None if manner.today and isinstance(elements[0], ArrayItems) else name
    kinds = [type_of(element, within, manner) for element in elements]
    merged = kinds[0]
    for other, element in zip(kinds[1:], elements[1:], strict=True):
        merged = _merged(merged, other, _NULL in (element, elements[0]), name)
    return LogicalType("array", items=merged, optional=True)


def _merged(one: LogicalType, other: LogicalType, null: bool, name: str | None) -> LogicalType:
    """Return the common schema of two elements. Raises ConversionError if there is none."""
    if one == other and not (null and one.connect != "string"):
        return one
    if one.connect == other.connect == "struct" and not null and REGEX not in (one, other):
        found = {part.name: part.type for part in one.fields}
        for part in other.fields:
            before = found.get(part.name)
            inner = f"{name}.{part.name}"
            found[part.name] = part.type if before is None else _merged(before, part.type, False, inner)
        parts = tuple(Field(field, kind) for field, kind in found.items())
        return LogicalType("struct", one.name or other.name, fields=parts, optional=True)
    if one.connect == other.connect == "array" and not null:
        assert one.items is not None
        assert other.items is not None
        if STRING in (one.items, other.items):
            # the elements of an empty array have no known type
            return one if other.items == STRING else other
        return replace(one, items=_merged(one.items, other.items, False, name))
    if null and one.connect == "struct":
        return one
    raise mixed(name)


def mixed(name: str | None) -> ConversionError:
    """Return the error for an array whose elements have no common schema."""
    return ConversionError(
        f"The array {name} has elements of different types, which a Connect array cannot have.",
        "Set array.encoding=document for the transform.",
    )


@dataclass(frozen=True, slots=True)
class Shaper:
    """Makes the layout of a tree. `leaves` makes the columns of its leaves."""

    manner: DocumentStyle
    leaves: Leaves

    def fields(self, tree: Branch, name: str | None, inside: bool = False) -> Fields:
        """Return the fields of a document that Connect can represent, in order, with their names. Raises
        ConversionError."""
        found: Fields = []
        # the last of equal names takes the place of the first
        for part, value in dict(tree.parts).items():
            if not is_left_out(value):
                shown = part if tree.is_array else shown_name(part, self.manner)
                found.append((shown, self.node(value, _path(name, shown, tree), inside or tree.is_array)))
        return found

    def node(self, tree: Tree, name: str | None, inside: bool = False) -> Node:
        """Return the layout of a value; `inside` is as for `type_of`."""
        leaves = self.leaves
        match tree:
            case Scalar(kind=fields.NULL):
                return Constant(None, STRING)
            case Scalar(kind=fields.REGEX):
                parts = (("regex", PATTERN), ("options", OPTIONS))
                members = (Member(part, leaves.column(tree, STRING, which)) for part, which in parts)
                return Struct(tuple(members), REGEX.name, optional=True)
            case Branch():
                found = self.fields(tree, name, inside)
                named = name if found or inside or tree.is_array or not self.manner.today else None
                return struct(found, named, optional=True)
            case Code():
                scope = self.node(tree.scope, f"{name}.scope")
                return struct([("code", leaves.column(tree, STRING)), ("scope", scope)], name)
        return leaves.column(tree, type_of(tree, name, self.manner))


def struct(found: Fields, name: str | None, optional: bool = False) -> Struct:
    """Return a struct of named values. The last of equal names takes the place of the first."""
    return Struct(tuple(Member(field, node) for field, node in dict(found).items()), name, optional=optional)


def flattened(found: Fields, delimiter: str, arrays: bool) -> Fields:
    """Return the fields with nested structs replaced by their parts, under joined names. `arrays`: arrays may stay."""
    flat: Fields = []
    for name, node in found:
        if isinstance(node, Struct):
            parts = [(f"{name}{delimiter}{member.name}", member.node) for member in node.members]
            flat += flattened(parts, delimiter, arrays)
        elif node.type.connect == "array" and not arrays:
            raise ConversionError(
                f"The field {name} is an array, which flatten.struct of event.format=1.1 cannot flatten.",
                "Set array.encoding=document for the transform.",
            )
        else:
            flat.append((name, node))
    names = [name for name, _ in flat]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConversionError(
            f"flatten.struct makes two fields with the name {twice}.", "Choose another flatten.struct.delimiter."
        )
    return flat
