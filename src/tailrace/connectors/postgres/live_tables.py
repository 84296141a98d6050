"""The captured tables of a pipeline: by its lists, and by the commands in its checkpoint. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.server.connection import connect, explained
from tailrace.snapshot.table_states import listing


@explained
def listed(config: Config, offset: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return each table with its state; see descriptor.Listing."""
    known = PostgresOffset() if offset is None else PostgresOffset.from_json(dict(offset))
    named = {name for oid, name, _ in known.inventory.tables if oid in known.inventory.partial}
    with closing(connect(config)) as connection:
        tables = Catalog(connection, config["database.dbname"]).tables()

    def captured(chosen: TableFilter) -> list[tuple[str, str]]:
        return [(table.schema, table.table) for _, table, _ in captured_tables(tables, chosen)]

    late = {(table.schema, table.table) for _, table, _ in tables if str(table) in named}
    return listing(config, known.progress, captured, late)
