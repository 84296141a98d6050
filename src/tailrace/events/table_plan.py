"""What is known of a table's records before there are any: their columns and the layouts, compiled. Workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace import formats
from tailrace.columns import TableId, TableSchema
from tailrace.events import names
from tailrace.events.envelope import Envelopes, Kind
from tailrace.events.form import SourceForm
from tailrace.events.headers import Pairs, compiled
from tailrace.events.settings import EventSettings
from tailrace.records.layout import Computed
from tailrace.records.transform import rewritten
from tailrace.values.conversion import ColumnPlan


@dataclass(frozen=True, slots=True)
class KindPlan:
    """The records of a kind, compiled: `key` and `value` are documents of the encodings, None where there is none.

    `op` and `topic` are what the row schema's columns say of them, `keep` names those that are delivered. `size` is how
    many bytes each has at least.
    """

    op: str
    topic: str | Computed
    key: Any
    value: Any
    headers: Pairs
    keep: Computed | None
    size: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Everything about a table's records that does not depend on the change.

    `unknown` are the columns left out, and their types; `key_apart` are the key's columns that values leave out or
    show shaped.
    """

    layouts: Envelopes
    columns: tuple[ColumnPlan, ...]
    unknown: tuple[tuple[str, str], ...]
    key: tuple[ColumnPlan, ...]
    key_apart: tuple[ColumnPlan, ...]
    topic: str
    has_key: bool
    _kinds: dict[Kind, KindPlan | None] = field(default_factory=dict, compare=False)

    @property
    def table(self) -> TableId:
        return self.layouts.table

    def kind(self, kind: Kind) -> KindPlan | None:
        """The records of a kind; None where a transform leaves them out."""
        if kind not in self._kinds:
            self._kinds[kind] = self._compiled(kind)
        return self._kinds[kind]

    def _compiled(self, kind: Kind) -> KindPlan | None:
        settings = self.layouts.settings
        record = rewritten(self.layouts.record(kind), settings.transforms)
        if record is None:
            return None
        keys, values = formats.find(settings.key_format), formats.find(settings.value_format)
        key = None if record.key is None else keys.compile(record.key, settings.key_schemas_enable)
        value = None if record.value is None else values.compile(record.value, settings.value_schemas_enable)
        size = sum(document.size for document in (key, value) if document is not None)
        headers = compiled(record.headers, settings)
        return KindPlan(record.op, record.topic, key, value, headers, record.keep, size)

    def moved(self, places: npt.NDArray[np.int32]) -> TablePlan:
        """The plan of a table whose columns are at other indexes: column i at `places[i]`. It has no `key_apart`."""

        def at(columns: tuple[ColumnPlan, ...]) -> tuple[ColumnPlan, ...]:
            return tuple(replace(column, index=int(places[column.index])) for column in columns)

        columns, key = at(self.columns), at(self.key)
        layouts = replace(self.layouts, columns=columns, key=key)
        return replace(self, layouts=layouts, columns=columns, key=key, _kinds={})


@dataclass(frozen=True, slots=True)
class TablePlans:
    """The tables of a batch: change i is of the table `plans[of[i]]`; `of` is None where there is one table alone."""

    plans: Sequence[TablePlan]
    of: npt.NDArray[np.int32] | None

    @classmethod
    def one(cls, plan: TablePlan) -> TablePlans:
        """Those of a batch of one table."""
        return cls((plan,), None)


@lru_cache(maxsize=4096)
def table_plan(table: TableSchema, settings: EventSettings, form: SourceForm) -> TablePlan:
    """The plan of a table's records."""
    columns, unknown = form.columns(table, settings)
    key = form.key(table, settings)
    as_they_are = {plan.index for plan in columns if plan.shape is None}
    apart = tuple(plan for plan in key if plan.index not in as_they_are)
    return TablePlan(
        Envelopes(table.id, columns, key, frozenset(plan.index for plan in apart), settings, form),
        columns,
        tuple((name, table.columns[table.index(name)].type_name) for name in unknown),
        key,
        apart,
        names.topic(settings, table.id),
        bool(key) or names.table_field(settings, table.id) is not None,
    )
