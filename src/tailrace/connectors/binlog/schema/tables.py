"""TableSchemas of definitions: what the rest of tailrace knows of a table. No I/O."""

from __future__ import annotations

import json
from dataclasses import replace

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.schema.default_texts import older_text
from tailrace.connectors.binlog.schema.definition import NOTHING, ColumnDefinition, Default, Name, TableDefinition
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
    return TableSchema(table_id(table.id), tuple(columns), table.key(), replica_identity="f", oid=table.number)


def aligned(table: TableSchema, known: TableDefinition | None) -> TableSchema:
    """Return a table that the catalog showed, its columns numbered as in the definition of the log at its position.

    Without such a definition, or if its columns have other names, columns have no numbers: names tell them.
    """
    numbers = {} if known is None else {column.name: column.number for column in known.columns}
    if known is None or not numbers.keys() >= {column.name for column in table.columns}:
        columns = tuple(replace(column, number=0) for column in table.columns)
        return replace(table, columns=columns, oid=0)
    columns = tuple(replace(column, number=numbers[column.name]) for column in table.columns)
    return replace(table, columns=columns, oid=known.number)


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
        number=column.number,
        filled=column.older != NOTHING,
        missing=older_text(column),
    )


def default_of(column: Column) -> Default | None:
    """Return the default of a Column that `column_of` has made; None if it has none."""
    return None if column.default is None else Default(*json.loads(column.default))
