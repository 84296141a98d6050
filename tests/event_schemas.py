"""Schemas of a table's events, for tests that build them without records."""

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
    """The schemas of a table's events. `key` is None for a table without a key."""

    key: LogicalType | None
    value: LogicalType


def event_schemas(
    table: TableSchema,
    plans: Sequence[ColumnPlan],
    key: Sequence[ColumnPlan],
    settings: EventSettings,
    form: SourceForm,
) -> EventSchemas:
    """Return the schemas of a table with the columns `plans` and the key columns `key`."""
    layouts = Envelopes(table.id, plans, key, frozenset(), settings, form)
    keys = layouts.key_layout(AFTER)
    return EventSchemas(None if keys is None else keys.type, layouts.whole().type)
