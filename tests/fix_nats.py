"""NATS for tests: one server for the whole run, without streams at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.jars import Unavailable
from tests.servers.nats import NatsServer


@pytest.fixture(scope="session")
def nats_program() -> None:
    """Skip, with the reason, if there is no NATS server and none can be fetched, or if there is no client."""
    pytest.importorskip("nats", reason="the client of NATS is not installed")
    try:
        NatsServer.find()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def nats_server(nats_program: None) -> Iterator[NatsServer]:
    with NatsServer() as running:
        yield running


@pytest.fixture
def nats(nats_server: NatsServer) -> NatsServer:
    """Return the server of the run, without streams."""
    nats_server.delete()
    return nats_server
