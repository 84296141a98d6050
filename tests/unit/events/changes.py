"""Change batches by hand, for the tests of events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.columns import ChangeBatch, Column, Image, TableId, TableSchema, Transactions

Row = Sequence[str | None] | None
Change = tuple[str, Row, Row]
"""An operation and the texts of the rows before and after it; None where there is no such row."""


def table(name: str, columns: Sequence[Column], *key: str) -> TableSchema:
    return TableSchema(TableId("golden", "public", name), tuple(columns), key)


def batch(schema: TableSchema, changes: Sequence[Change], marker: Sequence[int] | None = None) -> ChangeBatch:
    """Each change in a transaction of its own; no commit was seen before the first."""
    count = len(changes)
    numbers = np.arange(count, dtype=np.int64)
    return ChangeBatch(
        schema,
        np.array([ord(op) for op, _, _ in changes], np.uint8),
        5000 + numbers * 10,
        numbers.astype(np.int32),
        np.zeros(count, np.int64),
        Transactions(700 + numbers, 5005 + numbers * 10, 1_795_222_827_639_575 + numbers, 4999 + numbers * 10),
        image(schema, [before for _, before, _ in changes]),
        image(schema, [after for _, _, after in changes]),
        None if marker is None else np.array(marker, np.uint8),
    )


def image(schema: TableSchema, rows: Sequence[Row]) -> Image | None:
    present = np.array([row is not None for row in rows], np.bool_)
    if not present.any():
        return None
    texts = [
        [None if row is None or row[index] is None else str(row[index]).encode() for row in rows]
        for index in range(len(schema.columns))
    ]
    arrays = [pa.array(column, pa.binary()) for column in texts]
    return Image(None if present.all() else present, arrays, [None] * len(arrays))
