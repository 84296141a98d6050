"""The parts of events that are specific to the binary log: fields of source blocks, names and places of transactions.
Worker."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from tailrace.columns import ChangeBatch, Column, Image, Marker, TableSchema
from tailrace.columns.logical import INT32, INT64, STRING
from tailrace.connectors.binlog.log.position import transactions_of
from tailrace.connectors.binlog.values import declared_types
from tailrace.connectors.binlog.values.conversions import plan_columns, plan_key
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import BlockRecords, ChangePlace, PlainSource
from tailrace.records.columns import SharedValue
from tailrace.records.layout import TRANSACTION, BlockColumn, Constant, Member, Node
from tailrace.values.conversion import ColumnPlan
from tailrace.values.json_text import dumps

_NUMBER, _TEXT = INT64.with_optional(True), STRING.with_optional(True)


class _BinlogParts:
    """See events.mapping.SourceParts."""

    def __init__(self, batch: ChangeBatch) -> None:
        self.batch = batch
        transactions = transactions_of(batch)
        self.name = transactions.ids()
        thread = pa.array(transactions.thread, mask=transactions.thread < 0)
        self.of_transactions: dict[str, pa.Array] = {
            "server_id": pa.array(transactions.server_id),
            "gtid": transactions.gtids(),
            "file": transactions.files(),
            "thread": thread,
        }
        self.positions = transactions.positions()

    def block(self, records: BlockRecords) -> _BinlogBlock:
        return _BinlogBlock(self, records)


class _BinlogBlock:
    """See events.mapping.SourceBlock."""

    def __init__(self, parts: _BinlogParts, records: BlockRecords) -> None:
        self.parts, self.records = parts, records
        batch, count = parts.batch, records.high - records.low
        query = getattr(batch, "query", None)
        self._values: dict[str, pa.Array | SharedValue] = parts.of_transactions | {
            "pos": pa.array(batch.lsn[records.low : records.high]),
            "row": SharedValue(0) if batch.serial is None else cast(pa.Array, batch.serial).slice(records.low, count),
            "query": SharedValue(None) if query is None else query.slice(records.low, count),
        }

    def values(self, name: str) -> pa.Array | SharedValue:
        return self._values[name]

    def positions(self) -> pa.Array:
        return self.parts.positions.take(pa.array(self.records.transaction))

    def transaction_names(self) -> pa.Array:
        return self.parts.name.take(pa.array(self.records.transaction))


class BinlogForm:
    """See events.mapping.SourceForm."""

    def __hash__(self) -> int:
        return hash(BinlogForm)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinlogForm)

    def source_fields(self, settings: EventSettings) -> tuple[Member, ...]:
        return (
            Member("server_id", BlockColumn("server_id", INT64, TRANSACTION)),
            Member("gtid", BlockColumn("gtid", _TEXT, TRANSACTION)),
            Member("file", BlockColumn("file", STRING, TRANSACTION)),
            Member("pos", BlockColumn("pos", INT64)),
            Member("row", BlockColumn("row", INT32)),
            Member("thread", BlockColumn("thread", _NUMBER, TRANSACTION)),
            Member("query", BlockColumn("query", _TEXT)),
        )

    def sequence(self, settings: EventSettings) -> Node:
        return Constant(None, _TEXT)

    def columns(self, table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
        return plan_columns(table, settings)

    def key(self, table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
        return plan_key(table, settings)

    def has_old_rows(self, table: TableSchema) -> bool:
        return True

    def late(self, table: TableSchema) -> frozenset[str]:
        # the server fills a new column of existing rows without an event
        return frozenset(column.name for column in table.columns if column.name and column.filled)

    def unsent(self, table: TableSchema) -> frozenset[str]:
        # what a row image leaves out is up to the session that writes, whatever the size
        return frozenset()

    def is_text(self, column: Column) -> bool:
        return declared_types.is_text(column)

    def parts(self, batch: ChangeBatch, settings: EventSettings) -> _BinlogParts:
        return _BinlogParts(batch)

    def source(self, batch: ChangeBatch, change: int, marker: Marker, settings: EventSettings) -> PlainSource:
        transactions, place = transactions_of(batch), int(batch.transaction[change])
        thread = int(transactions.thread[place])
        query = getattr(batch, "query", None)
        tail: dict[str, Any] = {
            "server_id": int(transactions.server_id[place]),
            "gtid": transactions.gtid(place) or None,
            "file": transactions.names[transactions.file[place]],
            "pos": int(cast(Any, batch.lsn)[change]),
            "row": 0 if batch.serial is None else batch.serial[change].as_py(),
            "thread": None if thread < 0 else thread,
            "query": None if query is None else query[change].as_py(),
        }
        return PlainSource(None, tail, transactions.id(place))

    def place(self, batch: ChangeBatch, change: int) -> ChangePlace:
        transactions, place = transactions_of(batch), int(batch.transaction[change])
        file = transactions.names[transactions.file[place]]
        at = f"{file}:{int(cast(Any, batch.lsn)[change])}"
        name = transactions.id(place)
        return ChangePlace(at, name, transactions.position(place), name)

    def message(self, batch: ChangeBatch, change: int) -> bytes:
        """Return the change's rows as JSON, with values as the server prints them."""
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


FORM = BinlogForm()


def form_of(dialect: object) -> BinlogForm:
    """Return the form of events, which is the same for both dialects."""
    return FORM
