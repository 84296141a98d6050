"""The metrics of every connector after the same history have the names, types and labels of a stored file.

A count in the file is the exact value. The values of times, sizes and versions differ in each run, and stand as `*`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors import registry
from tailrace.monitoring.exposition import exposed
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.spark import measures
from tailrace.spark.stream_reader import ChangeStreamReader
from tests.contract.query import GENERAL
from tests.contract.subject import Subject
from tests.waiting import until

STORED = Path(__file__).parent / "metrics"
_VARIES = re.compile(
    r"_seconds|MilliSeconds|Seconds$|_bytes|Bytes$|QueueRemaining|build_info|Position|Time$|silent_batches|batches_total"
)
_BUCKET = re.compile(r"_seconds_(?:sum|count)$")
_IN_TIME = "tailrace_slot_growth_bytes_per_second"
"""A metric that is there once the server has been asked three times."""
_NAMED = {"database", "slot", "table", "version", "pyspark", "python", "java"}
"""Labels with names that the test has made, or with versions."""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "FIRST_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(measures, "WRITE_SECONDS", 0.05)


def observed(subject: Subject) -> Generator[Observation]:
    """Yield the observation of a query after each of its triggers, as Spark would call it."""
    given = {**GENERAL, **subject.options, **subject.snapshot, "metrics.interval.ms": "50"}
    reader = ChangeStreamReader(registry.parse(subject.connector, given), "run")
    found = Observation(described, PipelineNames("contract"))
    at: dict[str, Any] = reader.initialOffset()
    number = -1
    try:
        while True:
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            newest, rows = reader.reportLatestOffset(), 0
            if end != at:
                number += 1
                rows = sum(batch.num_rows for task in reader.partitions(at, end) for batch in reader.read(task))
                at = end
            found.update(
                {
                    "batchId": max(number, 0), "numInputRows": rows, "processedRowsPerSecond": float(rows),
                    "durationMs": {"triggerExecution": 100, "addBatch": 60, "walCommit": 5, "commitOffsets": 5},
                    "sources": [{"endOffset": at, "latestOffset": newest}],
                }
            )  # fmt: skip
            yield found
    finally:
        reader.stop()


def shown(found: Observation, names: dict[str, str]) -> list[str]:
    """Return the declared types and the samples, sorted, with `*` for what differs in each run.

    `names` has the words for the names that the test has made.
    """
    lines = []
    for line in exposed(found)[0].decode().splitlines():
        if line.startswith("# TYPE"):
            lines += [] if _IN_TIME in line else [line]
        elif not line.startswith("#"):
            sample, _, value = line.rpartition(" ")
            name, _, labels = sample.rstrip("}").partition("{")
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            for label in _NAMED & pairs.keys():
                text = pairs[label]
                pairs[label] = "*" if label in ("version", "pyspark", "python", "java") else names.get(text, text)
            if "le" in pairs or name == _IN_TIME:
                continue
            varies = _VARIES.search(name) or _BUCKET.search(name)
            told = ",".join(f'{label}="{text}"' for label, text in sorted(pairs.items()))
            lines.append(f"{name}{{{told}}} {'*' if varies else value}")
    return sorted(set(lines))


def is_measured(measures: Mapping[str, Any]) -> bool:
    """Return True if the server has told what it keeps of its log since the reader was connected to its slot."""
    retention = measures.get("retention") or {}
    return bool(retention) and all(slot["inactive_s"] is None for slot in retention["slots"] if slot["is_own"])


@pytest.mark.usefixtures("often")
def test_the_metrics_of_a_history_are_those_that_are_stored(subject: Subject, tmp_path: Path) -> None:
    subject.insert(1, 2)
    with subject.at_work(), closing(observed(subject)) as triggers:

        def events(op: str) -> int:
            tables = next(triggers).state()["tables"]
            return sum(one["events"][op] for one in tables if one["table"].lower().endswith("things"))

        until(lambda: events("r") == 2, "the rows of the snapshot")
        subject.insert(3, 4, 5)
        until(lambda: events("c") == 3, "the changes")
        if registry.find(subject.connector).retention:
            until(lambda: is_measured(next(triggers).measures()), "what the server says about its log")
        found = next(triggers)
        own = {slot["name"]: "SLOT" for slot in found.state()["slots"] if slot["is_own"]}
        place = subject.table.rpartition(".")[0]
        databases = dict.fromkeys(found.measures()["databases"], "DATABASE")
        tables = {one["table"]: "THINGS" for one in found.state()["tables"]}
        lines = [line for line in shown(found, {**own, **databases, **tables, place: "PLACE"}) if "slot" not in line]
        # slots of other tests may be there, too
        lines += [line for line in shown(found, own) if "slot" in line and ("slot=" not in line or "SLOT" in line)]
    text = "".join(f"{line}\n" for line in sorted(lines))
    made = tmp_path / f"{subject.connector}.txt"
    made.write_text(text)
    stored = STORED / made.name
    assert stored.exists(), f"no stored metrics; {made} has today's"
    assert stored.read_text().splitlines() == text.splitlines(), f"if this is meant, copy {made} to {stored}"
