"""ValueToKey: makes a new key from fields of the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.records.layout import Member, RecordLayout, Struct
from tailrace.records.transform import Rewritten
from tailrace.transforms.key_or_value import VALUE, defaulted, defaults, required_field, required_struct
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class ValueToKey:
    """A tailrace.records.transform.Transform."""

    fields: tuple[str, ...]
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        value = required_struct(record, VALUE, "ValueToKey")
        members = (Member(name, required_field(value, VALUE, name, "ValueToKey")) for name in self.fields)
        return replace(record, key=Struct(defaulted(tuple(members), self.defaults)))


def value_to_key(options: Mapping[str, str]) -> ValueToKey:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("fields")
    found = ValueToKey(given.names("fields"), defaults(given))
    given.done()
    return found
