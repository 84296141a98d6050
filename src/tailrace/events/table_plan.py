"""What is known of a table's records before there are any: their columns, topic and schemas. Workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tailrace.columns import TableId, TableSchema
from tailrace.columns.logical import LogicalType
from tailrace.events import names
from tailrace.events.envelope import event_schemas
from tailrace.events.form import Form
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import ColumnPlan
from tailrace.serde.json_text import quoted, schema_text


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Everything about a table's records that does not depend on the change.

    Each `…_open` precedes a payload: its schema, or nothing; `…_close` follows it. A key in a header is written with
    its schema where values are. `unknown` are the columns left out, and their types. `key_apart` are the key's columns
    that values leave out or show shaped; `key_more` is the JSON of a key's further field, which is the same in all of
    the table's.
    """

    table: TableId
    columns: tuple[ColumnPlan, ...]
    unknown: tuple[tuple[str, str], ...]
    key: tuple[ColumnPlan, ...]
    key_apart: tuple[ColumnPlan, ...]
    key_more: bytes
    topic: str
    key_open: bytes
    key_close: bytes
    value_open: bytes
    value_close: bytes
    header_open: bytes
    header_close: bytes

    @property
    def has_key(self) -> bool:
        """Whether records have a key."""
        return bool(self.key or self.key_more)


@dataclass(frozen=True, slots=True)
class TablePlans:
    """The tables of a batch: change i is of the table `plans[of[i]]`; `of` is None where there is one table alone.

    `columns` are all columns of the batch that values show, whichever table's they are.
    """

    plans: Sequence[TablePlan]
    of: npt.NDArray[np.int32] | None
    columns: Sequence[ColumnPlan]

    @classmethod
    def one(cls, plan: TablePlan) -> TablePlans:
        """Those of a batch of one table."""
        return cls((plan,), None, plan.columns)


@lru_cache(maxsize=4096)
def table_plan(table: TableSchema, settings: EventSettings, form: Form) -> TablePlan:
    """The plan of a table's records."""
    columns, unknown = form.columns(table, settings)
    key = form.key(table, settings)
    as_they_are = {plan.index for plan in columns if plan.shape is None}
    schemas = event_schemas(table, columns, key, settings, form)
    told = names.table_field(settings, table.id)

    def enclosure(schema: LogicalType | None, enabled: bool) -> tuple[bytes, bytes]:
        if not enabled or schema is None:
            return b"", b""
        return f'{{"schema":{schema_text(schema)},"payload":'.encode(), b"}"

    return TablePlan(
        table.id,
        columns,
        tuple((name, table.columns[table.index(name)].type_name) for name in unknown),
        key,
        tuple(plan for plan in key if plan.index not in as_they_are),
        b"" if told is None else f"{quoted(told[0])}:{quoted(told[1])}".encode(),
        names.topic(settings, table.id),
        *enclosure(schemas.key, settings.key_schemas_enable),
        *enclosure(schemas.value, settings.value_schemas_enable),
        *enclosure(schemas.key, settings.header_schemas_enable),
    )
