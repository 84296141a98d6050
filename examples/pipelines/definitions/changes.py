"""The changes of public.orders in PostgreSQL, as typed rows.

The connection is in the environment of `spark-pipelines`: PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE.
"""

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

OPTIONS = {
    "database.hostname": os.environ.get("PGHOST", "localhost"),
    "database.port": os.environ.get("PGPORT", "5432"),
    "database.user": os.environ["PGUSER"],
    "database.password": os.environ["PGPASSWORD"],
    "database.dbname": os.environ["PGDATABASE"],
    "topic.prefix": "orders",
    "slot.name": "orders_pipeline",
    "table.include.list": "public.orders",
    "skipped.operations": "none",
    "rows": "typed",
}


@pipelines.temporary_view
def changes() -> DataFrame:
    """Each change as the row that it leaves, or takes away, with `op` and its place in the log."""
    rows = SparkSession.active().readStream.format("postgres-cdc").options(**OPTIONS).load()
    # A flow knows neither a truncate nor a value that the log left out: it would keep the rows, and lose the value.
    emptied = f.assert_true(f.col("op") != "t", "public.orders was truncated: start again with --full-refresh-all")
    known = f.assert_true(
        f.col("unavailable").isNull(),
        "an update left a large value out of the log: alter table public.orders replica identity full",
    )
    changed = rows.where(f.col("op").isin("c", "u", "d", "r", "t") & emptied.isNull() & known.isNull())
    row, place = f.coalesce("after", "before").alias("row"), f.struct("position", "ordinal").alias("place")
    return changed.select(row, "op", place).select("row.*", "op", "place")
