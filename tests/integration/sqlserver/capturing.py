"""A query over a test database without Spark: planner and tasks, batch by batch, and a consumer's view."""

from __future__ import annotations

import time
from typing import Any

from tailrace.connectors.registry import find, parse
from tailrace.events.event_settings import EventSettings
from tdsserver.process import TestDatabase
from tests.fix_capture import Event, strict
from tests.fix_positions import check_commit


class Capture:
    """A query with the names of the documents: the server is `server1`, in the 1.0 format unless the options say
    else."""

    def __init__(self, databases: list[TestDatabase], options: dict[str, str]) -> None:
        names = {"database.server.name": "server1"} if "topic.prefix" not in options else {}
        listed = ",".join(database.name for database in databases)
        self.options = {
            **databases[0].options(),
            **names,
            "database.names": listed,
            "driver.encrypt": "false",
            "poll.interval.ms": "50",
            "snapshot.mode": "no_data",
            **options,
        }
        self.databases = databases
        self.events: list[Event] = []
        self.max_rows: int | None = None
        self.start()
        self.committed: dict[str, Any] = self.planner.initial_offset()

    def start(self) -> None:
        config = parse("sqlserver", self.options)
        self.planner = find(config.connector).load_planner()(config, EventSettings.from_options(config, "run"))

    def restart(self, **options: str) -> None:
        """End the planner and create another one, which continues from the last commit."""
        self.planner.close()
        self.options |= {name.replace("_", "."): text for name, text in options.items()}
        self.start()

    def plan(self) -> dict[str, Any]:
        """Return the end of the next batch, which is not committed."""
        return self.planner.latest_offset(self.committed, self.max_rows, None)

    def read(self, end: dict[str, Any]) -> list[Event]:
        """Return the events of the batch that ends there."""
        return [
            Event(strict(row["key"]), strict(row["value"]), row)
            for task in self.planner.partitions(self.committed, end)
            for rows in task.read()
            for row in rows.to_pylist()
        ]

    def step(self) -> None:
        """Plan a batch, read it and commit it; do nothing if nothing is new."""
        end = self.plan()
        if end != self.committed:
            self.events += self.read(end)
            check_commit(self.committed, end, self.newest())
            self.committed = end

    def newest(self) -> dict[str, bytes | None]:
        """Return the position up to which each database is captured."""
        return {one.name: one.query("select sys.fn_cdc_get_max_lsn()")[0][0] for one in self.databases}

    def take(self, count: int, seconds: float = 120) -> list[Event]:
        """Return the next `count` events. Waits a moment longer, and fails if one more comes."""
        for database in self.databases:
            database.capture()
        deadline = time.monotonic() + seconds
        while len(self.events) < count and time.monotonic() < deadline:
            self.step()
        self.step()
        taken, self.events = self.events, []
        assert len(taken) == count, [(event.op, event.topic, event.id) for event in taken]
        return taken
