"""A query over a Db2 database in the test's own process, in place of Spark, and its records."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.connectors.changetables.planner import planner
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Planner
from tests.fix_db2 import Db2Database
from tests.fix_positions import check_commit


@dataclass(frozen=True, slots=True)
class Record:
    """A record, with key and value as parsed JSON, including schemas if the query writes them."""

    topic: str
    key: Any
    value: Any
    headers: tuple[tuple[str, Any], ...]
    row: dict[str, Any]

    @property
    def payload(self) -> Any:
        """The envelope, None for a tombstone."""
        return self.value["payload"] if self.value and "payload" in self.value else self.value

    @property
    def op(self) -> str:
        return str(self.row["op"])


class Query:
    """A query with its commit log. `schemas` is True if records carry their schemas."""

    def __init__(self, database: Db2Database, schemas: bool = False, **options: str) -> None:
        self.database = database
        self.options = database.options(
            **{
                "database_server_name": "mydatabase",
                "poll_interval_ms": "1",
                "retriable_restart_connector_wait_ms": "100",
                "converter_schemas_enable": str(schemas).lower(),
                "include_schema_changes": "false",
                **options,
            }
        )
        self.start: dict[str, Any] | None = None
        self.planner = self.fresh()

    def fresh(self) -> Planner:
        config = parse("db2", self.options)
        return planner(config, EventSettings.from_options(config, "00000000-0000-7000-8000-000000000000"))

    def restart(self) -> None:
        """Replace the planner, and keep the commit log."""
        self.planner.close()
        self.planner = self.fresh()

    def plan(self, rows: int | None = None) -> dict[str, Any] | None:
        """Return the end of the next batch, None if there is none."""
        if self.start is None:
            self.start = json.loads(json.dumps(self.planner.initial_offset()))
        end: dict[str, Any] = json.loads(json.dumps(self.planner.latest_offset(self.start, rows, None)))
        return None if end == self.start else end

    def read(self, end: dict[str, Any]) -> list[Record]:
        """Return the records of the batch that ends at `end`."""
        assert self.start is not None
        found: list[Record] = []
        for task in self.planner.partitions(self.start, end):
            copy = pickle.loads(pickle.dumps(task))
            for batch in copy.read():
                found += _records(batch)
        return found

    def drain(self, rows: int | None = None) -> list[Record]:
        """Read and commit every present batch."""
        found: list[Record] = []
        while (end := self.plan(rows)) is not None:
            found += self.read(end)
            check_commit(self.start or {"databases": {}}, end, self.newest())
            self.start = end
        return found

    def newest(self) -> dict[str, bytes | None]:
        """Return the position up to which the capture program has read the log."""
        return {self.database.name: self.database.capture.newest()}

    def close(self) -> None:
        self.planner.close()


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    for row in batch.to_pylist():
        headers = tuple((one["key"], _json(one["value"])) for one in row["headers"] or ())
        yield Record(row["topic"], _json(row["key"]), _json(row["value"]), headers, row)


def _json(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)
