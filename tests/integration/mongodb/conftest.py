"""Factories of queries that are read batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fix_mongodb import Mongo
from tests.integration.mongodb.capture import Capture, Query

Make = Callable[..., Capture]


@pytest.fixture
def make_capture() -> Iterator[Make]:
    """Yield a factory of queries of a server: in the 1.1 format with `old`, else in today's. All are closed after the
    test."""
    made: list[Capture] = []

    def make(server: Mongo, old: bool = False, offset: object = None, **options: str) -> Capture:
        named = (
            {"mongodb.hosts": server.hosts.lstrip("/"), "mongodb.name": "fulfillment"}
            if old
            else {"mongodb.connection.string": server.uri, "topic.prefix": "fulfillment"}
        )
        made.append(Capture(offset, **named, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def mongo_query() -> Iterator[Callable[..., Query]]:
    """Yield a factory of queries of a server that may crash. All are closed after the test."""
    made: list[Query] = []

    def make(server: Mongo, **options: str) -> Query:
        made.append(Query(server, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
