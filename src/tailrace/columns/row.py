"""The one row schema of every tailrace source, as Arrow; `tailrace.spark` declares the same to Spark.

A query may ask for some of the columns alone: the others are neither made nor sent. The first four columns are those
that Spark's Kafka sink takes as they are.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
topic      string                                       topic of the record
key        binary                                       serialised key; null where the table has none
value      binary                                       serialised value; null in a tombstone
headers    array<struct<key string, value binary>>      record headers, in order; null when there are none
op         string                                       c, u, d, r, t, m; tombstone, heartbeat, BEGIN, END,
                                                        notification, quarantine, schema
database   string                                       source database
schema     string                                       source schema
table      string                                       source table
position   string                                       hex digits that sort in log order: of the commit LSN (16), or
                                                        of change tables those of commit and change (40 or 64)
ordinal    bigint                                       place in the transaction, or, of change tables, among the rows
                                                        of one change position: identifies the change
transaction string                                      transaction id; null in snapshots
source_ts  timestamp                                    commit time (snapshot: time of the snapshot), UTC, µs
snapshot   string                                       the source block's snapshot marker
========== ============================================ ==========================================================

A transform may place its records: then the row has one or both of these columns as well, where a query asks for them.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
partition  int                                          number of the partition of Kafka; null: the key decides
timestamp  bigint                                       time of the record, in ms since 1970 UTC; null: that of writing
========== ============================================ ==========================================================

Where a post-processor reads values again, there is one more, for a query that asks for it.

========== ============================================ ==========================================================
column     type                                         content
========== ============================================ ==========================================================
reselected int                                          how many values of the event were read again from the table,
                                                        0 where its row was gone or could not be read; null: none was
                                                        to be read
========== ============================================ ==========================================================

A change that becomes several records (a delete and its tombstone, a key change) gives them one `(position,
ordinal)`; their order is the order of the rows.
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
"""The columns that a row has only where a transform fills them, and the types of these."""

RESELECTED = "reselected"
FURTHER: Mapping[str, pa.DataType] = {**PLACES, RESELECTED: pa.int32()}
"""All columns that a row may have beside those of every row, and their types."""

# How many bytes these have decides whether a change becomes an event or is put aside.
_ALWAYS = ("key", "value")


def made_columns(wanted: Iterable[str]) -> tuple[str, ...]:
    """The columns that tasks make where the query wants `wanted`, which come first."""
    return tuple(dict.fromkeys((*wanted, *_ALWAYS)))


@lru_cache(maxsize=64)
def row_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of rows of these columns alone, in this order."""
    return pa.schema([pa.field(name, FURTHER[name]) if name in FURTHER else ROW_SCHEMA.field(name) for name in columns])


def rows_of(columns: tuple[str, ...], makers: Mapping[str, Callable[[], pa.Array]]) -> pa.RecordBatch:
    """Rows of these columns, each made by its function in `makers`; the functions of other columns are not called.

    A column of FURTHER that has none is null: these records are placed nowhere, and nothing of them was read again.
    """
    made = {name: makers[name]() for name in columns if name in makers or name not in FURTHER}
    count = len(next(iter(made.values()), ()))
    arrays = [made[name] if name in made else pa.nulls(count, FURTHER[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(columns))
