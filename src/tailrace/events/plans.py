"""Column plans: how a table's columns are shown, given a connector's knowledge of their types. Planner, workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.assembly.json_text import dumps
from tailrace.columns import Column, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.events.names import field_name
from tailrace.events.settings import EventSettings
from tailrace.events.shaped import Declared, shaped
from tailrace.values.conversion import ColumnPlan, Conversion


@dataclass(frozen=True, slots=True)
class Types:
    """A connector's knowledge of column types.

    `conversion` returns how values are shown, None for a type that events leave out. `default` returns the default's
    JSON form, ABSENT if the schema has none. `optional` returns whether the field may be null. `declared` gives the
    types that the driver reports.
    """

    conversion: Callable[[Column, EventSettings], Conversion | None]
    default: Callable[[Column, Conversion, EventSettings], Any]
    optional: Callable[[Column], bool]
    declared: Declared


def shown_columns(
    table: TableSchema, settings: EventSettings, types: Types
) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """Return the columns of values, in the table's order, and the names of those left out as unknown."""
    plans: list[ColumnPlan] = []
    unknown: list[str] = []
    for index, column in enumerate(table.columns):
        if not settings.shaping.shows(table.id, column.name):
            continue
        known = types.conversion(column, settings)
        if known is None:
            unknown.append(column.name)
        else:
            plan = _plan(index, column, known, settings, types)
            plans.append(shaped(plan, table, column, settings, types.declared))
    return tuple(plans), tuple(unknown)


def key_columns(table: TableSchema, settings: EventSettings, types: Types) -> tuple[ColumnPlan, ...]:
    """Return the columns of the key in the key's order. No option shapes them."""
    plans: list[ColumnPlan] = []
    for name in table.key:
        index = table.index(name)
        column = table.columns[index]
        known = types.conversion(column, settings)
        if known is not None:
            plans.append(_plan(index, column, known, settings, types))
    return tuple(plans)


def _plan(index: int, column: Column, known: Conversion, settings: EventSettings, types: Types) -> ColumnPlan:
    optional = types.optional(column)
    default = types.default(column, known, settings)
    if optional:
        shown = None if default == ABSENT or not settings.replace_null_with_default else default
    else:
        missing = known.zero if known.missing is None else known.missing
        shown = missing if default in (ABSENT, None) else default
    null = dumps(shown).encode()
    unavailable = null if known.unavailable is None else dumps(known.unavailable).encode()
    schema = known.logical.with_optional(optional).with_default(default)
    return ColumnPlan(index, column.name, field_name(settings, column.name), schema, known, null, unavailable)
