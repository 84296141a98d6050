"""The file of numbers that a planner writes, made by the test, and an observation of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.metrics.distribution import Histogram, Quantiles
from tailrace.metrics.tally import Tally
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.spark.measures import STAGES

NOW = 1_700_000_000.0


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


READING = {
    "is_connected": True, "setbacks": {"session": 2}, "read_bytes": 9000, "held_bytes": 100, "limit_bytes": 1000,
    "captured_tables": 3, "transactions": 7, "transaction_bytes": 512,
    "schema_changes": {"public.a": {"add": 2, "type": 1}},
}  # fmt: skip
"""The state of the reader as the planner's file has it."""


def slot(name: str = "debezium", **more: Any) -> dict[str, Any]:
    """Return a slot as the planner's file has it."""
    return {
        "name": name, "is_own": name == "debezium", "is_active": True, "status": "reserved",
        "retained_bytes": 5_000_000,
        "unconfirmed_bytes": 1000, "limit_bytes": None, "safe_bytes": None, "inactive_s": None, "invalidated": "",
        "spilled_bytes": 0, "spilled_transactions": 0, "growth_bytes_s": None, "limit_s": None,
    } | more  # fmt: skip


def written(folder: Path, tables: Iterable[str] = ("public.a",), **more: Any) -> Path:
    """Write a planner's file with two inserts, an update and three rows read of each table; return its path."""
    tally = Tally()
    for table in tables:
        tally.count(table, np.frombuffer(b"ccurrr", np.uint8))
    tally.bytes = 4096
    tally.note_times(int((NOW - 3) * 1e6), int((NOW - 2) * 1e6))
    behind = Quantiles()
    behind.add(2000.0)
    duration = Histogram()
    duration.add(0.2)
    content = {
        "at_s": NOW, "started_s": NOW - 60, "connector": "postgres", "server": "shop", "name": "shop", "tags": [],
        "event_name": "postgresql",
        "plugin": "postgres", "has_task": False, "databases": [],
        "most_tables": 1000, "queue_places": 8192, "unchanged": -1,
        "reading": READING,
        "format": "json",
        "is_idle": False, "arrived_s": NOW - 5, "committed_s": NOW - 1, "batches": 4, "silent_batches": 0,
        "tally": tally.to_json(), "whole_s": NOW - 2, "behind_ms": behind.to_json(),
        "histograms": {
            name: duration.to_json() for name in ("end_to_end", *STAGES)
        },
        "retention": {"at_s": NOW, "slots": [slot(limit_bytes=10_000_000, limit_s=40.0, growth_bytes_s=125_000.0,
                                                  safe_bytes=5_000_000, inactive_s=1.0)],
                      "oldest_s": None, "kept_s": None},
    } | more  # fmt: skip
    path = folder / "query.json"
    path.write_text(json.dumps(content))
    return path


def progress(place: Path | None = None, rows: int = 6, batch: int = 4, **newest: Any) -> dict[str, Any]:
    """Return a progress record of Spark."""
    latest = newest | ({} if place is None else {"measures": str(place)})
    return {
        "batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 12.0,
        "durationMs": {"triggerExecution": 400, "addBatch": 300, "walCommit": 20, "commitOffsets": 30},
        "sources": [{"endOffset": None, "latestOffset": json.dumps(latest)}],
    }  # fmt: skip


def observation(place: Path | None = None, clock: Clock | None = None) -> Observation:
    """Return an observation that has seen one batch, with the numbers of the planner's file."""
    found = Observation(described, PipelineNames("shop", "shop", "postgres"), clock or Clock())
    if place is not None:
        found.update(progress(place))
    return found
