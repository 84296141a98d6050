"""A planner that is driven in the test's own process, with its tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tailrace.config import parse
from tailrace.connectors.binlog.descriptor import MARIADB_CONNECTOR, MYSQL_CONNECTOR
from tailrace.connectors.binlog.planner import BinlogEngine
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Offset
from tests import waiting
from tests.fix_mysql import MySqlDatabase

CONNECTORS = {"mysql": MYSQL_CONNECTOR, "mariadb": MARIADB_CONNECTOR}
Row = dict[str, Any]


@dataclass
class Driven:
    """A planner and the offset that it has reached; `rows` are those of all batches."""

    planner: BinlogEngine
    offset: Offset
    rows: list[Row] = field(default_factory=list)

    def batch(self, max_rows: int | None = 1000) -> bool:
        """Take the next batch, if there is one."""
        end = self.planner.latest_offset(self.offset, max_rows, None)
        if end == self.offset:
            return False
        self.rows += read(self.planner, self.offset, end)
        self.offset = end
        return True

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        """Take batches until the condition holds."""

        def step() -> bool:
            self.batch()
            return condition()

        waiting.until(step, "the awaited rows", seconds)

    def of(self, table: str) -> list[Row]:
        return [row for row in self.rows if row["table"] == table and row["op"] in "crud"]


def read(planner: BinlogEngine, start: Offset, end: Offset) -> list[Row]:
    """Return the rows of a batch, with values and keys as Python objects."""
    found = []
    for task in planner.partitions(start, end):
        for batch in task.read():
            for row in batch.to_pylist():
                for name in ("key", "value"):
                    row[name] = None if row[name] is None else json.loads(row[name])
                found.append(row)
    return found


@contextmanager
def driven(
    database: MySqlDatabase, offset: Offset | None = None, plain: dict[str, str] | None = None, **options: str
) -> Iterator[Driven]:
    """Give a planner over a database, at its beginning or at `offset`; `options` have underscores for dots, `plain`
    have not."""
    found = CONNECTORS[database.server.dialect]
    shaped = {"key_converter_schemas_enable": "false", "value_converter_schemas_enable": "false"}
    given = database.options(**(shaped | {"include_schema_changes": "false"} | options)) | (plain or {})
    config = parse(found.traits, found.load_options(), given, lambda name: "")
    planner = BinlogEngine(config, EventSettings.from_options(config, "00000000-0000-0000-0000-000000000000"))
    with closing(planner):
        yield Driven(planner, planner.initial_offset() if offset is None else offset)
