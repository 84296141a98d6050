"""Records of schema changes without their place, as JSON, which the reader passes to tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.connectors.binlog.schema.definition import Name, TableDefinition


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of a table by a statement. `kind` is CREATE, ALTER or DROP; `table` is the new definition, None if
    dropped."""

    kind: str
    name: Name
    table: TableDefinition | None


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A statement and its changes. `names` are the tables that it changes; None if it changes a database."""

    ddl: str
    database: str
    names: tuple[Name, ...] | None
    changes: tuple[TableChange, ...]


def record(ddl: str, database: str, names: Sequence[Name] | None, changes: Sequence[TableChange]) -> bytes:
    """Return the bytes of a record. The changes of unknown tables are left out."""
    shown = [
        [one.kind, *one.name, None if one.table is None else one.table.to_json()]
        for one in changes
        if one.kind == "DROP" or one.table is not None
    ]
    fields = [ddl, database, None if names is None else list(map(list, names)), shown]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def record_of(content: bytes) -> SchemaRecord:
    """Return the record of the bytes that `record` returned."""
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
