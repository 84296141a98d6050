"""Redis for tests: one server for the whole run, empty at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.jars import Unavailable
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def redis_program() -> None:
    """Skip, with the reason, if there is no Redis and none can be fetched."""
    try:
        RedisServer.find()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def redis_server(redis_program: None) -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """Return the server of the run, empty."""
    redis_server.call("FLUSHALL")
    redis_server.call("CONFIG", "SET", "maxmemory", "0")
    return redis_server
