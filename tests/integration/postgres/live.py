"""Tables that are added to a running query, removed from it, paused and found: what the tests about them share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.signalled import is_over
from tests.waiting import until

Make = Callable[..., Query]


def send(database: Database, kind: str, *tables: str, id: str = "cmd") -> None:  # noqa: A002
    with database.connect() as connection:
        data = json.dumps({"data-collections": list(tables)})
        connection.execute("insert into debezium_signal values (%s, %s, %s)", (id, kind, data))


def published(database: Database) -> list[str]:
    with database.connect() as connection:
        rows = connection.execute("select tablename from pg_publication_tables order by 1").fetchall()
    return [name for (name,) in rows]


def state(query: Query) -> Any:
    return (query.committed or {}).get("progress", {}).get("tables")


def latest(query: Query, table: str) -> dict[bytes, Any]:
    """Return the copy that the events of a table make."""
    rows: dict[bytes, Any] = {}
    for op, name, values in query.changes:
        if name == table and values is not None:
            if op == "d":
                rows.pop(values[0], None)
            else:
                rows[values[0]] = values[1]
    return rows


def source(database: Database, table: str) -> dict[bytes, Any]:
    with database.connect() as connection:
        rows = connection.execute(f"select id, v from {table}").fetchall()
    return {str(number).encode(): text.encode() for number, text in rows}


def settle(query: Query, seconds: float = 60) -> None:
    """Step until nothing is left to read."""

    def is_settled() -> bool:
        query.step()
        query.until(0, seconds=seconds)
        query.step()
        return is_over(query)

    until(is_settled, "the end of the snapshot", 120)
