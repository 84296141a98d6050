"""Functions of transforms that work on the key or the value of a record, as Kafka Connect's do. Worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import ABSENT, BOOLEAN, LogicalType
from tailrace.formats.arrow import folded
from tailrace.records.layout import ComputedColumn, Constant, ImageColumn, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import PickedField, as_shown, opened, with_defaults
from tailrace.records.transform import RefusedRecord, Rewritten, VaryingLayout
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.arrow import arrow_array, arrow_value

KEY, VALUE = "key", "value"
_NULL = b"null"
_DEFAULTS = "replace.null.with.default"


def defaults(given: OptionReader) -> bool:
    """Read the option by which null fields get their default."""
    return given.boolean(_DEFAULTS, True)


def part(record: RecordLayout, which: str) -> Node | None:
    """Return the key or the value of a record."""
    return record.key if which == KEY else record.value


def with_part(record: RecordLayout, which: str, node: Node | None) -> RecordLayout:
    """Return the record with another key or value."""
    return replace(record, key=node) if which == KEY else replace(record, value=node)


def is_missing(node: Node | None) -> bool:
    """Return True if a key or value is null in all records of the layout."""
    return node is None or (isinstance(node, Constant) and node.value is None)


def by_presence(record: RecordLayout, which: str, rewrite: Callable[[RecordLayout], Rewritten]) -> Rewritten:
    """Rewrite a record whose key or value is one column, such as an outbox's payload: where it is null, as a null.

    A struct in one column is rewritten as a struct of its fields. Other records are rewritten as they are.
    """
    node = part(record, which)
    if node is None or isinstance(node, Struct | Constant):
        return rewrite(record)
    shown = with_part(record, which, _in_fields(node))
    if not node.type.optional:
        return rewrite(shown)
    missing = with_part(record, which, Constant(None, node.type))
    return VaryingLayout(ComputedColumn((node,), pc.is_null, BOOLEAN), partial(_rewritten, rewrite, missing, shown))


def _in_fields(node: Node) -> Node:
    """Return a column of structs as a struct of columns, any other column unchanged."""
    if node.type.connect != "struct":
        return node
    kind = node.type
    members = (
        Member(field.name, ComputedColumn((node,), PickedField(field.name), field.type)) for field in kind.fields
    )
    return Struct(tuple(members), kind.name, kind.version, kind.optional)


def _rewritten(
    rewrite: Callable[[RecordLayout], Rewritten], missing: RecordLayout, shown: RecordLayout, null: Any
) -> Rewritten:
    return rewrite(missing if null else shown)


def required_struct(record: RecordLayout, which: str, transform: str) -> Struct:
    """Return the key or the value as a struct. Raises RefusedRecord if it is missing or not a struct."""
    node = part(record, which)
    found = None if node is None else opened(node)
    if isinstance(found, Struct):
        return found
    what = "missing" if is_missing(node) else "no struct"
    raise RefusedRecord(f"{transform} needs fields, and the {which} is {what}")


def required_field(struct: Struct, which: str, field: str, transform: str) -> Node:
    """Return a field of the key or the value. Raises RefusedRecord if there is no field of this name."""
    found = struct.part(field)
    if found is None:
        raise RefusedRecord(f"{transform} finds no field {field} in the {which}")
    return found


def copied(struct: Struct, members: tuple[Member, ...], transform: str) -> Struct:
    """Return a struct of these members with the name and version of `struct`, as Kafka Connect copies schemas.

    Raises RefusedRecord if two members have the same name.
    """
    names = [member.name for member in members]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RefusedRecord(f"{transform} would make two fields {twice}")
    return Struct(members, struct.name, struct.version)


def defaulted(members: tuple[Member, ...], on: bool) -> tuple[Member, ...]:
    """Return the members as copied fields: with their defaults instead of nulls if `on`."""
    if not on:
        return members
    return tuple(replace(member, node=with_defaults(member.node)) for member in members)


def computed_of(node: Node, function: Callable[..., Any], kind: LogicalType, defaults: bool = True) -> Node:
    """Apply a function to a node's values; the result of a constant is a constant. Raises RefusedRecord.

    Without `defaults`, the function gets the nulls of a column that shows its default for nulls; its result then shows
    the default of `kind` for nulls.
    """
    if not defaults and isinstance(node, ImageColumn) and node.type.optional and node.column.null != _NULL:
        bare = replace(node, column=replace(node.column, null=_NULL))
        found = ComputedColumn((as_shown(bare),), function, kind)
        return found if kind.default in (ABSENT, None) else ComputedColumn((found,), partial(_or_default, kind), kind)
    made = ComputedColumn((as_shown(node),), function, kind)
    return folded(made) if isinstance(node, Constant) else made


def _or_default(kind: LogicalType, values: pa.Array) -> pa.Array:
    return pc.coalesce(values, arrow_array([arrow_value(kind.default, kind)], kind)[0])
