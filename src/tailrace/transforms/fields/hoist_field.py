"""HoistField: wraps the key or the value in a struct with one field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tailrace.records.layout import Member, RecordLayout, Struct
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import KEY, VALUE, part, with_part
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class HoistField:
    """A tailrace.records.transform.Transform."""

    which: str
    field: str

    def rewrite(self, record: RecordLayout) -> Rewritten:
        node = part(record, self.which)
        if node is None:
            raise RefusedRecord(f"HoistField cannot make the field {self.field} of a {self.which} that is missing")
        return with_part(record, self.which, Struct((Member(self.field, node),)))


def _hoist_field(which: str, options: Mapping[str, str]) -> HoistField:
    given = OptionReader(options)
    found = HoistField(which, given.required("field"))
    given.done()
    return found


of_key, of_value = partial(_hoist_field, KEY), partial(_hoist_field, VALUE)
"""Make the transform from its options, for keys and for values."""
