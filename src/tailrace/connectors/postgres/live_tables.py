"""The captured tables of a pipeline: by its lists, and by the commands in its checkpoint. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.server.connection import connect, explained


@explained
def listed(config: Config, offset: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return each table with its state; see descriptor.Listing."""
    known = PostgresOffset() if offset is None else PostgresOffset.from_json(dict(offset))
    progress = known.progress
    added, removed = set(progress.commands.added), set(progress.commands.removed)
    waiting = () if progress.state is None else progress.state.collections
    held = {(one.collection.schema, one.collection.table) for one in progress.held}
    being_read = {(one.schema, one.table) for one in waiting}
    late = {name for oid, name, _ in known.inventory.tables if oid in known.inventory.partial}
    lists, chosen = TableFilter(config), TableFilter(config)
    chosen.overrule(added | removed, ())
    with closing(connect(config)) as connection:
        tables = captured_tables(Catalog(connection, config["database.dbname"]).tables(), chosen)
    found = []
    for _, table, _ in tables:
        name = table.schema, table.table
        is_listed = lists.includes(*name)
        if name in removed:
            words = "removed by a command" + ("; the lists name it" if is_listed else "")
        elif name in added:
            words = "added by a command" + ("" if is_listed else "; the lists leave it out")
        else:
            words = "by the lists"
        if name in being_read:
            words += "; its rows are being read" if name == (waiting[0].schema, waiting[0].table) else "; it waits"
        elif name in held:
            words += "; its reading is paused: tailrace tables resume"
        elif str(table) in late and name not in removed:
            words += "; rows that it had before are not read: tailrace tables resnapshot"
        found.append((str(table), words))
    gone = sorted(added - {(table.schema, table.table) for _, table, _ in tables})
    return found + [(".".join(name), "added by a command; it is not there") for name in gone]
