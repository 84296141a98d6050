"""A query over a test database without Spark: the planner and its tasks, batch by batch, and what a consumer reads."""

from __future__ import annotations

import time
from typing import Any

from tailrace.connectors.registry import find, parse
from tailrace.events.event_settings import EventSettings
from tdsserver.process import TestDatabase
from tests.fix_capture import Event, strict
from tests.fix_positions import check_commit


class Capture:
    """One query, named as in the documents: its server is `server1`, in the 1.0 format unless the options say else."""

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
        """End the planner and make another, which goes on from what was committed."""
        self.planner.close()
        self.options |= {name.replace("_", "."): text for name, text in options.items()}
        self.start()

    def plan(self) -> dict[str, Any]:
        """The end of the next batch, which is not committed."""
        return self.planner.latest_offset(self.committed, self.max_rows, None)

    def read(self, end: dict[str, Any]) -> list[Event]:
        """The events of the batch that ends there."""
        return [
            Event(strict(row["key"]), strict(row["value"]), row)
            for task in self.planner.partitions(self.committed, end)
            for rows in task.read()
            for row in rows.to_pylist()
        ]

    def step(self) -> None:
        """Plan a batch, read it and commit it; nothing when nothing is new."""
        end = self.plan()
        if end != self.committed:
            self.events += self.read(end)
            check_commit(self.committed, end, self.newest())
            self.committed = end

    def newest(self) -> dict[str, bytes | None]:
        """How far each database is captured."""
        return {one.name: one.query("select sys.fn_cdc_get_max_lsn()")[0][0] for one in self.databases}

    def take(self, count: int, seconds: float = 120) -> list[Event]:
        """The next `count` events, and no more than those: a moment longer is waited for one too many."""
        for database in self.databases:
            database.capture()
        deadline = time.monotonic() + seconds
        while len(self.events) < count and time.monotonic() < deadline:
            self.step()
        self.step()
        taken, self.events = self.events, []
        assert len(taken) == count, [(event.op, event.topic, event.id) for event in taken]
        return taken
