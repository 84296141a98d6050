"""Cast: converts fields, or a whole key or value, to other primitive types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.errors import ConfigError
from tailrace.formats.arrow import folded
from tailrace.formats.casts import PRIMITIVE, TYPES, cast
from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout
from tailrace.records.nodes import with_defaults
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    by_presence,
    computed_of,
    defaulted,
    defaults,
    is_missing,
    part,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class Cast:
    """A tailrace.records.transform.Transform. Without fields, `whole` is the target type of the whole key or value."""

    which: str
    fields: tuple[tuple[str, str], ...]
    whole: str
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        node = part(record, self.which)
        if node is None or is_missing(node):
            return record
        if self.whole:
            found = with_defaults(node) if self.defaults else node
            return with_part(record, self.which, _cast(found, self.whole, f"the {self.which}", self.defaults))
        struct = required_struct(record, self.which, "Cast")
        types = dict(self.fields)
        members = tuple(
            replace(member, node=_cast(member.node, types[member.name], f"the field {member.name}", self.defaults))
            if member.name in types
            else member
            for member in defaulted(struct.members, self.defaults)
        )
        return with_part(record, self.which, replace(struct, members=members))


def _cast(node: Node, word: str, field: str, defaults: bool) -> Node:
    source, target = node.type, TYPES[word]
    if source.connect not in PRIMITIVE:
        raise RefusedRecord(f"Cast cannot make {word} of {field}, which is of the type {source.connect}")
    function = partial(cast, source, target, field)
    made = target.with_optional(source.optional).with_default(_default(source, function, target))
    return computed_of(node, function, made, defaults)


def _default(source: LogicalType, function: partial[object], target: LogicalType) -> object:
    """Return the default of `source` converted to the new type, in JSON form; ABSENT without one."""
    if source.default in (ABSENT, None):
        return ABSENT
    made = folded(ComputedColumn((Constant(source.default, source),), function, target))
    assert isinstance(made, Constant)
    return made.value


def _cast_of(which: str, options: Mapping[str, str]) -> Cast:
    given = OptionReader(options)
    given.required("spec")
    fields: list[tuple[str, str]] = []
    whole = ""
    for spec in given.names("spec"):
        field, found, word = spec.rpartition(":")
        word = word.strip().lower()
        if word not in TYPES:
            raise ConfigError(f"spec: {word} is not one of the types {', '.join(TYPES)}.")
        if found:
            fields.append((field.strip(), word))
        else:
            whole = word
    if whole and (fields or len(given.names("spec")) > 1):
        raise ConfigError("spec must be one type for the whole, or a list of pairs field:type.")
    found_cast = Cast(which, tuple(fields), whole, defaults(given))
    given.done()
    return found_cast


of_key, of_value = partial(_cast_of, KEY), partial(_cast_of, VALUE)
"""Make the transform from its options, for keys and for values."""
