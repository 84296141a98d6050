"""The servers of golden cases, each started once for all modules that run cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import mongo_runner, runner
from tests.servers.secantus import Unavailable


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """Yield PostgreSQL, of the recordings' version if the system has it."""
    with runner.server() as postgres:
        yield postgres


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[Mongo]:
    """Yield a server that each case empties. Skips if it cannot be fetched."""
    try:
        starting = mongo_runner.server()
        with starting as mongo:
            yield mongo
    except Unavailable as reason:
        pytest.skip(str(reason))
