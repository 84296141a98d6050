"""ReplaceField: removes, keeps and renames fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import ConfigError
from tailrace.records.layout import RecordLayout
from tailrace.records.transform import Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    by_presence,
    copied,
    defaulted,
    defaults,
    is_missing,
    part,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """A tailrace.records.transform.Transform. An empty `include` keeps all fields."""

    which: str
    include: frozenset[str]
    exclude: frozenset[str]
    renames: tuple[tuple[str, str], ...]
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        if is_missing(part(record, self.which)):
            return record
        struct = required_struct(record, self.which, "ReplaceField")
        names = dict(self.renames)
        members = tuple(
            replace(member, name=names.get(member.name, member.name))
            for member in defaulted(struct.members, self.defaults)
            if member.name not in self.exclude and (not self.include or member.name in self.include)
        )
        return with_part(record, self.which, copied(struct, members, "ReplaceField"))


def _replace_field(which: str, options: Mapping[str, str]) -> ReplaceField:
    given = OptionReader(options)
    # whitelist and blacklist are the older names, which Kafka 4.0 has removed
    include = given.names("include") or given.names("whitelist")
    exclude = given.names("exclude") or given.names("blacklist")
    renames = []
    for pair in given.names("renames"):
        old, found, new = pair.partition(":")
        if not found or not old or not new or ":" in new:
            raise ConfigError("renames must be a list of pairs old:new.")
        renames.append((old, new))
    made = ReplaceField(which, frozenset(include), frozenset(exclude), tuple(renames), defaults(given))
    given.done()
    return made


of_key, of_value = partial(_replace_field, KEY), partial(_replace_field, VALUE)
"""Make the transform from its options, for keys and for values."""
