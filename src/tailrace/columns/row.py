"""The one row schema of every tailrace source, as Arrow; `tailrace.spark` declares the same to Spark.

A query may request some of the columns; the others are neither made nor sent. Spark's Kafka sink uses the first four
columns unchanged.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
topic      string                                       topic of the record
key        binary                                       serialised key; null if the table has none
value      binary                                       serialised value; null in a tombstone
headers    array<struct<key string, value binary>>      record headers, in order; null if there are none
op         string                                       c, u, d, r, t, m; tombstone, heartbeat, BEGIN, END,
                                                        notification, quarantine, schema
database   string                                       source database
schema     string                                       source schema
table      string                                       source table
position   string                                       hex digits that sort in log order: of the commit LSN (16); for
                                                        change tables, of commit and change (40 or 64)
ordinal    bigint                                       place in the transaction; for change tables, among the rows of
                                                        one change position: identifies the change
transaction string                                      transaction id; null in snapshots
source_ts  timestamp                                    commit time (snapshot: time of the snapshot), UTC, µs
snapshot   string                                       the source block's snapshot marker
========== ============================================ ==========================================================

If a transform sets partition or timestamp, the row has these columns too, provided that the query requests them.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
partition  int                                          number of the partition of Kafka; null: the key decides
timestamp  bigint                                       time of the record, in ms since 1970 UTC; null: time of writing
========== ============================================ ==========================================================

With a post-processor that reselects values there is one more, provided that the query requests it.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
reselected int                                          number of the event's values that were reselected from the
                                                        table, 0 if its row was gone or unreadable; null: none was
                                                        requested
========== ============================================ ==========================================================

The records of one change (a delete and its tombstone, a key change) share one `(position, ordinal)`; their order is
the order of the rows.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import pyarrow as pa

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

ROW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("op", pa.string()),
        pa.field("database", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("position", pa.string()),
        pa.field("ordinal", pa.int64()),
        pa.field("transaction", pa.string()),
        pa.field("source_ts", pa.timestamp("us", tz="UTC")),
        pa.field("snapshot", pa.string()),
    ]
)

COLUMNS: tuple[str, ...] = tuple(ROW_SCHEMA.names)
"""The names of all columns, in the order of the row."""

PLACES: Mapping[str, pa.DataType] = {"partition": pa.int32(), "timestamp": pa.int64()}
"""Columns, with their types, that a row has only if a transform sets them."""

RESELECTED = "reselected"
FURTHER: Mapping[str, pa.DataType] = {**PLACES, RESELECTED: pa.int32()}
"""Columns, with their types, that a row may have in addition to those of ROW_SCHEMA."""

# Their size decides whether a change becomes an event or is quarantined.
_ALWAYS = ("key", "value")


def made_columns(wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that tasks make: `wanted`, then those that are always made."""
    return tuple(dict.fromkeys((*wanted, *_ALWAYS)))


@lru_cache(maxsize=64)
def row_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of rows with only these columns, in this order."""
    return pa.schema([pa.field(name, FURTHER[name]) if name in FURTHER else ROW_SCHEMA.field(name) for name in columns])


def rows_of(columns: tuple[str, ...], makers: Mapping[str, Callable[[], pa.Array]]) -> pa.RecordBatch:
    """Return rows of these columns, each made by its function in `makers`; other functions are not called.

    A column of FURTHER without a function is null: no transform has placed these records, and none of their values was
    reselected.
    """
    made = {name: makers[name]() for name in columns if name in makers or name not in FURTHER}
    count = len(next(iter(made.values()), ()))
    arrays = [made[name] if name in made else pa.nulls(count, FURTHER[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(columns))
