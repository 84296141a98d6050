"""Pools the columns of many tables as those of one, so that a batch of many tables costs little more. Worker.

A column's conversion, null and placeholder decide what its values become; its table and name do not. So columns of
different tables that share these share a place. Columns of one table have different places.
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

# A pool with more tables or places is cleared.
_MOST_TABLES, _MOST_PLACES = 8192, 8192


@dataclass(frozen=True, slots=True)
class Pooled:
    """A table in a pool. `plan` uses the pool's places as column indexes.

    `places` has the place of each of the table's columns, -1 for a column that events do not show. `fits` is False if
    the table cannot be pooled because its key shows a column differently from its values.
    """

    fits: bool
    plan: TablePlan
    places: npt.NDArray[np.int32]


class Pool:
    """The places of the columns of all requested tables. `columns[i]` is how the values at place i are shown.

    There is one pool per EventSettings. Its places are valid until it is cleared.
    """

    def __init__(self, settings: EventSettings, form: SourceForm) -> None:
        self._settings, self._form = settings, form
        self.columns: list[ColumnPlan] = []
        self._places: dict[Hashable, list[int]] = {}
        self._tables: dict[TableSchema, Pooled] = {}

    def tables(self, tables: Iterable[TableSchema]) -> list[Pooled]:
        """Return the tables in the pool. This may clear the pool, and with it the places returned before."""
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
