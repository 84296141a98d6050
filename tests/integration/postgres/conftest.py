"""Makers of queries that wait for signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.live import Make
from tests.integration.postgres.signalled import SIGNALS


@pytest.fixture
def make_query(database: Database) -> Iterator[Any]:
    made: list[Query] = []

    def make(**options: str) -> Query:
        given = {
            "signal.data.collection": "public.debezium_signal",
            "snapshot.mode": "no_data",
            "incremental.snapshot.chunk.size": "4",
            "poll.interval.ms": "50",
        }
        named = given | {name.replace("_", "."): value for name, value in options.items()}
        made.append(Query(database, **{name: value for name, value in named.items() if value}))
        return made[-1]

    yield make
    for one in made:
        one.planner.close()


@pytest.fixture
def make(database: Database) -> Iterator[Make]:
    """Make queries of the table a, beside which is the table b."""
    database.execute(
        SIGNALS,
        "create table a (id int primary key, v text)",
        "create table b (id int primary key, v text)",
        "insert into a select i, 'a' from generate_series(1, 5) i",
        "insert into b select i, 'b' from generate_series(1, 9) i",
    )
    made: list[Query] = []

    def new(**options: str) -> Query:
        given = {
            "signal.data.collection": "public.debezium_signal",
            "table.include.list": "public.a,public.debezium_signal",
            "publication.autocreate.mode": "filtered",
            "incremental.snapshot.chunk.size": "4",
            "signal.poll.interval.ms": "1",
        }
        made.append(Query(database, **{**given, **{name.replace("_", "."): text for name, text in options.items()}}))
        return made[-1]

    yield new
    for one in made:
        one.planner.close()
