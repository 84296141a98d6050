"""The benchmark's tables in events: no column may be left out, because that would make the benchmark too fast."""

from __future__ import annotations

import pytest

from bench import tables
from bench.tables import Table
from tests.fix_capture import Captures
from tests.fix_postgres import Database


def made(kind: str, database: Database) -> Table:
    if kind == "types":
        known = tables.extensions(database.server.extensions)
        database.execute(*(f"create extension {name}" for name in known), *tables.MADE)
        return tables.types("t", known)
    return tables.wide("t") if kind == "wide" else tables.plain("t")


@pytest.mark.parametrize("kind", ["plain", "wide", "types"])
def test_every_column_is_in_the_events(database: Database, capture: Captures, kind: str) -> None:
    table = made(kind, database)
    query = capture(f"create table t ({table.declaration})", topic_prefix="bench")
    database.execute(f"insert into t {table.select} from generate_series(1, 30) i")
    for event in query.take(30):
        row = event.payload["after"]
        assert list(row) == [name for name, _ in table.columns]
        optional = {name for (name, _), text in zip(table.columns, table.row, strict=True) if "null end" in text}
        assert {name for name, value in row.items() if value is None} <= optional
