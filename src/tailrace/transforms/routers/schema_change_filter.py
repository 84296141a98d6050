"""SchemaChangeEventFilter: drops records of schema changes by the kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import ConfigError
from tailrace.records.layout import Constant, RecordLayout, Struct
from tailrace.records.transform import Shared
from tailrace.transforms.option_reader import OptionReader

_KINDS = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")
_OPTION = "schema.change.event.exclude.list"


@dataclass(frozen=True, slots=True)
class SchemaChangeEventFilter:
    """A records.transform.Transform."""

    excluded: frozenset[str]

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> RecordLayout | None:
        changes = record.value.part("tableChanges") if isinstance(record.value, Struct) else None
        if not isinstance(changes, Constant):
            return record
        if changes.value is None:
            return None
        # a change without a table is a change of the database
        kind = changes.value[0]["type"] if changes.value else "DATABASE"
        return None if kind in self.excluded else record


def schema_change_event_filter(options: Mapping[str, str]) -> SchemaChangeEventFilter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required(_OPTION)
    kinds = frozenset(kind.upper() for kind in given.names(_OPTION))
    if not kinds <= set(_KINDS):
        raise ConfigError(f"{_OPTION} may name {', '.join(_KINDS)}.", "Correct the list.")
    given.done()
    return SchemaChangeEventFilter(kinds)
