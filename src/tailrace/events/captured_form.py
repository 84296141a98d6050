"""CapturedForm: the source form of all databases with change tables. Planner, workers."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, Image, Marker, TableSchema
from tailrace.columns.batch import Int64s
from tailrace.columns.logical import INT64, STRING
from tailrace.events.column_plans import Types, key_columns, shown_columns
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import BlockRecords, ChangePlace, PlainSource
from tailrace.records.columns import SharedValue
from tailrace.records.layout import TRANSACTION, BlockColumn, Constant, Member, Node
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import lsn_texts
from tailrace.values.json_text import dumps
from tailrace.values.lsns import lsn_text


def transactions_of(batch: ChangeBatch) -> CapturedTransactions:
    """Return the transactions of a batch of change tables."""
    return cast(CapturedTransactions, batch.transactions)


def position_of(commit_lsn: bytes, change_lsn: bytes | None = None, command: int | None = None) -> str:
    """Return the row schema's `position` of a change: both LSNs in hexadecimal digits, in log order.

    Between them is the number of the command if changes have one. Rows of snapshots have no LSN of their own and sort
    before every change of the commit.
    """
    between = b"" if command is None else command.to_bytes(_COMMAND, "big")
    return (commit_lsn + between + (bytes(len(commit_lsn)) if change_lsn is None else change_lsn)).hex().upper()


def positions_of(commits: pa.Array, changes: pa.Array, commands: Int64s | None = None) -> pa.Array:
    """Return `position_of` for each change, as one text column. All LSNs have the same length."""
    if not len(commits):
        return pa.array([], pa.string())
    width = len(commits[0].as_py())
    parts = [commits, pc.fill_null(changes, bytes(width))]
    if commands is not None:
        numbers = pa.py_buffer(np.ascontiguousarray(commands, ">u4"))
        numbered = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_COMMAND), len(commits), [None, numbers])
        parts.insert(1, numbered.cast(pa.binary()))
    joined = pc.binary_join_element_wise(*parts, b"")
    length = 2 * width + (0 if commands is None else _COMMAND)
    digits = _DIGITS[np.frombuffer(joined.buffers()[2], np.uint8)[: length * len(joined)]]
    offsets = np.arange(len(joined) + 1, dtype=np.int32) * (2 * length)
    return pa.StringArray.from_buffers(len(joined), pa.py_buffer(offsets), pa.py_buffer(digits))


_COMMAND = 4

# Two hexadecimal digits for every byte, in memory order.
_DIGITS = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16).copy()


def _lsns(batch: ChangeBatch) -> pa.Array:
    return cast(pa.Array, batch.lsn)


class _CapturedParts:
    """See events.mapping.SourceParts."""

    def __init__(self, batch: ChangeBatch, form: CapturedForm) -> None:
        self.batch, self.form = batch, form
        commits = transactions_of(batch).commit_lsn
        self.name = self.commit_lsn = lsn_texts(commits)
        zero = lsn_text(bytes(len(commits[0].as_py()))) if len(commits) else ""
        nothing = pc.equal(self.name, zero)
        if pc.any(nothing).as_py():
            self.commit_lsn = pc.if_else(nothing, None, self.name)

    def block(self, records: BlockRecords) -> _CapturedBlock:
        return _CapturedBlock(self, records)


class _CapturedBlock:
    """See events.mapping.SourceBlock."""

    def __init__(self, parts: _CapturedParts, records: BlockRecords) -> None:
        self.parts, self.records = parts, records
        batch, count = parts.batch, records.high - records.low
        self._values: dict[str, pa.Array | SharedValue] = {
            "change_lsn": lsn_texts(_lsns(batch).slice(records.low, count)),
            "commit_lsn": parts.commit_lsn,
            "serial": SharedValue(None) if batch.serial is None else batch.serial.slice(records.low, count),
        }

    def values(self, name: str) -> pa.Array | SharedValue:
        return self._values[name]

    def positions(self) -> pa.Array:
        batch, changes = self.parts.batch, pa.array(self.records.change)
        commands = None if batch.command is None else batch.command[self.records.change]
        commits = transactions_of(batch).commit_lsn.take(pa.array(self.records.transaction))
        return positions_of(commits, _lsns(batch).take(changes), commands)

    def transaction_names(self) -> pa.Array:
        return self.parts.name.take(pa.array(self.records.transaction))


class DescribedTypes(Protocol):
    """A column's type as the server's JDBC driver reports it. A module may implement this."""

    def jdbc_type(self, column: Column) -> int:
        """The code of java.sql.Types."""
        ...

    def type_name(self, column: Column) -> str: ...

    def length(self, column: Column) -> int: ...

    def scale(self, column: Column) -> int | None: ...


class CapturedForm:
    """See events.mapping.SourceForm. `described` gives the types for schema changes; `serial`: source blocks have an
    event_serial_no."""

    def __init__(self, types: Types, described: DescribedTypes, serial: bool) -> None:
        self.types = types
        self.described = described
        self.serial = serial

    def source_fields(self, settings: EventSettings) -> tuple[Member, ...]:
        text = STRING.with_optional(True)
        members = (
            Member("change_lsn", BlockColumn("change_lsn", text)),
            Member("commit_lsn", BlockColumn("commit_lsn", text, TRANSACTION)),
        )
        if not self.serial:
            return members
        return (*members, Member("event_serial_no", BlockColumn("serial", INT64.with_optional(True))))

    def sequence(self, settings: EventSettings) -> Node:
        return Constant(None, STRING.with_optional(True))

    def columns(self, table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
        return shown_columns(table, settings, self.types)

    def key(self, table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
        return key_columns(table, settings, self.types)

    def has_old_rows(self, table: TableSchema) -> bool:
        return True

    def late(self, table: TableSchema) -> frozenset[str]:
        # a column may have been captured only some time after it was added
        return frozenset(column.name for column in table.columns)

    def unsent(self, table: TableSchema) -> frozenset[str]:
        # events have a placeholder for each type whose values the log may lack
        return frozenset()

    def is_text(self, column: Column) -> bool:
        return self.types.declared.is_text(column)

    def parts(self, batch: ChangeBatch, settings: EventSettings) -> _CapturedParts:
        return _CapturedParts(batch, self)

    def source(self, batch: ChangeBatch, change: int, marker: Marker, settings: EventSettings) -> PlainSource:
        commit = transactions_of(batch).commit_lsn[int(batch.transaction[change])].as_py()
        lsn = _lsns(batch)[change].as_py()
        tail: dict[str, Any] = {
            "change_lsn": None if lsn is None else lsn_text(lsn),
            "commit_lsn": lsn_text(commit) if any(commit) else None,
        }
        if self.serial:
            tail["event_serial_no"] = None if batch.serial is None else batch.serial[change].as_py()
        return PlainSource(None, tail, lsn_text(commit))

    def place(self, batch: ChangeBatch, change: int) -> ChangePlace:
        commit = transactions_of(batch).commit_lsn[int(batch.transaction[change])].as_py()
        lsn = _lsns(batch)[change].as_py()
        text = lsn_text(commit)
        command = None if batch.command is None else int(batch.command[change])
        return ChangePlace("no LSN" if lsn is None else lsn_text(lsn), text, position_of(commit, lsn, command), text)

    def message(self, batch: ChangeBatch, change: int) -> bytes:
        """Return the rows of the change table, or of the snapshot, as JSON of the texts that were read."""
        rows = {"before": _texts(batch, batch.before, change), "after": _texts(batch, batch.after, change)}
        return dumps(rows).encode()


def _texts(batch: ChangeBatch, image: Image | None, change: int) -> dict[str, str | None] | None:
    if image is None or (image.present is not None and not image.present[change]):
        return None
    texts = (column[change].as_py() for column in image.columns)
    return {
        column.name: None if text is None else text.decode("utf-8", "replace")
        for column, text in zip(batch.table.columns, texts, strict=True)
    }
