"""The numbers of planner and tasks reach the driver: counts by table, lag, the reader, and the server's log."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.monitoring.exposition import exposed
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.spark import measures as planner_measures
from tailrace.spark.measures import STAGES, PlannerMeasures
from tailrace.spark.stream_reader import ChangeStreamReader
from tests import fix_invariant
from tests.fix_postgres import Database
from tests.waiting import until


class Query:
    """Spark's calls of a source and its tasks, in the test's own process, and an observation of them."""

    def __init__(self, database: Database, **options: str) -> None:
        own = {"topic.prefix": "s", "slot.name": database.name, "poll.interval.ms": "50"}
        self.config = parse("postgres", database.options(**own | options))
        fix_invariant.watch(database.server.dsn(), database.name, lambda: self.at)
        self.observation = Observation(described, PipelineNames("s"))
        self.at: dict[str, Any] | None = None
        self.number = -1
        self.filled = 0
        self.source = ChangeStreamReader(self.config, "run")

    def trigger(self, reads: int = 1) -> int:
        """Run one trigger; each task is read `reads` times. Return the number of rows."""
        source = self.source
        start = self.at or source.initialOffset()
        end = source.latestOffset(start, source.getDefaultReadLimit())
        newest = source.reportLatestOffset()
        rows = 0
        if end != start:
            self.number += 1
            worker = pickle.loads(pickle.dumps(source))
            for partition in source.partitions(start, end):
                for _ in range(reads):
                    counts = [batch.num_rows for batch in worker.read(pickle.loads(pickle.dumps(partition)))]
                rows += sum(counts)
            self.filled += rows > 0
            self.at = end
        self.observation.update(
            {
                "batchId": max(self.number, 0), "numInputRows": rows, "processedRowsPerSecond": float(rows),
                "durationMs": {"triggerExecution": 100, "addBatch": 60, "walCommit": 5, "commitOffsets": 5},
                "sources": [{"endOffset": end, "latestOffset": newest}],
            }
        )  # fmt: skip
        return rows

    def deliver(self, rows: int) -> None:
        """Run triggers until `rows` more rows are delivered, and Spark has said so."""
        left = rows

        def one() -> bool:
            nonlocal left
            left -= self.trigger()
            return left <= 0

        until(one, f"{rows} rows")
        self.trigger()

    def samples(self) -> dict[str, float]:
        """Return the metrics: values by name and labels, without labels of names and versions."""
        found = {}
        for line in exposed(self.observation)[0].decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def value(self, metric: str, /, **labels: str) -> float:
        """Return the value of the only sample of a metric with these labels."""
        wanted = [f'{label}="{text}"' for label, text in labels.items()]
        (found,) = [
            value
            for sample, value in self.samples().items()
            if sample.partition("{")[0] == metric and all(part in sample for part in wanted)
        ]
        return found


@contextmanager
def running(database: Database, **options: str) -> Iterator[Query]:
    query = Query(database, **options)
    try:
        yield query
    finally:
        query.source.stop()


def test_changes_are_counted_by_table_and_kind(database: Database) -> None:
    database.execute(
        "create table a (id int primary key, v text)", "create table b (id int primary key)",
        "insert into a select i, 'x' from generate_series(1, 20) i",
    )  # fmt: skip
    with running(database) as query:
        query.deliver(20)
        database.execute(
            "insert into a values (100, 'y'), (101, 'y')", "update a set v = 'z' where id = 1",
            "delete from a where id = 2", "insert into b values (1)",
        )  # fmt: skip
        query.deliver(6)
        events = {
            (one["table"], op): n for one in query.observation.state()["tables"] for op, n in one["events"].items() if n
        }
        assert events == {
            ("public.a", "r"): 20, ("public.a", "c"): 2, ("public.a", "u"): 1, ("public.a", "d"): 1,
            ("public.b", "c"): 1,
        }  # fmt: skip
        streaming = {"plugin": "postgres", "name": "s", "context": "streaming"}
        assert query.value("debezium_metrics_TotalNumberOfEventsSeen", **streaming) == 5
        assert query.value("debezium_metrics_TotalNumberOfCreateEventsSeen", **streaming) == 3
        assert query.value("debezium_metrics_NumberOfDeleteEventsSeen", **streaming, table="public.a") == 1
        assert query.value("debezium_metrics_RowsScanned", context="snapshot", table="public.a") == 20
        assert query.value("debezium_metrics_SnapshotCompleted") == 1
        assert query.value("tailrace_events_total", table="public.a", op="u", connector="postgresql") == 1
        assert query.value("debezium_metrics_Connected", **streaming) == 1
        assert query.value("tailrace_end_to_end_seconds_count") >= 1
        assert query.value("tailrace_delivered_bytes_total") > 1000
        assert query.value("tailrace_table_bytes_total", table="public.a") > 0


def test_a_task_that_is_read_again_counts_once(database: Database) -> None:
    database.execute("create table a (id int primary key)", "insert into a select generate_series(1, 50)")
    with running(database) as query:
        until(lambda: query.trigger(reads=3), "the snapshot")
        query.trigger()
        assert query.value("tailrace_events_total", table="public.a", op="r") == 50


def test_the_lag_is_nothing_once_everything_is_delivered(database: Database) -> None:
    database.execute("create table a (id int primary key)")
    with running(database) as query:
        query.trigger()
        database.execute("insert into a values (1)")
        query.deliver(1)
        # the planner's file follows within a second
        until(lambda: query.value("debezium_metrics_MilliSecondsBehindSource") == 0, "no lag")
        assert query.value("tailrace_source_lag_seconds") == 0
        assert query.value("debezium_metrics_MilliSecondsBehindSourceMaxValue") > 0


def test_changes_of_tables_and_transactions_are_counted(database: Database) -> None:
    database.execute("create table a (id int primary key, v text)", "create table b (id int primary key)")
    with running(database) as query:
        query.trigger()
        database.execute("insert into a values (1, 'x')")
        query.deliver(1)
        database.execute(
            "alter table a add column w int", "alter table a rename column v to x", "alter table a alter id type int8",
            "insert into a values (2, 'y', 3)",
            "insert into a select i, repeat('x', 5000) from generate_series(3, 9) i",
        )  # fmt: skip
        query.deliver(8)
        until(lambda: query.value("debezium_metrics_NumberOfCommittedTransactions") == 3, "three transactions")
        changes = {kind: query.value("tailrace_schema_changes_total", table="public.a", kind=kind)
                   for kind in ("add", "rename", "widen")}  # fmt: skip
        assert changes == {"add": 1, "rename": 1, "widen": 1}
        stages = {stage: query.value("tailrace_stage_seconds_count", stage=stage) for stage in STAGES}
        # one value of each for every batch with changes: two, or three if a batch ends between the last transactions
        assert stages == dict.fromkeys(STAGES, query.filled)
        assert query.value("tailrace_captured_tables") == 2
        assert 7 * 5000 < query.value("tailrace_transaction_bytes_max") < 8 * 5100


def test_the_bytes_of_lag_are_known_while_the_reader_waits(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_measures, "FIRST_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(planner_measures, "WRITE_SECONDS", 0.05)
    database.execute("create table a (id int primary key, v text)")
    options = {"metrics.interval.ms": "50", "slot.watch.interval.ms": "100", "max.queue.size.in.bytes": "100000"}
    with running(database, **options) as query:
        query.trigger()
        database.execute("insert into a values (0, '')")
        query.deliver(1)
        insert = "insert into a select i, repeat('x', 1000) from generate_series({}, {}) i"
        # Spark is at a batch from here on: it calls nothing
        database.execute(insert.format(1, 500))
        until(lambda: query.observation.state()["spool"]["bytes"] >= 100_000, "a full spool")
        read = query.observation.state()["lag_bytes"]
        database.execute(insert.format(501, 5000))
        until(lambda: query.observation.state()["lag_bytes"] > read + 4_000_000, "the bytes that nobody has read")
        query.deliver(5000)


def test_a_slot_is_measured_to_the_byte_and_so_are_those_of_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_measures, "FIRST_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(planner_measures, "WRITE_SECONDS", 0.05)
    other = f"{database.name}_other"
    database.execute(
        "create table a (id int primary key)", f"select pg_create_logical_replication_slot('{other}', 'pgoutput')",
    )  # fmt: skip
    try:
        with running(database, **{"metrics.interval.ms": "50"}) as query:
            query.trigger()

            def retained() -> tuple[int, ...]:
                with database.connect() as connection:
                    row = connection.execute(
                        "select pg_current_wal_lsn() - restart_lsn, pg_current_wal_lsn() - confirmed_flush_lsn "
                        "from pg_replication_slots where slot_name = %s", (other,),
                    ).fetchone()  # fmt: skip
                assert row is not None
                return tuple(map(int, row))

            def is_equal() -> bool:
                found = {slot["name"]: slot for slot in query.observation.state()["slots"]}
                slot = found.get(other)
                return slot is not None and (slot["retained_bytes"], slot["unconfirmed_bytes"]) == retained()

            until(is_equal, "the slot's bytes", 20)
            state = query.observation.state()
            owns = {slot["name"]: slot["is_own"] for slot in state["slots"]}
            assert (owns[database.name], owns[other]) == (True, False)
            assert query.value("tailrace_slot_active", slot=other) == 0
            assert query.value("tailrace_slot_wal_status", slot=other, status="reserved") == 1
            # max_slot_wal_keep_size is -1: there is no limit, and so none is shown
            assert not any(name.startswith("tailrace_slot_limit") for name in query.samples())
    finally:
        database.execute(f"select pg_drop_replication_slot('{other}')")


def test_the_planner_leaves_nothing_behind_and_the_last_numbers_stay(database: Database) -> None:
    database.execute("create table a (id int primary key)", "insert into a values (1)")
    with running(database) as query:
        query.deliver(1)
        place = Path(query.source._measures.place)  # type: ignore[union-attr]
        assert [path.name for path in place.parent.glob("*.json")] == ["query.json"]
        query.observation.end(None)
        place.unlink()
        assert query.value("tailrace_events_total", table="public.a", op="r") == 1
        assert query.value("tailrace_up") == 0


LIMIT_MB = 160
WRITTEN_MB = 8
"""Megabytes of log between two samples."""


def test_a_limited_slot_is_measured_to_the_byte_and_its_forecast_comes_true(database: Database) -> None:
    database.execute("create table a (id int primary key)")
    name = f"{database.name}_kept"
    database.execute(f"select pg_create_logical_replication_slot('{name}', 'pgoutput')")
    now = [1000.0]
    with limited(database, LIMIT_MB):
        config = parse("postgres", database.options(topic_prefix="s", slot_name=name))
        planner = PostgresPlanner(config, EventSettings.from_options(config, "run"))
        measures = PlannerMeasures(config, planner, lambda: now[0])
        try:

            def sampled() -> dict[str, Any]:
                measures.sample()
                (found,) = [one for one in measures._content()["retention"]["slots"] if one["name"] == name]
                return dict(found)

            def write() -> None:
                message = "pg_logical_emit_message(true, '', repeat('x', 1 << 20))"
                database.execute(f"select {message} from generate_series(1, {WRITTEN_MB})")
                now[0] += 15

            for _ in range(4):
                write()
                told = sampled()
            with database.connect() as connection:
                row = connection.execute(
                    "select pg_current_wal_lsn() - restart_lsn, safe_wal_size, wal_status from pg_replication_slots "
                    "where slot_name = %s", (name,),
                ).fetchone()  # fmt: skip
            assert row is not None
            # nobody writes, so the catalog still says the same
            assert (told["retained_bytes"], told["safe_bytes"], told["status"]) == (int(row[0]), int(row[1]), row[2])
            assert told["limit_bytes"] == LIMIT_MB << 20
            forecast, began = told["limit_s"], now[0]
            while told["safe_bytes"] is not None and told["safe_bytes"] > 0:
                write()
                told = sampled()
            # the server has no more room for the slot: its next checkpoint may remove log
            assert told["status"] == "unreserved"
            assert abs((now[0] - began) / forecast - 1) < 0.2
        finally:
            measures.close()
            planner.close()
    database.execute(f"select pg_drop_replication_slot('{name}')")


@contextmanager
def limited(database: Database, megabytes: int) -> Iterator[None]:
    """Limit the log of slots inside the block."""
    setting = "max_slot_wal_keep_size"
    database.execute(f"alter system set {setting} = '{megabytes}MB'", "select pg_reload_conf()")
    shows = f"select setting = '{megabytes}' from pg_settings where name = '{setting}'"
    try:
        # the server's processes take it over one after another
        with database.connect() as connection:
            until(lambda: connection.execute(shows).fetchone() == (True,), "the setting")
        yield
    finally:
        database.execute(f"alter system reset {setting}", "select pg_reload_conf()")
