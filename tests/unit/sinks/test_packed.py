"""Rows on their way to the driver lose nothing, and repeated contents take no space."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from tailrace.columns.row import COLUMNS, row_schema
from tailrace.sinks.packed import local_rows, pack
from tests.unit.sinks.stream import Batch, row

SCHEMA = row_schema(("topic", "key", "value", "headers", "position", "ordinal"))


def test_rows_come_as_they_went_and_in_their_order() -> None:
    rows = [
        row("a", 1, headers=[{"key": "h", "value": b"\0\xff"}, {"key": "n", "value": None}]),
        row("b", 2, key=None, value=None),
        *(row("ü", number) for number in range(3, 10)),
    ]
    wanted = [{name: one[name] for name in SCHEMA.names} for one in rows]
    batch = Batch(wanted, SCHEMA)
    assert list(local_rows(cast(Any, batch))) == wanted
    assert list(local_rows(cast(Any, Batch([], SCHEMA)))) == []


def test_what_records_share_takes_no_room() -> None:
    schema = b'{"schema":{"type":"struct","fields":[%s]},' % b",".join(b'{"field":"column %d"}' % n for n in range(200))
    values = [schema + b'"payload":{"id":%d}}' % number for number in range(1000)]
    (piece,) = pack(iter([pa.record_batch([pa.array(values, pa.binary())], ["value"])]))
    assert piece.nbytes * 50 < sum(map(len, values))


def test_a_sink_reads_by_the_names_of_columns() -> None:
    (found,) = local_rows(cast(Any, Batch([row("a", 1)], row_schema(COLUMNS[:4]))))
    assert (found["topic"], found["key"]) == ("a", b'{"id":1}')
