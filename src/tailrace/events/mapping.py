"""SourceForm: the interface for the parts of events that differ between connectors.

A source form is a stateless constant of a module; callers pass the form to use. It has a columnar half (`parts`) and a
plain half (`source`); tests check that both give the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns import ChangeBatch, Column, Marker, TableSchema
from tailrace.events.event_settings import EventSettings
from tailrace.records.columns import SharedValue
from tailrace.records.layout import Member, Node
from tailrace.values.conversion import ColumnPlan


@dataclass(frozen=True, slots=True)
class BlockRecords:
    """The records of the changes `low` to `high` of a batch, which make a block.

    One element per record: `change` is the index of its change in the batch, `transaction` the index of its
    transaction, `marker` its marker's code (None if all are FALSE). `index` is the index that
    `tailrace.records.columns.Columns` takes; a form may fill its row SOURCE, which else has the transaction's index.
    """

    low: int
    high: int
    change: npt.NDArray[np.int32]
    transaction: npt.NDArray[np.int32]
    marker: npt.NDArray[np.uint8] | None
    index: npt.NDArray[np.int32]


class SourceBlock(Protocol):
    """The connector's columns for the source blocks of one block of records."""

    def values(self, name: str) -> pa.Array | SharedValue:
        """Return the column with this name in the connector's layout; see `tailrace.records.columns.Columns.values`."""
        ...

    def positions(self) -> pa.Array:
        """Return the column `position`."""
        ...

    def transaction_names(self) -> pa.Array:
        """Return `transaction.id` of each record as text."""
        ...


class SourceParts(Protocol):
    """A connector's data of one batch: `name` is one text per transaction, for the rows' columns."""

    name: pa.Array

    def block(self, records: BlockRecords) -> SourceBlock: ...


@dataclass(frozen=True, slots=True)
class PlainSource:
    """The source block of one change in plain values: `sequence`, the members after `table`, `transaction.id`."""

    sequence: str | None
    tail: Mapping[str, Any]
    transaction: str


@dataclass(frozen=True, slots=True)
class ChangePlace:
    """The place of a change, for messages and for the quarantine topic.

    `lsn` and `commit` are the LSNs of the change and its commit in the server's notation; `position` and `transaction`
    are the values of the row's columns.
    """

    lsn: str
    commit: str
    position: str
    transaction: str

    def __str__(self) -> str:
        return f"at {self.lsn} in the transaction that commits at {self.commit}"


class SourceForm(Protocol):
    """The parts of events that a connector defines. Every method is pure and runs in planner and workers."""

    def __hash__(self) -> int: ...

    def source_fields(self, settings: EventSettings) -> tuple[Member, ...]:
        """Return the members after `table`; a SourceBlock has their columns."""
        ...

    def sequence(self, settings: EventSettings) -> Node:
        """Return the member `sequence`; called only for formats that have it."""
        ...

    def columns(self, table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
        """Return the columns of values, in the table's order, and the names of columns left out for an unknown type."""
        ...

    def key(self, table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
        """Return the columns of the key in the key's order, unshaped."""
        ...

    def has_old_rows(self, table: TableSchema) -> bool:
        """Return True if `before` has every column of the old row except those marked as unavailable."""
        ...

    def late(self, table: TableSchema) -> frozenset[str]:
        """Return the names of the columns that need not be null in rows from before the column appeared in the log.

        Such rows get the column's values without events, for example from a default.
        """
        ...

    def unsent(self, table: TableSchema) -> frozenset[str]:
        """Return the names of the columns whose large values the log lacks if an update leaves them as they are."""
        ...

    def is_text(self, column: Column) -> bool:
        """Return True if the column has a text type: masks replace only text."""
        ...

    def parts(self, batch: ChangeBatch, settings: EventSettings) -> SourceParts:
        """Return the columnar data of a batch."""
        ...

    def source(self, batch: ChangeBatch, change: int, marker: Marker, settings: EventSettings) -> PlainSource:
        """Return the plain source block of one change."""
        ...

    def place(self, batch: ChangeBatch, change: int) -> ChangePlace:
        """Return the place of the change."""
        ...

    def message(self, batch: ChangeBatch, change: int) -> bytes:
        """Return the change as the server sent it, for the quarantine topic."""
        ...
