"""Without a configured limit, the limit of a change is a share of the memory of Spark's JVMs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from tailrace.connectors.registry import parse
from tailrace.spark.options import most_change_bytes, options, unpacked

GIVEN = {"database.hostname": "db", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def context(master: str, heap_mb: int, executor_mb: int = 0, **conf: str) -> Any:
    """Return a stand-in for a running Spark context."""
    runtime = SimpleNamespace(maxMemory=lambda: heap_mb << 20)
    settings = {name.replace("_", "."): text for name, text in conf.items()}
    return SimpleNamespace(
        master=master,
        _jvm=SimpleNamespace(
            java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime)))
        ),
        _jsc=SimpleNamespace(
            sc=lambda: SimpleNamespace(
                executorMemory=lambda: executor_mb,
                conf=lambda: SimpleNamespace(get=settings.get),
            )
        ),
    )


@pytest.mark.parametrize(
    ("running", "most_mb"),
    [
        (context("local[*]", 2048), 128),
        (context("local[2]", 8192), 512),
        (context("spark://h:7077", 8192, 1024), 64),
        (context("spark://h:7077", 512, 1024), 32),
        (context("yarn", 65536, 65536), 64),
        (context("yarn", 65536, 65536, spark_rpc_message_maxSize="512"), 256),
    ],
)
def test_it_is_a_share_of_the_smallest_memory(running: Any, most_mb: int) -> None:
    assert most_change_bytes(running) == most_mb << 20


@pytest.mark.parametrize(("given", "most"), [({}, 128 << 20), ({"event.max.change.bytes": "0"}, 0)])
def test_options_bring_it_to_the_source(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], most: int) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", context("local[*]", 2048))
    assert parse("postgres", unpacked(options(GIVEN | given)))["event.max.change.bytes"] == most


@pytest.mark.parametrize(
    ("master", "given", "in_files"),
    [("local[*]", {}, True), ("local", {"tasks.in.files": "false"}, False), ("yarn", {}, False)],
)
def test_tasks_lie_in_files_where_workers_are_here(
    monkeypatch: pytest.MonkeyPatch, master: str, given: dict[str, str], in_files: bool
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", context(master, 2048, 1024))
    assert parse("postgres", unpacked(options(GIVEN | given)))["tasks.in.files"] is in_files


def test_nothing_is_guessed_where_spark_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert unpacked(options(GIVEN)) == GIVEN
