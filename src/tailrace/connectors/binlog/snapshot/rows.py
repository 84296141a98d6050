"""Conversion of rows to `r` changes, and the columns of the queries that read them. Any process."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import Image
from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.binlog.log.position import BinlogBatch, BinlogTransactions
from tailrace.connectors.binlog.snapshot.keys import base, quoted
from tailrace.connectors.binlog.snapshot.point import RowOrigin
from tailrace.connectors.binlog.snapshot.result import form

_ZEROFILL = re.compile(r"\bzerofill\b")


def selected(column: Column, *, exact: bool) -> str:
    """Return the expression that reads a column.

    A server prints a FLOAT with six digits, and a DOUBLE(m,d) with d digits after the point. Events show this text;
    with `exact`, for copies, the value is read without loss.
    """
    if not column.name:
        return "null"
    name, kind = quoted(column.name), base(column)
    if kind in ("float", "double") and exact:
        return f"{name} + 0e0"
    return f"{name} + 0" if _ZEROFILL.search(column.type_name) else name


def select_list(columns: Sequence[Column], *, exact: bool) -> str:
    return ", ".join(selected(column, exact=exact) for column in columns) or "1"


def forms(columns: Sequence[Column], *, exact: bool) -> list[int]:
    """Return the forms of a query's columns; at least one."""
    return [form(column, exact=exact) for column in columns] or [0]


def as_reads(
    table: TableSchema, columns: list[pa.Array], ordinal: int, marker: npt.NDArray[np.uint8], origin: RowOrigin
) -> BinlogBatch:
    """Return rows, one for each marker, as `r` changes of one transaction, with ordinals from `ordinal` on."""
    count = len(marker)

    def one(value: int) -> npt.NDArray[np.int64]:
        return np.full(1, value, np.int64)

    names = (origin.file, origin.source) if origin.source else (origin.file,)
    transactions = BinlogTransactions(
        epoch=one(origin.epoch),
        file=np.zeros(1, np.int32),
        # before the log's first transaction, which begins at `pos`
        start=one(max(origin.pos - 1, 0) if origin.start < 0 else origin.start),
        begin=one(origin.pos),
        commit_us=one(origin.at_us),
        source=np.full(1, 1 if origin.source else -1, np.int32),
        number=one(origin.number),
        thread=one(origin.thread),
        server_id=one(origin.server_id),
        names=names,
        separator=origin.separator,
    )
    columns = columns[: len(table.columns)]
    return BinlogBatch(
        table=table,
        op=np.full(count, ord("r"), np.uint8),
        lsn=np.full(count, origin.pos, np.int64),
        transaction=np.zeros(count, np.int32),
        ordinal=np.arange(ordinal, ordinal + count, dtype=np.int64),
        transactions=transactions,
        before=None,
        after=Image(None, columns, [None] * len(columns)),
        marker=marker,
        serial=pa.array(np.zeros(count, np.int32)),
    )
