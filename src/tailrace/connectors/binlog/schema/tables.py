"""TableSchemas of definitions: what the rest of tailrace knows of a table. No I/O."""

from __future__ import annotations

import json

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.schema.definition import ColumnDefinition, Default, Name, TableDefinition
from tailrace.connectors.binlog.schema.fit import hidden_places
from tailrace.connectors.binlog.schema.table_map import TableMap

HIDDEN, HISTORY_END = "hidden", "history_end"
"""The `kind` of columns of the log that no event shows; HISTORY_END says until when a version of a row held."""


def table_id(name: Name) -> TableId:
    """Return the full name; a database takes the place of a schema, too."""
    return TableId(name[0], name[0], name[1])


def schema_of(table: TableDefinition, given: TableMap | None = None) -> TableSchema:
    """Return the TableSchema of a definition; with a map its columns are those of the map's rows, hidden ones too."""
    columns = [column_of(column) for column in table.columns]
    if given is not None and len(given) > len(columns):
        for place, role in sorted(hidden_places(table, given).items()):
            columns.insert(place, Column("", "", 0, kind=HISTORY_END if role == "end" else HIDDEN))
    return TableSchema(table_id(table.id), tuple(columns), table.key(), replica_identity="f")


def column_of(column: ColumnDefinition) -> Column:
    """Return the Column: its type as it is written, its default as `default_of` reads it."""
    return Column(
        column.name,
        column.type_text(),
        0,
        nullable=column.nullable,
        default=None if column.default is None else json.dumps(list(column.default), ensure_ascii=False),
        kind="enum" if column.base == "ENUM" else "base",
        enum_labels=column.labels,
        generated=column.generated,
        comment=column.comment,
        identity=column.automatic,
        # SQL literals of the labels differ from them where they have quotes
    )


def default_of(column: Column) -> Default | None:
    """Return the default of a Column that `column_of` has made; None if it has none."""
    return None if column.default is None else Default(*json.loads(column.default))
