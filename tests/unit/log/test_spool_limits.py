"""max.queue.size.in.bytes bounds the spool; a large value takes disk, and no more memory than without it."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors import registry
from tailrace.connectors.binlog.log import feed as binlog
from tailrace.connectors.mongodb.log import feed as mongodb
from tailrace.connectors.postgres.log import reading as postgres

_SERVER = {"database.hostname": "h", "database.user": "u", "database.password": "p", "topic.prefix": "s"}
_READERS = {
    "postgres": (postgres.ReaderSettings, _SERVER | {"database.dbname": "d"}),
    "mysql": (binlog.ReaderSettings, _SERVER),
    "mongodb": (mongodb.ReaderSettings, {"mongodb.connection.string": "mongodb://h", "topic.prefix": "s"}),
}


@pytest.mark.parametrize("connector", _READERS)
@pytest.mark.parametrize(("size", "memory"), [(300, 300), (128 << 20, 128 << 20), (4 << 30, 128 << 20)])
def test_a_large_queue_takes_disk_and_not_memory(connector: str, size: int, memory: int) -> None:
    kind: Any
    kind, options = _READERS[connector]
    settings = kind.of(registry.parse(connector, options | {"max.queue.size.in.bytes": str(size)}))
    assert (settings.memory_limit, settings.memory_limit + settings.disk_limit) == (memory, size)


@pytest.mark.parametrize("connector", _READERS)
def test_without_the_option_the_readers_have_limits_of_their_own(connector: str) -> None:
    kind: Any
    kind, options = _READERS[connector]
    settings = kind.of(registry.parse(connector, options))
    assert (settings.memory_limit, settings.disk_limit) == (128 << 20, 512 << 20)
