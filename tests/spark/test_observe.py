"""`tailrace.observe` knows what a query of a PySpark program delivers, and why it has ended."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

import tailrace
from tailrace.spark import options, register
from tests.fix_postgres import Database
from tests.waiting import until


def test_a_query_of_a_program_is_observed(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    register(spark)
    texts = database.options(topic_prefix="s", slot_name=database.name)
    frame = spark.readStream.format("postgres-cdc").options(**options(texts)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.queryName("orders").start()
    try:
        with tailrace.observe(query) as observed:

            def counted() -> bool:
                return 'op="r",pipeline="orders",table="public.t"} 2.0' in observed.metrics()

            until(counted, "the counts of the tasks", 200, pace=0.1)
            state = observed.status()
            assert (state["pipeline"], state["server"], state["connector"]) == ("orders", "s", "postgres")
            assert (state["state"], state["events"], state["is_connected"]) == ("running", 2, True)
            assert observed.health()["status"] == "UP"
            address = observed.serve(token="a-token-of-tests")
            request = urllib.request.Request(f"{address}status", headers={"Authorization": "Bearer a-token-of-tests"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert json.load(answer)["tables"][0]["table"] == "public.t"
            query.stop()
            until(lambda: observed.status()["state"] == "ended", "the end", 60, pace=0.1)
    finally:
        query.stop()
