"""The schemas of a table's events, for tests that make them without records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.columns import TableSchema
from tailrace.columns.logical import LogicalType
from tailrace.events.envelope import Envelopes
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.records.layout import AFTER
from tailrace.values.conversion import ColumnPlan


class EventSchemas(NamedTuple):
    """A table's schemas: `key` is None where it has no key."""

    key: LogicalType | None
    value: LogicalType


def event_schemas(
    table: TableSchema,
    plans: Sequence[ColumnPlan],
    key: Sequence[ColumnPlan],
    settings: EventSettings,
    form: SourceForm,
) -> EventSchemas:
    """The schemas of a table whose columns are shown as `plans` and whose key is made of `key`."""
    layouts = Envelopes(table.id, plans, key, frozenset(), settings, form)
    keys = layouts.key_layout(AFTER)
    return EventSchemas(None if keys is None else keys.type, layouts.whole().type)
