"""Handmade change batches, and the rows made from them, for the tests of events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns import ChangeBatch, Column, Image, TableId, TableSchema, Transactions
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows
from tests.event_settings import event_settings

Row = Sequence[str | None] | None
Change = tuple[str, Row, Row]
"""An operation and the texts of the rows before and after it; None for a missing row."""

COMMIT_US = 1_795_222_827_639_575
"""The time of the first commit of a batch, 2026-11-21 01:00:27 UTC; later commits follow by a microsecond each."""


def table(name: str, columns: Sequence[Column], *key: str) -> TableSchema:
    return TableSchema(TableId("golden", "public", name), tuple(columns), key)


def plain_settings(**more: Any) -> EventSettings:
    """Return settings of PostgreSQL's events without schemas, so that keys and values are their payloads."""
    schemas = dict.fromkeys(("key_schemas_enable", "value_schemas_enable", "header_schemas_enable"), False)
    return event_settings("server", "golden", run_id="run", **(schemas | more))


def batch(
    schema: TableSchema,
    changes: Sequence[Change],
    marker: Sequence[int] | None = None,
    *,
    together: bool = False,
    orders: Sequence[tuple[int, int]] | None = None,
    unavailable: Mapping[str, Sequence[bool]] | None = None,
    **more: Any,
) -> ChangeBatch:
    """Return changes of PostgreSQL's log, each in a transaction of its own, or all in one if they are `together`.

    Change i is at the LSN 5000 + 10 i, its transaction is 700 + i, which commits at 5005 + 10 i; the commit before it
    ended at 4999 + 10 i. `orders` holds the numbers of the changes in their transactions, and among those of their
    table. `unavailable` marks, column by column, the changes whose new value the log did not carry.
    """
    count = len(changes)
    numbers = np.arange(count, dtype=np.int64)
    commits = numbers[:1] if together else numbers
    more |= {} if orders is None else _orders(orders)
    after = image(schema, [after for _, _, after in changes])
    for name, flags in (unavailable or {}).items():
        assert after is not None
        after.unavailable[schema.index(name)] = np.array(flags, np.bool_)
    return ChangeBatch(
        schema,
        np.array([ord(op) for op, _, _ in changes], np.uint8),
        5000 + numbers * 10,
        (numbers * 0 if together else numbers).astype(np.int32),
        numbers if together else np.zeros(count, np.int64),
        Transactions(700 + commits, 5005 + commits * 10, COMMIT_US + commits, 4999 + commits * 10),
        image(schema, [before for _, before, _ in changes]),
        after,
        None if marker is None else np.array(marker, np.uint8),
        **more,
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


def _orders(orders: Sequence[tuple[int, int]]) -> dict[str, Any]:
    total, of_table = (np.array(numbers, np.int64) for numbers in zip(*orders, strict=True))
    return {"total_order": total, "table_order": of_table}


def rows(part: ChangeBatch, settings: EventSettings, form: SourceForm = FORM) -> list[dict[str, Any]]:
    """Return the rows made from a batch, as Spark gets them."""
    return [row for found in to_rows(part, settings, form) for row in found.to_pylist()]


def read(part: ChangeBatch, settings: EventSettings, form: SourceForm = FORM) -> list[dict[str, Any]]:
    """Return the rows with their keys, values and headers parsed; `headers` is a dictionary, or None."""

    def parsed(row: dict[str, Any]) -> dict[str, Any]:
        key, value = (None if row[name] is None else json.loads(row[name]) for name in ("key", "value"))
        pairs = row["headers"]
        headers = None if pairs is None else {pair["key"]: json.loads(pair["value"]) for pair in pairs}
        return row | {"key": key, "value": value, "headers": headers}

    return [parsed(row) for row in rows(part, settings, form)]
