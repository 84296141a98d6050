"""The size of an event in Avro, in JSON with its schemas and in JSON without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tailrace.columns import ChangeBatch
from tailrace.config.formats import Format
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.formats.registry import schema_ids
from tests.servers.registry import Registry
from tests.unit.events.captured_changes import CUSTOMERS, DB2_CUSTOMERS, FORMS, JOHN, MOVED, batch

SERVER = {"database.hostname": "h", "database.user": "u"}
DOCUMENT = {
    "sqlserver": SERVER | {"database.names": "testDB", "topic.prefix": "server1"},
    "db2": SERVER | {"database.dbname": "mydatabase", "topic.prefix": "mydatabase", "event.format": "3"},
}
TABLES = {"sqlserver": CUSTOMERS, "db2": DB2_CUSTOMERS}


@pytest.fixture
def registry() -> Iterator[Registry]:
    schema_ids.forget()
    with Registry() as running:
        yield running
    schema_ids.forget()


def sizes(part: ChangeBatch, settings: EventSettings) -> list[int]:
    """Return the number of bytes in key and value of each record."""
    rows = [row for block in to_rows(part, settings, FORMS[settings.connector]) for row in block.to_pylist()]
    return [len(row["key"]) + len(row["value"]) for row in rows]


@pytest.mark.seed("000-02", "001-15", "004-23")
@pytest.mark.parametrize("connector", ["sqlserver", "db2"])
def test_avro_is_a_fraction_of_json(registry: Registry, connector: str) -> None:
    whole = EventSettings.from_options(parse(connector, DOCUMENT[connector]), "run")
    options = (
        ("apicurio.registry.as-confluent", "true"),
        ("apicurio.registry.auto-register", "true"),
        ("apicurio.registry.headers.enabled", "false"),
        ("apicurio.registry.url", registry.apicurio),
    )
    key, value = (Format("avro-apicurio", part, options) for part in ("key", "value"))
    changes = batch(TABLES[connector], [("c", 1, None, JOHN), ("u", 2, JOHN, MOVED)])
    with_schemas = sizes(changes, whole)
    bare = sizes(changes, replace(whole, key_schemas_enable=False, value_schemas_enable=False))
    avro = sizes(changes, replace(whole, key_format=key, value_format=value))
    for small, plain, large in zip(avro, bare, with_schemas, strict=True):
        assert small * 1.5 < plain
        assert small * 8 < large
    assert set(registry.schemas) == {1, 2}
