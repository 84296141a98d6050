"""Records of schema changes, before they have a place: as bytes of JSON, from the reader to the tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.connectors.binlog.schema.definition import Name, TableDefinition


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of a table by a statement: `kind` is CREATE, ALTER or DROP; `table` its new form, None if it is gone."""

    kind: str
    name: Name
    table: TableDefinition | None


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A statement and what it changes. `names` are the tables that it changes; None if it changes a database."""

    ddl: str
    database: str
    names: tuple[Name, ...] | None
    changes: tuple[TableChange, ...]


def record(ddl: str, database: str, names: Sequence[Name] | None, changes: Sequence[TableChange]) -> bytes:
    """Return the bytes of a record; a change of a table that is not known is left out of it."""
    shown = [
        [one.kind, *one.name, None if one.table is None else one.table.to_json()]
        for one in changes
        if one.kind == "DROP" or one.table is not None
    ]
    fields = [ddl, database, None if names is None else list(map(list, names)), shown]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def record_of(content: bytes) -> SchemaRecord:
    """Return the record whose bytes `record` has made."""
    ddl, database, names, changes = json.loads(content)
    return SchemaRecord(
        ddl,
        database,
        None if names is None else tuple((one, table) for one, table in names),
        tuple(
            TableChange(kind, (one, table), None if fields is None else TableDefinition.from_json(fields))
            for kind, one, table, fields in changes
        ),
    )
