"""A driver of a planner in place of Spark, which shows the output of its tasks as plain events."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.columns.batch import ChangeBatch, Marker
from tailrace.connectors.changetables.log.tasks import LogTask, SnapshotTask, WindowTask
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.process.runtime import THREADS
from tests.unit.changetables.memory import MemoryDialect, Row, Server

OPTIONS = {
    "database.hostname": "h",
    "database.user": "u",
    "database.names": "db",
    "topic.prefix": "t",
    "retriable.restart.connector.wait.ms": "1",
    "poll.interval.ms": "1",
}


@dataclass(frozen=True)
class Event:
    """A change in its batch, with positions as numbers and images as tuples of texts."""

    table: str
    op: str
    before: Row | None
    after: Row | None
    commit: int
    change: int | None = None
    serial: int | None = None
    at_us: int = 0
    marker: str = "false"
    version: int = 1
    ordinal: int = 0
    total: int | None = None
    within: int | None = None


class AnyForm:
    """A form without information about columns, because the tests examine batches, not records."""

    def columns(self, table: Any, settings: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        return (), ()

    def key(self, table: Any, settings: Any) -> tuple[Any, ...]:
        # copies demand that each column of the key has a form
        return tuple(SimpleNamespace(name=name, source_name=name) for name in table.key) if settings.blocks else ()

    def is_text(self, column: Any) -> bool:
        return True

    def unsent(self, table: Any) -> frozenset[str]:
        return frozenset()

    def __hash__(self) -> int:
        return 1


FORM: Any = AnyForm()


@pytest.fixture(autouse=True)
def batches_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks yield their batches as plain events, and close sessions of earlier tests."""
    from tailrace.connectors.changetables import loading
    from tailrace.connectors.changetables.log.sessions import close_idle
    from tailrace.events import record_assembly

    close_idle()
    monkeypatch.setattr(loading, "form", lambda connector: FORM)
    monkeypatch.setattr(record_assembly, "to_rows", lambda batch, settings, form: shown(batch))


def shown(batch: ChangeBatch) -> Iterator[Event]:
    def image(side: Any, row: int) -> Row | None:
        if side is None or (side.present is not None and not side.present[row]):
            return None
        values = [column[row].as_py() for column in side.columns]
        return tuple(None if value is None else value.decode() for value in values)

    commits = batch.transactions.commit_lsn  # type: ignore[attr-defined]
    for row in range(len(batch)):
        of = int(batch.transaction[row])
        change = batch.lsn[row].as_py()
        yield Event(
            str(batch.table.id),
            chr(batch.op[row]),
            image(batch.before, row),
            image(batch.after, row),
            int.from_bytes(commits[of].as_py(), "big"),
            None if change is None else int.from_bytes(change, "big"),
            None if batch.serial is None else batch.serial[row].as_py(),
            int(batch.transactions.commit_us[of]),
            "false" if batch.marker is None else Marker(int(batch.marker[row])).name.lower(),
            batch.table.version,
            int(batch.ordinal[row]),
            None if batch.total_order is None else int(batch.total_order[row]),
            None if batch.table_order is None else int(batch.table_order[row]),
        )


class Query:
    """A query over `server`, from the offset `start` in Spark's commit log.

    Offsets pass through JSON and tasks through pickle, as in Spark.
    """

    runtime = THREADS

    def __init__(self, server: Server, **options: str) -> None:
        self.server = server
        self.options = OPTIONS | {name.replace("__", "."): text for name, text in options.items()}
        self.start: dict[str, Any] | None = None
        self.planner = self.fresh()
        self.offsets: list[dict[str, Any]] = []
        self.others: list[Any] = []

    def fresh(self) -> ChangeTablesPlanner:
        config = parse("sqlserver", self.options)
        settings = EventSettings.from_options(config, "00000000-0000-7000-8000-000000000000")
        return ChangeTablesPlanner(config, settings, MemoryDialect(self.server.name), FORM, self.runtime)

    def restart(self) -> None:
        """Replace the planner, and keep the commit log."""
        self.planner = self.fresh()

    def plan(self, max_rows: int | None = None) -> dict[str, Any] | None:
        """Return the end of the next batch, None if there is none."""
        if self.start is None:
            self.start = json.loads(json.dumps(self.planner.initial_offset()))
        end = json.loads(json.dumps(self.planner.latest_offset(self.start, max_rows, None)))
        return None if end == self.start else end

    def read(self, end: dict[str, Any]) -> list[Event]:
        """Return the events of the batch that ends at `end`."""
        found: list[Event] = []
        for task in self.planner.partitions(self.start or {}, end):
            copy = pickle.loads(pickle.dumps(task))
            if isinstance(copy, LogTask | SnapshotTask | WindowTask):
                found += copy.read()
            else:
                self.others.append(copy)
        return found

    def batch(self, max_rows: int | None = None) -> list[Event] | None:
        """Plan, read and commit one batch."""
        end = self.plan(max_rows)
        if end is None:
            return None
        events = self.read(end)
        self.start = end
        self.offsets.append(end)
        return events

    def drain(self, max_rows: int | None = None) -> list[Event]:
        """Plan, read and commit all batches until there is nothing new."""
        found: list[Event] = []
        while (events := self.batch(max_rows)) is not None:
            found += events
        return found


def brief(events: list[Event]) -> list[tuple[str, str, Row | None, Row | None]]:
    return [(event.table, event.op, event.before, event.after) for event in events]
