"""Metrics follow the rules of Prometheus, keep Debezium's names and units, and stay small with many tables."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tailrace.connectors.postgres.log.retention import log_end
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.source_status import SourceStatus, TableProgress
from tailrace.errors import ConnectionFailed
from tailrace.metrics.tally import SinkCounts
from tailrace.monitoring.exposition import exposed
from tailrace.monitoring.families import families
from tailrace.monitoring.health import READY, Health
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.snapshot.incremental import Collection, Cursor, PausedTable
from tailrace.snapshot.progress import Progress
from tests.unit.monitoring.planner_file import NOW, READING, Clock, observation, progress, slot, written

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
BASE_UNITS = ("seconds", "bytes")
OTHER_UNITS = ("milliseconds", "ms", "minutes", "hours", "kilobytes", "kb", "mb")


def samples(found: Observation) -> dict[str, float]:
    """Return the samples by name and the values of table, op, kind, status and slot."""
    named = ("context", "table", "op", "kind", "status", "slot", "stage", "le")
    return {
        " ".join([sample.name, *(sample.labels[label] for label in named if label in sample.labels)]): sample.value
        for family in text_string_to_metric_families(exposed(found)[0].decode())
        for sample in family.samples
    }


def test_every_family_is_declared_once_and_no_sample_comes_twice(tmp_path: Path) -> None:
    text = exposed(observation(written(tmp_path)))[0].decode()
    for word in ("HELP", "TYPE"):
        declared = [line.split()[2] for line in text.splitlines() if line.startswith(f"# {word} ")]
        assert len(declared) == len(set(declared))
        assert declared
    names = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names))


def test_own_names_have_base_units_and_only_counters_end_in_total(tmp_path: Path) -> None:
    own = [one for one in families(observation(written(tmp_path))) if one.name.startswith("tailrace_")]
    assert len(own) > 25
    for family in own:
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert not set(family.name.split("_")) & set(OTHER_UNITS), family.name
        assert family.name == family.name.lower()
        assert family.help.endswith(".")


def test_debeziums_names_are_gauges_in_its_own_spelling(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    for family in families(found):
        if family.name.startswith("debezium_metrics_"):
            assert family.kind == "gauge"
    values = samples(found)
    assert values["debezium_metrics_TotalNumberOfEventsSeen streaming"] == 3
    assert values["debezium_metrics_TotalNumberOfEventsSeen snapshot"] == 3
    assert values["debezium_metrics_MilliSecondsBehindSource streaming"] == 2000
    assert values["debezium_metrics_MilliSecondsSinceLastEvent streaming"] == 5000
    assert values["debezium_metrics_QueueRemainingCapacity streaming"] == int(8192 * 0.9)
    assert values["debezium_metrics_SnapshotCompleted snapshot"] == 1
    assert values["debezium_metrics_create_events_count streaming public.a"] == 2


def test_both_families_tell_the_same(tmp_path: Path) -> None:
    found = samples(observation(written(tmp_path)))
    assert found["debezium_metrics_MilliSecondsBehindSource streaming"] / 1000 == found["tailrace_source_lag_seconds"]
    assert found["debezium_metrics_RowsScanned snapshot public.a"] == found["tailrace_events_total public.a r"]
    assert found["debezium_metrics_CurrentQueueSizeInBytes streaming"] == found["tailrace_spool_bytes"]


def test_openmetrics_is_valid_where_it_is_asked_for(tmp_path: Path) -> None:
    body, content_type = exposed(observation(written(tmp_path)), OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert {one.name for one in openmetrics_families(body.decode())} >= {"tailrace_events", "tailrace_stage_seconds"}


def test_a_histogram_counts_up_to_each_bound(tmp_path: Path) -> None:
    found = samples(observation(written(tmp_path)))
    assert found["tailrace_stage_seconds_bucket convert 0.1"] == 0
    assert found["tailrace_stage_seconds_bucket convert 0.25"] == 1
    assert found["tailrace_stage_seconds_bucket convert +Inf"] == 1
    assert found["tailrace_stage_seconds_sum write"] == pytest.approx(0.3)
    assert found["tailrace_stage_seconds_sum commit"] == pytest.approx(0.05)


def test_what_the_log_tells_of_tables_and_transactions_is_shown(tmp_path: Path) -> None:
    found = samples(observation(written(tmp_path)))
    assert found["debezium_metrics_NumberOfCommittedTransactions streaming"] == 7
    assert found["tailrace_transaction_bytes_max"] == 512
    assert found["tailrace_captured_tables"] == 3
    assert found["tailrace_schema_changes_total public.a add"] == 2
    assert found["tailrace_schema_changes_total public.a type"] == 1


def test_a_log_without_transactions_has_no_number_of_them(tmp_path: Path) -> None:
    reading = READING | {"transactions": None, "transaction_bytes": None, "captured_tables": None}
    found = samples(observation(written(tmp_path, reading=reading)))
    unknown = ("NumberOfCommittedTransactions", "transaction_bytes_max", "captured_tables")
    assert not [name for name in found if any(word in name for word in unknown)]


def test_bytes_of_lag_are_those_that_the_server_tells_while_the_reader_waits(tmp_path: Path) -> None:
    end = {"log": {"commit": "0/100", "end": "0/100"}}
    record = progress(written(tmp_path, retention={"newest": log_end(0x400)}), **end)
    record["sources"][0]["endOffset"] = json.dumps(end)
    found = Observation(described, PipelineNames("shop", "shop", "postgresql"), Clock())
    found.update(record)
    assert found.state()["lag_bytes"] == 0x300
    assert found.state()["history"][-1][3] == 0x300
    # a query that has ended reads nothing more
    found.end(None)
    assert found.state()["lag_bytes"] == 0


def test_a_slot_without_limit_shows_none(tmp_path: Path) -> None:
    retention = {
        "slots": [slot(), slot("old", is_active=False, inactive_s=7200.0, status="lost", invalidated="wal_removed")]
    }
    found = samples(observation(written(tmp_path, retention=retention)))
    assert found["tailrace_slot_retained_bytes debezium"] == 5_000_000
    assert "tailrace_slot_limit_bytes debezium" not in found
    assert "tailrace_slot_limit_seconds debezium" not in found
    assert found["tailrace_slot_active old"] == 0
    assert found["tailrace_slot_inactive_seconds old"] == 7200
    assert found["tailrace_slot_wal_status lost old"] == 1
    assert found["tailrace_slot_wal_status reserved old"] == 0
    assert found["tailrace_slot_invalidated old"] == 1


def test_a_sink_with_one_writer_has_counts() -> None:
    found = Observation(described, PipelineNames("shop"), sink=SinkCounts("http", 3, 1))
    values = {name.partition(" ")[0]: value for name, value in samples(found).items()}
    assert (values["tailrace_sink_retries_total"], values["tailrace_sink_refused_total"]) == (3, 1)
    assert "tailrace_sink_retries_total" not in " ".join(samples(Observation(described)))


def test_tags_of_the_configuration_are_labels_of_every_sample(tmp_path: Path) -> None:
    found = observation(written(tmp_path, tags=["team=billing", "region=a=b"]))
    for family in families(found):
        for labels, _ in family.samples:
            if family.name != "tailrace_errors_total" or labels:
                assert (labels["team"], labels["region"]) == ("billing", "a=b")


def test_a_connector_with_tasks_and_databases_has_their_labels(tmp_path: Path) -> None:
    place = written(tmp_path, plugin="sql_server", has_task=True, databases=["shop"])
    labels, _ = next(one for one in families(observation(place)) if one.name == "debezium_metrics_Connected").samples[0]
    assert labels == {
        "plugin": "sql_server", "name": "shop", "context": "streaming", "task": "0", "database": "shop",
    }  # fmt: skip


@pytest.mark.parametrize("contexts", [["snapshot", "streaming"], ["streaming"], []])
def test_lost_sessions_are_where_debezium_counts_them(tmp_path: Path, contexts: list[str]) -> None:
    found = samples(observation(written(tmp_path, disconnects=contexts)))
    name = "debezium_metrics_NumberOfDisconnects"
    assert {key: value for key, value in found.items() if key.startswith(name)} == {
        f"{name} {context}": 2 for context in contexts
    }


def test_chunks_of_a_snapshot_are_counted_by_table(tmp_path: Path) -> None:
    reading = SourceStatus(tables=(TableProgress("public.a", 3, 8, "chunks"),))
    found = Observation(lambda _: lambda *_: reading, PipelineNames("shop", "shop", "postgres"), Clock())
    found.update(progress(written(tmp_path)))
    values = samples(found)
    assert values["debezium_metrics_TableChunkCounts snapshot public.a"] == 8
    assert values["debezium_metrics_TableChunksCompletedCounts snapshot public.a"] == 3


def test_before_the_planner_answers_there_is_a_pipeline_and_no_number() -> None:
    found = samples(observation())
    assert found["tailrace_up"] == 1
    assert not any(name.startswith("debezium_") for name in found)


def test_a_query_that_has_found_nothing_since_its_start_has_numbers(tmp_path: Path) -> None:
    found = Observation(described, PipelineNames("shop", "shop", "postgres"), Clock())
    found.look_in(tmp_path)
    assert samples(found)["tailrace_up"] == 1
    (tmp_path / "tailrace-metrics-x").mkdir()
    written(tmp_path / "tailrace-metrics-x", is_idle=True, reading=READING | {"held_bytes": 0})
    # Spark says that there is nothing, and reports no progress
    found.tick()
    values = samples(found)
    assert (values["tailrace_connected"], values["tailrace_source_lag_seconds"]) == (1, 0)
    assert values["tailrace_slot_retained_bytes debezium"] == 5_000_000
    assert Health(found, 60.0, Clock()).answer(READY)[0]


def test_the_label_of_the_connector_is_the_same_from_the_start_on(tmp_path: Path) -> None:
    early, late = observation(), observation(written(tmp_path))
    for found in (early, late):
        assert 'tailrace_up{connector="postgresql",pipeline="shop"}' in exposed(found)[0].decode()


def test_a_snapshot_that_runs_shows_its_tables(tmp_path: Path) -> None:
    found = observation()
    running = {"table": "public.a", "rows": 30, "of": 120, "waiting": ["public.b", "public.c"]}
    found.update(progress(written(tmp_path), snapshot=running))
    values = samples(found)
    assert values["debezium_metrics_SnapshotRunning snapshot"] == 1
    assert values["debezium_metrics_TotalTableCount snapshot"] == 3
    assert values["debezium_metrics_RemainingTableCount snapshot"] == 3
    assert values["tailrace_snapshot_rows public.a"] == 30
    assert values["tailrace_snapshot_rows_expected public.a"] == 120
    states = {name for name, value in values.items() if name.startswith("tailrace_snapshot_state public") and value}
    assert states == {
        "tailrace_snapshot_state public.a running", "tailrace_snapshot_state public.b waiting",
        "tailrace_snapshot_state public.c waiting",
    }  # fmt: skip
    found.update(progress(written(tmp_path), batch=5))
    values = samples(found)
    assert values["debezium_metrics_SnapshotRunning snapshot"] == 0
    assert values["debezium_metrics_SnapshotCompleted snapshot"] == 1
    assert values["debezium_metrics_RemainingTableCount snapshot"] == 0


def test_a_snapshot_whose_last_table_is_paused_is_not_complete(tmp_path: Path) -> None:
    held = (PausedTable(Collection("public", "b"), Cursor(("7",), ("9",), 3)),)
    found = observation()
    for batch, running, names in ((4, {"table": "public.a", "rows": 30}, held), (5, None, held), (6, None, ())):
        record = progress(written(tmp_path), batch=batch, **({} if running is None else {"snapshot": running}))
        offset = PostgresOffset(progress=Progress(held=names)).to_json()
        record["sources"][0]["endOffset"] = json.dumps(offset)
        found.update(record)
        values = samples(found)
        of = [int(values[f"debezium_metrics_Snapshot{state} snapshot"]) for state in ("Running", "Paused", "Completed")]
        left = values["debezium_metrics_RemainingTableCount snapshot"]
        assert (of, left) == {4: ([1, 0, 0], 2), 5: ([0, 1, 0], 1), 6: ([0, 0, 1], 0)}[batch]
        assert found.state()["snapshot"]["state"] == {4: "running", 5: "paused", 6: "done"}[batch]


def test_a_query_that_fails_during_a_snapshot_shows_the_table(tmp_path: Path) -> None:
    found = observation()
    found.update(progress(written(tmp_path), snapshot={"table": "public.a", "rows": 30, "of": 120}))
    found.end(ConnectionFailed("The server is gone."))
    values = samples(found)
    assert values["tailrace_snapshot_state public.a failed"] == 1
    assert values["tailrace_snapshot_state public.a running"] == 0
    assert values["debezium_metrics_SnapshotAborted snapshot"] == 1


def test_tables_above_the_limit_share_one_label(tmp_path: Path) -> None:
    found = observation(written(tmp_path, [f"s.t{number}" for number in range(50)], most_tables=10))
    values = samples(found)
    labels = {name.split()[1] for name in values if name.startswith("tailrace_events_total")}
    assert len(labels) == 11
    assert values["tailrace_events_total other c"] == 80
    assert values["debezium_metrics_TotalNumberOfEventsSeen streaming"] == 150


def test_metrics_of_ten_thousand_tables_are_small_and_quick(tmp_path: Path) -> None:
    found = observation(written(tmp_path, [f"schema.table_{number}" for number in range(10_000)]))
    exposed(found)
    began = time.process_time()
    body, _ = exposed(found)
    # 0.2 s on a quiet machine
    assert time.process_time() - began < 1.0
    assert len(body) < 2_000_000


def test_the_age_of_the_newest_change_grows_while_something_waits(tmp_path: Path) -> None:
    clock = Clock()
    found = observation(written(tmp_path), clock)
    clock.now = NOW + 8
    assert samples(found)["tailrace_source_lag_seconds"] == 10
    written(tmp_path, is_idle=True, reading=READING | {"held_bytes": 0})
    assert samples(found)["tailrace_source_lag_seconds"] == 0


def test_the_lag_grows_while_the_database_is_away(tmp_path: Path) -> None:
    """A planner that waits for its database in a call has said last that nothing waits."""
    clock = Clock()
    idle = {"is_idle": True, "whole_s": NOW}
    found = observation(written(tmp_path, reading=READING | {"held_bytes": 0}, **idle), clock)
    clock.now = NOW + 600
    assert samples(found)["tailrace_source_lag_seconds"] == 0
    written(tmp_path, reading=READING | {"held_bytes": 0, "is_connected": False}, **idle)
    values = samples(found)
    assert values["tailrace_source_lag_seconds"] == 600
    assert values["debezium_metrics_MilliSecondsBehindSource streaming"] == 600_000


def test_batches_that_were_reported_late_are_caught_up_once(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    place = tmp_path / "query.json"
    found.catch_up(
        [progress(place, batch=3), progress(place, batch=4), progress(place, batch=5), progress(place, batch=6)]
    )
    assert (found.batches, found.events) == (3, 18)
