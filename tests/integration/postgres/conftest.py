"""A maker of queries that wait for signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fix_postgres import Database
from tests.fix_query import Query


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
