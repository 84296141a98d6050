"""Snapshots by signals: functions that ask for them, and functions that read their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.waiting import until

SIGNALS = "create table debezium_signal (id varchar(42) primary key, type varchar(32) not null, data varchar(2048))"
SINK = {"notification_enabled_channels": "sink", "notification_sink_topic_name": "notifications"}


def execute(database: Database, *tables: str, id: str = "ad-hoc", **data: Any) -> None:  # noqa: A002
    fields = {"data-collections": list(tables), "type": "incremental", **data}
    with database.connect() as connection:
        connection.execute("insert into debezium_signal values (%s, 'execute-snapshot', %s)", (id, json.dumps(fields)))


def run(query: Query, is_reached: Callable[[Query], bool]) -> None:
    """Run triggers, at least one, until `is_reached` returns True."""

    def reached() -> bool:
        query.step()
        return is_reached(query)

    until(reached, "the state of the query")


def reads(query: Query, table: str = "t") -> list[Any]:
    return [values for op, name, values in query.changes if op == "r" and name == table]


def is_over(query: Query) -> bool:
    state = (query.committed or {}).get("progress", {})
    return "state" not in state and "before" not in state


def kinds(query: Query) -> list[tuple[str, str]]:
    return [(notification.aggregate.split()[0], notification.type) for notification in query.notifications]
