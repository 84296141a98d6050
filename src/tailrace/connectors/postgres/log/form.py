"""PostgreSQL's part of events: txId, lsn, xmin and sequence of source blocks, and names of transactions. Worker."""

from __future__ import annotations

import json
import struct as binary
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, Column, Marker, TableSchema, Transactions
from tailrace.columns.batch import position_texts
from tailrace.columns.logical import INT64, STRING
from tailrace.connectors.postgres.protocol.position import lsn_text, transactions_of
from tailrace.connectors.postgres.values import declared_types
from tailrace.connectors.postgres.values.conversions import plan_columns, plan_key
from tailrace.events.control_records import numbered_name
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import BlockRecords, ChangePlace, PlainSource
from tailrace.records.columns import SharedValue
from tailrace.records.layout import CHANGE, SOURCE, TRANSACTION, BlockColumn, Constant, Member, Node, Text
from tailrace.values.conversion import ColumnPlan


class _PostgresParts:
    """See events.mapping.SourceParts."""

    def __init__(self, batch: ChangeBatch, settings: EventSettings) -> None:
        self.batch, self.settings = batch, settings
        transactions = transactions_of(batch)
        xid = pa.array(transactions.xid)
        self.name = xid.cast(pa.string())
        # With a marker there is one more entry than transactions: the null that rows of incremental snapshots show.
        self.xid = xid if batch.marker is None else pa.concat_arrays([xid, pa.nulls(1, pa.int64())])
        seen = transactions.previous_end >= 0
        ends = pc.binary_join_element_wise('"', pa.array(transactions.previous_end).cast(pa.string()), '"', "")
        self.previous_end = pc.if_else(pa.array(seen), ends, "null")
        self.position = position_texts(transactions.commit_lsn)

    def block(self, records: BlockRecords) -> _PostgresBlock:
        return _PostgresBlock(self, records)


class _PostgresBlock:
    """See events.mapping.SourceBlock."""

    def __init__(self, parts: _PostgresParts, records: BlockRecords) -> None:
        self.parts, self.records = parts, records
        batch = parts.batch
        lsn = batch.lsn[records.low : records.high]
        shown_lsn = known_lsn = pa.array(lsn)
        hidden = None if records.marker is None else records.marker == Marker.INCREMENTAL
        # the 1.7 format shows the transaction and LSN of the window's end instead of nulls
        if hidden is not None and hidden.any() and not parts.settings.legacy:
            records.index[SOURCE] = np.where(hidden, len(batch.transactions), records.transaction)
            flags = np.zeros(len(lsn), np.bool_)
            flags[records.index[CHANGE][hidden]] = True
            shown_lsn = pa.array(lsn, mask=flags)
        self._values = {
            "previous_end": parts.previous_end,
            "xid": parts.xid,
            "lsn": known_lsn,
            "shown_lsn": shown_lsn,
            "xmin": SharedValue(batch.xmin),
        }

    def values(self, name: str) -> pa.Array | SharedValue:
        return self._values[name]

    def positions(self) -> pa.Array:
        return self.parts.position.take(pa.array(self.records.transaction))

    def transaction_names(self) -> pa.Array:
        batch = self.parts.batch
        name = pa.array(transactions_of(batch).xid[self.records.transaction]).cast(pa.string())
        if self.parts.settings.legacy:
            return name
        return pc.binary_join_element_wise(name, pa.array(batch.lsn[self.records.change]).cast(pa.string()), ":")


class PostgresForm:
    """See events.mapping.SourceForm."""

    def source_fields(self, settings: EventSettings) -> tuple[Member, ...]:
        number, text = INT64.with_optional(True), STRING.with_optional(True)
        members = [
            Member("txId", BlockColumn("xid", number, SOURCE)),
            Member("lsn", BlockColumn("shown_lsn", number)),
            Member("xmin", BlockColumn("xmin", number)),
        ]
        if not settings.legacy:
            members += [Member("origin", Constant(None, text)), Member("origin_lsn", Constant(None, number))]
        return tuple(members)

    def sequence(self, settings: EventSettings) -> Node:
        previous, lsn = BlockColumn("previous_end", STRING, TRANSACTION), BlockColumn("lsn", INT64)
        return Text(("[", previous, ',"', lsn, '"]'), STRING.with_optional(True))

    def columns(self, table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
        return plan_columns(table, settings)

    def key(self, table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
        return plan_key(table, settings)

    def has_old_rows(self, table: TableSchema) -> bool:
        return table.replica_identity == "f"

    def late(self, table: TableSchema) -> frozenset[str]:
        return frozenset(one.name for one in table.columns if one.default is not None or one.generated or one.filled)

    def unsent(self, table: TableSchema) -> frozenset[str]:
        if self.has_old_rows(table):
            return frozenset()
        return frozenset(column.name for column in table.columns if _may_be_large(column))

    def is_text(self, column: Column) -> bool:
        return declared_types.is_text(column)

    def parts(self, batch: ChangeBatch, settings: EventSettings) -> _PostgresParts:
        return _PostgresParts(batch, settings)

    def source(self, batch: ChangeBatch, change: int, marker: Marker, settings: EventSettings) -> PlainSource:
        transactions, number = transactions_of(batch), batch.transaction[change]
        lsn, xid = int(batch.lsn[change]), int(transactions.xid[number])
        previous = int(transactions.previous_end[number])
        hidden = marker is Marker.INCREMENTAL and not settings.legacy
        tail: dict[str, Any] = {
            "txId": None if hidden else xid,
            "lsn": None if hidden else lsn,
            "xmin": batch.xmin,
        }
        if not settings.legacy:
            tail |= {"origin": None, "origin_lsn": None}
        sequence = json.dumps([None if previous < 0 else str(previous), str(lsn)], separators=(",", ":"))
        return PlainSource(sequence, tail, numbered_name(xid, lsn, settings))

    def place(self, batch: ChangeBatch, change: int) -> ChangePlace:
        transactions, number = transactions_of(batch), int(batch.transaction[change])
        return place(transactions, number, int(batch.lsn[change]))

    def message(self, batch: ChangeBatch, change: int) -> bytes:
        """Return the raw message; for a row of a snapshot, which has no message, an Insert with its values."""
        if batch.messages is not None:
            data, offsets = batch.messages
            return data[offsets[change] : offsets[change + 1]].tobytes()
        columns = [] if batch.after is None else batch.after.columns
        parts = [b"I", binary.pack(">I", batch.table.oid), b"N", binary.pack(">H", len(columns))]
        for column in columns:
            text = column[change].as_py()
            parts.append(b"n" if text is None else b"t" + binary.pack(">I", len(text)) + text)
        return b"".join(parts)


_FIXED = frozenset(
    ("bool", "char", "int2", "int4", "int8", "float4", "float8", "money", "date", "time", "timetz", "timestamp",
     "timestamptz", "interval", "uuid", "oid", "macaddr", "macaddr8", "point", "lseg", "box", "line", "circle")
)  # fmt: skip
"""Types whose values have one small size, and stay in the row."""
_SMALL_BITS = 128


def _may_be_large(column: Column) -> bool:
    """Return True if values of the column may be stored apart from their row (TOAST)."""
    while column.kind == "domain" and column.element is not None:
        column = replace(column.element, modifier=max(column.modifier, column.element.modifier))
    name, length = column.type_name, column.modifier
    if name == "numeric":
        # a declared precision has at most 1000 digits
        return length < 0
    if name in ("bit", "varbit"):
        return length > _SMALL_BITS or (length < 0 and name == "varbit")
    return column.kind != "enum" and name not in _FIXED


def place(transactions: Transactions, number: int, lsn: int) -> ChangePlace:
    """Return the place in the log of the change at `lsn` of transaction `number`."""
    commit = int(transactions.commit_lsn[number])
    return ChangePlace(lsn_text(lsn), lsn_text(commit), f"{commit:016X}", str(int(transactions.xid[number])))


FORM = PostgresForm()
