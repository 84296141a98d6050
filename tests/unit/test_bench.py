"""The benchmark's arithmetic is right: figures, steady times, percentiles, kinds of processes. Nothing is measured
here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import chains, tables
from bench.__main__ import arguments
from bench.drain import steady_seconds
from bench.latency import summary
from bench.report import COPY, PEEK, PLAIN, RECEIVE, Measurement, figures, table, write
from bench.usage import part
from bench.workload import wait
from tailrace.config.transforms import transforms
from tailrace.spark.startup.fork_server import PLANNER

SECOND = 1_000_000_000


def run(case: str, seconds: float, number: int = 0, group: str = "a", phase: str = "stream") -> Measurement:
    size = 0 if phase == "snapshot" else 50_000_000
    if case in (RECEIVE, PEEK, COPY):
        return Measurement(phase, case, number, group, 100, seconds, total_cpu=1.0, log_bytes=size)
    return Measurement(
        phase, case, number, group, 100, seconds, seconds / 2, 4.0, 0.5, {}, 300.0 + number, 900.0, log_bytes=size
    )


def test_a_ratio_is_the_rate_over_the_mean_of_the_baseline_before_and_after() -> None:
    found = figures([run(RECEIVE, 10), run(PEEK, 2), run("noop", 4), run(RECEIVE, 14), run(PEEK, 4)])
    assert found["stream_noop_ratio"] == 3.0
    assert found["stream_noop_peek_ratio"] == 0.75
    assert found["stream_noop_steady_ratio"] == 6.0


def test_the_median_of_the_rounds_counts_and_each_round_has_its_own_baseline() -> None:
    rounds = [(10, 1), (20, 10), (30, 10)]
    runs = [one for n, (base, own) in enumerate(rounds) for one in (run(RECEIVE, base, n), run("noop", own, n))]
    found = figures(runs)
    assert found["stream_noop_ratio"] == 3.0
    assert found["stream_noop_seconds"] == 10
    assert found["peak_rss_mib"] == 302.0


def test_a_baseline_of_another_group_does_not_count() -> None:
    found = figures([run(RECEIVE, 10), run(RECEIVE, 50, group="b"), run("noop", 5), run("kafka", 5, group="b")])
    assert (found["stream_noop_ratio"], found["stream_kafka_ratio"]) == (2.0, 10.0)


def test_a_snapshot_is_compared_with_copy() -> None:
    found = figures([run(COPY, 3, phase="snapshot"), run("noop", 6, phase="snapshot")])
    assert found["snapshot_noop_ratio"] == 0.5
    assert "snapshot_noop_peek_ratio" not in found
    assert "snapshot_noop_mb_per_second" not in found


def test_events_for_a_second_of_cpu_are_those_of_the_plain_drain() -> None:
    found = figures([run(RECEIVE, 1), run("noop", 1), run("noop_topic", 1)])
    assert found["events_per_cpu_second"] == 25.0
    assert found["stream_noop_per_second"] == 100.0


def test_a_chain_is_compared_with_plain_json_before_and_after_it() -> None:
    before, after = run(PLAIN, 4, group="unwrap", phase="transforms"), run(PLAIN, 8, group="unwrap", phase="transforms")
    other = run(PLAIN, 80, group="filter", phase="transforms")
    found = figures([before, run("unwrap", 5, group="unwrap", phase="transforms"), after, other])
    assert (found["transforms_unwrap_ratio"], found["transforms_unwrap_steady_ratio"]) == (1.2, 1.2)
    assert "transforms_json_ratio" not in found


def test_each_chain_is_one_that_a_configuration_may_have() -> None:
    for chain in chains.CHAINS.values():
        assert transforms({**chain.options, "transforms": ["t"]}).faults == []
    assert set(chains.avro("http://registry").options.values()) == {
        "io.confluent.connect.avro.AvroConverter",
        "http://registry",
    }


def test_the_megabytes_are_those_of_the_log() -> None:
    found = figures([run(RECEIVE, 10), run("noop", 4)])
    assert (found["stream_pg_recvlogical_mb_per_second"], found["stream_noop_mb_per_second"]) == (5.0, 12.5)


def test_a_case_without_a_baseline_has_no_ratio() -> None:
    assert not any(name.endswith("ratio") for name in figures([run("noop", 1)]))


def test_the_file_has_the_figures_at_its_top_and_every_measurement(tmp_path: Path) -> None:
    runs = [run(RECEIVE, 10), run("noop", 3)]
    target = tmp_path / "new" / "bench.json"
    write(target, figures(runs), {"rows": 100}, runs)
    read = json.loads(target.read_text("utf-8"))
    assert read["stream_noop_ratio"] == 3.3333
    assert read["context"] == {"rows": 100}
    assert [one["case"] for one in read["measurements"]] == [RECEIVE, "noop"]


def test_the_table_has_a_line_for_each_case_of_equal_width() -> None:
    runs = [run(RECEIVE, 10, n) for n in range(2)] + [run("noop", 3, n) for n in range(2)]
    lines = table(runs, figures(runs) | {"latency_p50_ms": 1234.4}).splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert lines[2].startswith("| stream_pg_recvlogical | 100 | 10.0 |  | 10 | 5 |  |")
    assert lines[3] == "| stream_noop | 100 | 3.0 | 1.5 | 33 | 17 | 3.33 |  | 6.67 | 4.0 | 0.5 | 301 | 900 |"
    assert lines[4] == "latency_p50_ms: 1,234"


def test_steady_time_leaves_out_empty_batches_at_both_ends() -> None:
    def batch(second: int, rows: int, ms: int) -> dict[str, object]:
        stamp = f"2026-01-01T00:00:{second:02d}.500Z"
        return {"timestamp": stamp, "numInputRows": rows, "durationMs": {"triggerExecution": ms}}

    assert steady_seconds([batch(0, 0, 900), batch(2, 5, 1000), batch(4, 5, 1250), batch(9, 0, 10)]) == 3.25
    assert steady_seconds([batch(0, 0, 900)]) == 0.0


def test_latency_leaves_out_the_first_five_seconds() -> None:
    committed = {row: row * SECOND // 10 for row in range(100)}
    arrived = {row: moment + (SECOND if row < 50 else row * 1_000_000) for row, moment in committed.items()}
    found = summary(committed, arrived, [7])
    assert found.rows == 50
    assert found.p50 == pytest.approx(74.5)
    assert found.longest == 99.0
    assert found.p95 < found.p99 < found.longest


def test_a_row_that_never_arrived_is_an_error() -> None:
    with pytest.raises(KeyError):
        summary({1: 0, 2: 6 * SECOND}, {1: 5}, [])


@pytest.mark.parametrize(
    ("command", "name", "expected"),
    [
        (["java", "-cp", "x.jar", "kafka.Kafka", "server.properties"], "java", "broker"),
        (["java", "-Xmx2g", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"], "java", "jvm"),
        (
            ["python", "-u", "-c", "from tailrace.spark.startup.fork_server import main; main()", "7"],
            "python",
            "workers",
        ),
        (
            ["python", "-u", "-c", "from tailrace.spark.startup.fork_server import main; main()", "7"],
            "worker",
            "workers",
        ),
        (["python", "-u", "-c", "from tailrace.spark.startup.fork_server import main"], "python_streamin", "planner"),
        (["python", "-I", "-S", "/x/fork_client.py", "/s", "/x/quiet.py", "-m", "pyspark.daemon"], "python", "workers"),
        (["python", "-I", "-S", "/x/fork_client.py", "/s", "/x/quiet.py", "-m", PLANNER], "python", "workers"),
        # Without a fork server.
        (["python", "/x/quiet.py", "-m", PLANNER], "python", "planner"),
        (["python", "/x/quiet.py", "-m", "pyspark.daemon", "pyspark.worker"], "python", "workers"),
        (["pg_recvlogical", "--start"], "pg_recvlogical", "client"),
        ([], "python", "client"),
    ],
)
def test_a_process_is_known_by_its_command(command: list[str], name: str, expected: str) -> None:
    assert part(command, name) == expected


def test_only_may_name_several_phases() -> None:
    found = arguments(["--only", "stream", "--only", "latency", "--rows", "50000"])
    assert (found.only, found.rows, found.repeat, found.server) == (["stream", "latency"], 50_000, 3, "system")


@pytest.mark.parametrize("words", [["--rows", "1"], ["--repeat", "0"], ["--only", "other"], ["--server", "mine"]])
def test_impossible_measurements_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        arguments(words)
    assert refused.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_a_table_has_a_value_for_each_column() -> None:
    found = [tables.plain("p"), tables.wide("w"), tables.types("t"), tables.types("t", ["vector"])]
    assert [len(table.columns) for table in found] == [len(table.row) for table in found]
    assert len(found[1].columns) == 100
    assert len(found[3].columns) == len(found[2].columns) + 2
    assert all(len({name for name, _ in table.columns}) == len(table.columns) for table in found)


def test_extensions_are_those_that_a_server_has() -> None:
    assert tables.extensions({"vector", "plpgsql", "citext"}) == ("citext", "vector")


def test_waiting_ends_with_an_error() -> None:
    with pytest.raises(TimeoutError, match="no row arrives for 0 s"):
        wait(lambda: False, "no row arrives", 0)
