"""SourceForm: what is a connector's own in events, behind one interface; the rest of a record is the same for all.

A source form is a module's constant, without state: events are made with the one that the caller names. Its two halves
are the columnar path's (`parts`) and the plain one's (`source`), which tests hold equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns import ChangeBatch, Column, Marker, TableSchema
from tailrace.events.settings import EventSettings
from tailrace.records.columns import Same
from tailrace.records.layout import Member, Node
from tailrace.values.conversion import ColumnPlan


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block: those of the changes `low` to `high` of a batch.

    One element per record: `change` is the index of its change in the batch, `transaction` that of its transaction,
    `marker` its marker's code, None where all are FALSE. `index` is that of `tailrace.records.columns.Columns`; a form
    may fill the row SOURCE, which is otherwise the transaction's index.
    """

    low: int
    high: int
    change: npt.NDArray[np.int32]
    transaction: npt.NDArray[np.int32]
    marker: npt.NDArray[np.uint8] | None
    index: npt.NDArray[np.int32]


class SourceBlock(Protocol):
    """The columns of one block of records that the connector's part of source blocks is made of."""

    def values(self, name: str) -> pa.Array | Same:
        """The column that the connector's layout calls so; see `tailrace.records.columns.Columns.values`."""
        ...

    def positions(self) -> pa.Array:
        """What the column `position` says of each record."""
        ...

    def transaction_names(self) -> pa.Array:
        """The text of `transaction.id` of each record."""
        ...


class SourceParts(Protocol):
    """What is made once per batch: `name` is one text per transaction, for the rows' columns."""

    name: pa.Array

    def block(self, records: Records) -> SourceBlock: ...


@dataclass(frozen=True, slots=True)
class PlainSource:
    """The source block of one change in plain values: `sequence`, the members behind `table`, `transaction.id`."""

    sequence: str | None
    tail: Mapping[str, Any]
    transaction: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a change stands, for messages and for the quarantine topic.

    `lsn` and `commit` are the LSNs of the change and its commit as the server's users know them, `position` and
    `transaction` what the row's columns say.
    """

    lsn: str
    commit: str
    position: str
    transaction: str

    def __str__(self) -> str:
        return f"at {self.lsn} in the transaction that commits at {self.commit}"


class SourceForm(Protocol):
    """A connector's own part of events. Every method is pure and runs in planner and workers."""

    def __hash__(self) -> int: ...

    def source_fields(self, settings: EventSettings) -> tuple[Member, ...]:
        """The members behind `table`; a SourceBlock gives their columns."""
        ...

    def sequence(self, settings: EventSettings) -> Node:
        """The member `sequence`, asked for only where the form has it."""
        ...

    def columns(self, table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
        """The columns that values show, in the table's order, and the names of those left out as unknown."""
        ...

    def key(self, table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
        """The columns of the key in the key's order, as they are."""
        ...

    def has_old_rows(self, table: TableSchema) -> bool:
        """Whether a `before` has every column of the old row, but those that it marks as unavailable."""
        ...

    def late(self, table: TableSchema) -> frozenset[str]:
        """The names of the columns which, where they are new, rows may have another value of than null that were
        written before the log had the column."""
        ...

    def is_text(self, column: Column) -> bool:
        """Whether the column's type is one of text, which masks replace."""
        ...

    def parts(self, batch: ChangeBatch, settings: EventSettings) -> SourceParts:
        """What the columnar path takes of a batch."""
        ...

    def source(self, batch: ChangeBatch, change: int, marker: Marker, settings: EventSettings) -> PlainSource:
        """What the plain path takes of one change."""
        ...

    def place(self, batch: ChangeBatch, change: int) -> Place:
        """Where the change stands."""
        ...

    def message(self, batch: ChangeBatch, change: int) -> bytes:
        """The change as it came from the server, for the quarantine topic."""
        ...
