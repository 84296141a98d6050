"""Kafka for tests: one real broker for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.servers.jars import Unavailable
from tests.servers.kafka import Broker, fetch


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running broker. `servers` is the value for `bootstrap.servers`."""

    servers: str


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Yield a broker, started once. Skips, with the reason, if its jars cannot be fetched."""
    try:
        jars = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Broker(jars) as broker:
        yield Kafka(broker.servers)
