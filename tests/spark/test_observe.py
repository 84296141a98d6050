"""`tailrace.observe` knows what a query of a PySpark program delivers, and why it has ended."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

import tailrace
from tailrace.errors import SinkError
from tailrace.monitoring.health import ALL, LIVE, READY
from tailrace.monitoring.observing import ObservedQuery
from tailrace.spark import options, register
from tests.chaos.process import PARTS, runs
from tests.chaos.proxy import Proxy
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


@contextmanager
def observed(spark: SparkSession, texts: Mapping[str, str], place: Path, timeout_s: float) -> Iterator[Watched]:
    """Yield a query that runs under observation, and its planner's process."""
    register(spark)
    others = set(planners())
    frame = spark.readStream.format("postgres-cdc").options(**options(texts)).load()
    # Spark tells of an idle query this often
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200ms")
    query = frame.writeStream.foreachBatch(_write).option("checkpointLocation", str(place)).start()
    try:
        with tailrace.observe(query, live_timeout_s=timeout_s) as found:
            until(lambda: found.health()["status"] == "UP", "the first batch", 200, pace=0.1)
            (planner,) = set(planners()) - others
            yield Watched(found, planner)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


class Watched:
    """A query under observation. `planner` is the process that plans its batches."""

    def __init__(self, found: ObservedQuery, planner: psutil.Process) -> None:
        self.planner = planner
        self.found = found

    def down(self, group: str) -> list[str]:
        """Return the checks of a group that are DOWN."""
        return sorted(name for name, is_up in self.found._health.checks(group).items() if not is_up)


def planners() -> list[psutil.Process]:
    """Return the planners of the queries of this process."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if runs(one, PARTS["planner"]):
                found.append(one)
    return found


_refuses = threading.Event()
_goes_on = threading.Event()
_goes_on.set()


def _write(frame: DataFrame, number: int) -> None:
    frame.count()
    _goes_on.wait()
    if _refuses.is_set():
        raise SinkError("The sink does not answer.", "Start it.")


def test_health_through_a_lost_server_a_stopped_planner_and_a_killed_one(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    with Proxy(database.server.port) as way:
        texts = database.options(topic_prefix="s", slot_name=database.name) | {
            "database.port": str(way.port), "retriable.restart.connector.wait.ms": "100",
        }  # fmt: skip
        with observed(spark, texts, tmp_path, 5) as query:
            # the server is gone: the query lives, and is not ready
            way.stall()
            way.cut()
            until(lambda: query.down(READY) == ["source"], "the lost session", 60, pace=0.1)
            assert query.down(LIVE) == []
            way.flow()
            until(lambda: query.down(ALL) == [], "a new session", 60, pace=0.1)
            # the planner stands still, and Spark's loop waits for it
            query.planner.suspend()
            try:
                stopped = time.monotonic()
                until(lambda: query.down(LIVE) == ["debezium"], "the time-out", 60, pace=0.1)
                assert time.monotonic() - stopped > 1
            finally:
                query.planner.resume()
            until(lambda: query.down(ALL) == [], "signs of life", 60, pace=0.1)
            query.planner.kill()
            until(lambda: query.down(LIVE) == ["debezium"], "the query's end", 60, pace=0.1)
            assert query.found.status()["state"] == "failed"
            assert query.found.status()["error"]["kind"] == "process"


def test_health_when_the_sink_refuses(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    texts = database.options(topic_prefix="s", slot_name=database.name)
    with observed(spark, texts, tmp_path, 60) as query:
        _refuses.set()
        try:
            database.execute("insert into t values (2)")
            until(lambda: "sink" in query.down(READY), "the failure", 60, pace=0.1)
            assert query.down(LIVE) == ["debezium"]
            assert query.found.status()["error"]["kind"] == "sink"
        finally:
            _refuses.clear()


def test_a_long_batch_is_a_sign_of_life_unless_the_planner_is_stuck(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    texts = database.options(topic_prefix="s", slot_name=database.name)
    with observed(spark, texts, tmp_path, 2) as query:
        found = query.found._observation
        _goes_on.clear()
        try:
            database.execute("insert into t values (2)")
            until(lambda: found.alive_s > found.ticked_s + 4, "signs of life within a batch", 60, pace=0.1)
            assert query.down(LIVE) == []
            query.planner.suspend()
            try:
                until(lambda: query.down(LIVE) == ["debezium"], "the time-out", 60, pace=0.1)
            finally:
                query.planner.resume()
            until(lambda: query.down(LIVE) == [], "signs of life", 60, pace=0.1)
        finally:
            _goes_on.set()
