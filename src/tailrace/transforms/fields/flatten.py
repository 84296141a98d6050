"""Flatten: moves the fields of nested structs to the top of the key or the value, named by their whole paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.records.layout import ComputedColumn, Constant, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import PickedField, as_optional, opened, with_defaults, with_type
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    by_presence,
    copied,
    is_missing,
    part,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class Flatten:
    """A tailrace.records.transform.Transform.

    If `fills`, the fields of a null struct get their defaults, as the converter does for nulls; other null fields
    always get theirs.
    """

    which: str
    delimiter: str
    fills: bool = True

    def with_nulls(self, filled: bool) -> Flatten:
        """Return the transform for a converter that replaces nulls with defaults (`filled`), or does not."""
        return replace(self, fills=filled)

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        if is_missing(part(record, self.which)):
            return record
        struct = required_struct(record, self.which, "Flatten")
        members = tuple(self._flat(struct, "", struct.optional))
        return with_part(record, self.which, copied(struct, members, "Flatten"))

    def _flat(self, node: Node, prefix: str, optional: bool) -> Iterator[Member]:
        is_null = isinstance(opened(node), Constant)
        for name, inner in _fields(node):
            path = prefix + name
            kind = inner.type
            if kind.connect == "map":
                raise RefusedRecord(f"Flatten cannot flatten the map {path} in the {self.which}")
            may_be_null = optional or kind.optional
            if kind.connect == "struct":
                yield from self._flat(inner, path + self.delimiter, may_be_null)
            elif is_null and not self.fills:
                yield Member(path, Constant(None, kind.with_optional(may_be_null)))
            else:
                yield Member(path, _leaf(inner) if may_be_null == kind.optional else _optional(inner))


def _fields(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield name and node of each field of a struct."""
    node = opened(node)
    if isinstance(node, Struct):
        yield from ((member.name, member.node) for member in node.members)
        return
    for field in node.type.fields:
        if isinstance(node, Constant):
            yield field.name, Constant(None, field.type)
        else:
            yield field.name, ComputedColumn((node,), PickedField(field.name), field.type)


def _leaf(node: Node) -> Node:
    if isinstance(node, Constant) and node.value is None:
        return _null(node.type)
    return with_defaults(node)


def _optional(node: Node) -> Node:
    """Return a field as optional, since its struct is; it keeps its default."""
    default = node.type.default
    if isinstance(node, Constant) and node.value is None:
        return _null(node.type.with_optional(True))
    found = as_optional(node)
    return found if default == ABSENT else with_type(found, found.type.with_default(default))


def _null(kind: LogicalType) -> Constant:
    """Return a constant for null: the type's default if it has one."""
    return Constant(None if kind.default == ABSENT else kind.default, kind)


def _flatten(which: str, options: Mapping[str, str]) -> Flatten:
    given = OptionReader(options)
    found = Flatten(which, given.verbatim("delimiter", "."))
    given.done()
    return found


of_key, of_value = partial(_flatten, KEY), partial(_flatten, VALUE)
"""Make the transform from its options, for keys and for values."""
