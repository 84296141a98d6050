"""The columns of many tables as those of one, so that a batch of many tables costs little more. Workers.

What a column's values become depends on its conversion, its null and its placeholder, and not on its table or its
name. Columns of different tables that have these in common share a place; the columns of one table each have their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tailrace.columns import TableSchema
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings
from tailrace.events.table_plan import TablePlan, table_plan
from tailrace.values.conversion import ColumnPlan

# A pool with more tables or places begins anew.
_MOST_TABLES, _MOST_PLACES = 8192, 8192


@dataclass(frozen=True, slots=True)
class Pooled:
    """A table in a pool: `plan` has the pool's places as its columns' indexes; `places` are those of the table's
    columns, -1 for a column that events do not show.

    Where `fits` is False the table is in no pool, since its key shows a column otherwise than its values do.
    """

    fits: bool
    plan: TablePlan
    places: npt.NDArray[np.int32]


class Pool:
    """The places of the columns of all tables that were asked for. `columns[i]` is how the values at place i are shown.

    One for each EventSettings; its places last until it begins anew.
    """

    def __init__(self, settings: EventSettings, form: SourceForm) -> None:
        self._settings, self._form = settings, form
        self.columns: list[ColumnPlan] = []
        self._places: dict[Hashable, list[int]] = {}
        self._tables: dict[TableSchema, Pooled] = {}

    def tables(self, tables: Iterable[TableSchema]) -> list[Pooled]:
        """The tables in the pool. What was given before may mean nothing any more."""
        if len(self._tables) > _MOST_TABLES or len(self.columns) > _MOST_PLACES:
            self.columns, self._places, self._tables = [], {}, {}
        found = []
        for table in tables:
            if table not in self._tables:
                self._tables[table] = self._pooled(table)
            found.append(self._tables[table])
        return found

    def _pooled(self, table: TableSchema) -> Pooled:
        plan = table_plan(table, self._settings, self._form)
        places = np.full(len(table.columns), -1, np.int32)
        if plan.key_apart:
            return Pooled(False, plan, places)
        used: dict[Hashable, int] = {}
        for column in plan.columns:
            kind = (column.conversion.way(), column.null, column.unavailable, column.shape)
            number = used[kind] = used.get(kind, -1) + 1
            shared = self._places.setdefault(kind, [])
            if number == len(shared):
                shared.append(len(self.columns))
                self.columns.append(replace(column, index=len(self.columns)))
            places[column.index] = shared[number]

        return Pooled(True, plan.moved(places), places)
