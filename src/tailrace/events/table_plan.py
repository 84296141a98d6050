"""Table plans: a table's columns and compiled layouts, prepared before there are records. Worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace import formats
from tailrace.columns import TableId, TableSchema
from tailrace.events import names
from tailrace.events.envelope import Envelopes, RecordVariant
from tailrace.events.event_settings import EventSettings
from tailrace.events.headers import Pairs, compiled
from tailrace.events.mapping import SourceForm
from tailrace.events.typed_rows import as_typed
from tailrace.records.layout import AFTER, ComputedColumn, Leaf, Node, Struct
from tailrace.records.transform import LeftOutRecords, Rewritten, VaryingLayout, rewritten
from tailrace.values.conversion import ColumnPlan

# Number of layouts kept, if they depend on values.
_MOST_KINDS = 1024


@dataclass(frozen=True, slots=True)
class KindPlan:
    """The compiled layout of a kind of records: `key` and `value` are compiled layouts; None if there is none.

    `op`, `topic`, `partition` and `timestamp` are the row's columns. Each record has at least `size` bytes.
    `shows_after`: the records are envelopes with an image of the row after the change.
    """

    op: str
    topic: str | ComputedColumn
    key: Any
    value: Any
    headers: Pairs
    size: int
    partition: Leaf | None = None
    timestamp: Leaf | None = None
    shows_after: bool = False


@dataclass(slots=True)
class SplitPlan:
    """The layout of records that depends on values: records with the value v of `by` are of the kind `of(v)`."""

    by: Node
    _of: Callable[[Any], Rewritten]
    _settings: EventSettings
    _kinds: dict[Any, AnyPlan | LeftOutRecords | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The largest `size`, in bytes, of the kinds known so far."""
        return max((kind.size for kind in self._kinds.values() if isinstance(kind, AnyPlan)), default=0)

    def of(self, value: Any) -> AnyPlan | LeftOutRecords | None:
        """Return the plan of records with this value; None if they are left out. Raises RefusedRecord."""
        if value not in self._kinds:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[value] = compiled_record(self._of(value), self._settings)
        return self._kinds[value]


AnyPlan = KindPlan | SplitPlan


def compiled_record(record: Rewritten, settings: EventSettings) -> AnyPlan | LeftOutRecords | None:
    """Return the plan of records of a layout after the transforms; None if they are left out."""
    if record is None or isinstance(record, LeftOutRecords):
        return record
    if isinstance(record, VaryingLayout):
        return SplitPlan(record.by, record.of, settings)
    keys, values = formats.find(settings.key_encoding), formats.find(settings.value_encoding)
    key = None if record.key is None else keys.compile(record.key, settings.key_schemas_enable, record)
    value = None if record.value is None else values.compile(record.value, settings.value_schemas_enable, record)
    size = sum(document.size for document in (key, value) if document is not None)
    headers = compiled(record, settings)
    shows = isinstance(record.value, Struct) and isinstance(record.value.part(AFTER), Struct)
    return KindPlan(record.op, record.topic, key, value, headers, size, record.partition, record.timestamp, shows)


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Everything about a table's records that does not depend on the change.

    `unknown` are the columns left out, with their types; `key_apart` are the key columns that values leave out or show
    shaped.
    """

    layouts: Envelopes
    columns: tuple[ColumnPlan, ...]
    unknown: tuple[tuple[str, str], ...]
    key: tuple[ColumnPlan, ...]
    key_apart: tuple[ColumnPlan, ...]
    has_key: bool
    _kinds: dict[RecordVariant, AnyPlan | LeftOutRecords | None] = field(default_factory=dict, compare=False)

    @property
    def table(self) -> TableId:
        return self.layouts.table

    def kind(self, kind: RecordVariant) -> AnyPlan | LeftOutRecords | None:
        """Return the plan of a kind of records; None if a transform leaves them out. Raises RefusedRecord."""
        if kind not in self._kinds:
            settings = self.layouts.settings
            self._kinds[kind] = compiled_record(rewritten(self.layouts.record(kind), settings.transforms), settings)
        return self._kinds[kind]

    def moved(self, places: npt.NDArray[np.int32]) -> TablePlan:
        """Return the plan with column i at index `places[i]`, without `key_apart`."""

        def at(columns: tuple[ColumnPlan, ...]) -> tuple[ColumnPlan, ...]:
            return tuple(replace(column, index=int(places[column.index])) for column in columns)

        columns, key = at(self.columns), at(self.key)
        layouts = replace(self.layouts, columns=columns, key=key)
        return replace(self, layouts=layouts, columns=columns, key=key, _kinds={})


@dataclass(frozen=True, slots=True)
class TablePlans:
    """The tables of a batch: change i is of the table `plans[of[i]]`; `of` is None if there is only one table."""

    plans: Sequence[TablePlan]
    of: npt.NDArray[np.int32] | None

    @classmethod
    def one(cls, plan: TablePlan) -> TablePlans:
        """Return the plans of a batch of one table."""
        return cls((plan,), None)


@lru_cache(maxsize=4096)
def table_plan(table: TableSchema, settings: EventSettings, form: SourceForm) -> TablePlan:
    """Return the plan of a table's records."""
    columns, unknown = form.columns(table, settings)
    key = form.key(table, settings)
    if settings.typed is not None:
        columns, key = tuple(map(as_typed, columns)), tuple(map(as_typed, key))
    as_they_are = {plan.index for plan in columns if plan.shape is None}
    apart = tuple(plan for plan in key if plan.index not in as_they_are)
    return TablePlan(
        Envelopes(table.id, columns, key, frozenset(plan.index for plan in apart), settings, form),
        columns,
        tuple((name, table.columns[table.index(name)].type_name) for name in unknown),
        key,
        apart,
        bool(key) or names.table_field(settings, table.id) is not None,
    )
