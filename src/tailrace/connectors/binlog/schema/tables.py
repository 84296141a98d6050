"""Conversion of definitions to TableSchemas, which the rest of tailrace uses. No I/O."""

from __future__ import annotations

import json
from dataclasses import replace

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.schema.default_texts import older_text
from tailrace.connectors.binlog.schema.definition import NOTHING, ColumnDefinition, Default, Name, TableDefinition
from tailrace.connectors.binlog.schema.fit import hidden_places
from tailrace.connectors.binlog.schema.table_map import TableMap

HIDDEN, HISTORY_END, SHOWN_END = "hidden", "history_end", "shown_end"
"""The `kind` of columns of the log that no event shows; HISTORY_END is the end of the validity of a row's version.
SHOWN_END is such an end in a column that events show."""


def table_id(name: Name) -> TableId:
    """Return the full name, with the database also as the schema."""
    return TableId(name[0], name[0], name[1])


def schema_of(table: TableDefinition, given: TableMap | None = None) -> TableSchema:
    """Return the TableSchema of a definition; with a map it has all columns of the map, including hidden ones."""
    columns = [column_of(column) for column in table.columns]
    if given is not None and len(given) > len(columns):
        for place, role in sorted(hidden_places(table, given).items()):
            columns.insert(place, Column("", "", 0, kind=HISTORY_END if role == "end" else HIDDEN))
    return TableSchema(table_id(table.id), tuple(columns), table.key(), replica_identity="f", oid=table.number)


def aligned(table: TableSchema, known: TableDefinition | None) -> TableSchema:
    """Return a table from the catalog, with the numbers of its columns in the definition `known` at its log position.

    Without this definition, or if it lacks a column, columns have no numbers, and names identify them.
    """
    numbers = {} if known is None else {column.name: column.number for column in known.columns}
    if known is None or not numbers.keys() >= {column.name for column in table.columns}:
        columns = tuple(replace(column, number=0) for column in table.columns)
        return replace(table, columns=columns, oid=0)
    columns = tuple(replace(column, number=numbers[column.name]) for column in table.columns)
    return replace(table, columns=columns, oid=known.number)


def column_of(column: ColumnDefinition) -> Column:
    """Return the Column of a definition, with its default in the form for `default_of`."""
    kind = SHOWN_END if column.period == "end" else "base"
    return Column(
        column.name,
        column.type_text(),
        0,
        nullable=column.nullable,
        default=None if column.default is None else json.dumps(list(column.default), ensure_ascii=False),
        kind="enum" if column.base == "ENUM" else kind,
        enum_labels=column.labels,
        generated=column.generated,
        comment=column.comment,
        identity=column.automatic,
        number=column.number,
        filled=column.older != NOTHING,
        missing=older_text(column),
    )


def default_of(column: Column) -> Default | None:
    """Return the default of a Column from `column_of`; None if it has none."""
    return None if column.default is None else Default(*json.loads(column.default))
