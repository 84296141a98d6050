"""The counters of a query after a recorded case are those of Debezium's beans after the same case.

`python tools/record/record.py CASE_DIR --counters` records what the beans of a real Debezium show at a case's end.
Cases with an incremental snapshot cannot be compared: Debezium's windows write other marks into the signal table. Nor
can cases with changes of tables that no list names: Debezium counts those, too.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tailrace.monitoring.families import families
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.spark import measures
from tailrace.spark.stream_reader import ChangeStreamReader
from tests import fix_invariant
from tests.fix_postgres import Postgres, give_back, take
from tests.golden import runner, script
from tests.golden.case import Case, load
from tests.golden.stream import DirectStream
from tests.servers.registry import Registry

FILE = "counters.json"
CASES = sorted(path.parent for path in (runner.SHIPPED / "postgres").glob(f"*/{FILE}"))
COMPARED = {
    "streaming": (
        "TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen",
        "TotalNumberOfDeleteEventsSeen", "NumberOfErroneousEvents", "NumberOfUnchangedEventsSkipped", "Connected",
        "NumberOfCommittedTransactions",
    ),
    "snapshot": (
        "TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen",
        "TotalNumberOfDeleteEventsSeen", "NumberOfErroneousEvents", "TotalTableCount", "RemainingTableCount",
        "SnapshotRunning", "SnapshotPaused", "SnapshotAborted", "SnapshotCompleted", "SnapshotSkipped",
    ),
}  # fmt: skip
"""The attributes that both count, by the bean's context."""


class Counted(DirectStream):
    """A query whose progress an observation gets, as Spark reports it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.observation = Observation(described, PipelineNames("golden"))
        self._batches = -1

    def _step(self, source: ChangeStreamReader) -> None:
        before, rows = self._committed, len(self._records)
        super()._step(source)
        self._batches += self._committed != before
        count = len(self._records) - rows
        self.observation.update({
            "batchId": max(self._batches, 0), "numInputRows": count, "processedRowsPerSecond": float(count),
            "durationMs": {}, "sources": [{"endOffset": self._committed, "latestOffset": source.reportLatestOffset()}],
        })  # fmt: skip


def counted(case: Case, postgres: Postgres) -> dict[str, dict[str, float]]:
    """Return the counters of a query after a case, by context, and those of tables by `attribute table`."""
    database = take(postgres, runner.DATABASE)
    try:
        with (
            tempfile.TemporaryDirectory() as folder, database.connect() as setup, postgres.at_hand() as looking,
            Registry() as registry,
        ):  # fmt: skip
            for item in script.split(case.read("setup.sql")):
                if isinstance(item, script.Statement):
                    script.execute(setup, item)
            given = runner.options(case, postgres, Path(folder), registry)
            stream = Counted("postgres", given, lambda: runner._flushed(looking))
            with fix_invariant.watched(postgres.dsn(), given.get("slot.name", "debezium"), stream.committed, looking):
                stream.start()
                try:
                    stream.catch_up()
                    runner._work(stream, postgres, case)
                    stream.catch_up()
                    # the tasks' reports count once the next trigger says that Spark has committed their batch
                    stream.pause(0.2)
                    return _values(stream.observation)
                finally:
                    stream.stop()
    finally:
        give_back(database)


def _values(observation: Observation) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"streaming": {}, "snapshot": {}}
    for family in families(observation):
        for labels, value in family.samples:
            if "context" in labels and isinstance(value, float):
                name = family.name.removeprefix("debezium_metrics_")
                key = f"{name} {labels['table']}" if "table" in labels else name
                found[labels["context"]][key] = value
    return found


@pytest.mark.parametrize("path", CASES, ids=[path.name for path in CASES])
def test_the_counters_are_those_of_debeziums_beans(
    path: Path, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "WRITE_SECONDS", 0.0)
    wanted = json.loads((path / FILE).read_text(encoding="utf-8"))
    found = counted(load(path), postgres_server)
    differences = {
        f"{context} {name}": (wanted[context][name], found[context].get(name))
        for context, names in COMPARED.items()
        for name in names
        if float(wanted[context][name]) != found[context].get(name)
    }
    rows = {f"RowsScanned {table}": float(count) for table, count in wanted["snapshot"]["RowsScanned"].items() if count}
    differences |= {name: (count, found["snapshot"].get(name)) for name, count in rows.items()
                    if count != found["snapshot"].get(name)}  # fmt: skip
    assert not differences


def test_there_are_recordings() -> None:
    assert len(CASES) >= 3
