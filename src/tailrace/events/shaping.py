"""Shaping: the columns of events, how their texts are shaped, what their schemas say, and the columns of keys.

The options name columns by expressions over `schema.table.column`, ignoring case. Keys use unshaped columns: a column
that values leave out, cut or mask is whole in the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.columns import Column, TableId, TableSchema
from tailrace.config import columns as options
from tailrace.config.columns import KeyColumns, Treatment
from tailrace.config.expressions import Expression
from tailrace.errors import ConfigError

Expressions = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Shaping:
    """The options about columns, as values only: hashable, picklable; made by the driver, used everywhere.

    `included` and `excluded` are the two column lists, at most one of them filled. `treatments` are in order of
    precedence. `annotated_columns` and `annotated_types` select columns whose schemas name the source's type. `keys`
    are the entries of message.key.columns; with `keys_as_in_table` their columns come in the table's order. `comments`:
    whether comments are kept.
    """

    included: Expressions = ()
    excluded: Expressions = ()
    treatments: tuple[Treatment, ...] = ()
    annotated_columns: Expressions = ()
    annotated_types: Expressions = ()
    keys: tuple[KeyColumns, ...] = ()
    comments: bool = False
    keys_as_in_table: bool = False

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> Shaping:
        """Read typed options; absent ones shape nothing."""

        def listed(name: str) -> Expressions:
            return options.expressions(values.get(name) or [])

        return cls(
            included=listed("column.include.list"),
            excluded=listed("column.exclude.list"),
            treatments=options.treatments(values),
            annotated_columns=listed("column.propagate.source.type"),
            annotated_types=listed("datatype.propagate.source.type"),
            keys=options.key_columns(values.get("message.key.columns") or ""),
            comments=bool(values.get("include.schema.comments")),
            keys_as_in_table=values.get("event.format") in ("1.0", "1.1", "1.7"),
        )

    def shows(self, table: TableId, column: str) -> bool:
        """Return True if values show the column."""
        if self.included:
            return _matches(self.included, f"{table}.{column}")
        return not (self.excluded and _matches(self.excluded, f"{table}.{column}"))

    def treatment(self, table: TableId, column: str) -> Treatment | None:
        """Return the first treatment that names the column."""
        name = f"{table}.{column}"
        return next((found for found in self.treatments if _matches(found.columns, name)), None)

    def annotates(self, table: TableId, column: Column) -> bool:
        """Return True if the column's schema names its type in the source."""
        if _matches(self.annotated_columns, f"{table}.{column.name}"):
            return True
        return bool(self.annotated_types) and any(
            _matches(self.annotated_types, f"{prefix}{table}.{column.type_name}")
            for prefix in ("", f"{table.database}.")
        )

    def keyed(self, table: TableSchema) -> TableSchema:
        """Return the table with the key of all entries of message.key.columns that name it, in their order.

        In the formats of 1.x, the key's columns are in the table's order. Raises ConfigError for a column that the
        table does not have.
        """
        names = [
            name for entry in self.keys if entry.table.fullmatch(str(table.id)) for name in _found(entry.columns, table)
        ]
        if self.keys_as_in_table:
            names.sort(key=table.index)
        if not names:
            return table
        own = table.key if table.own is None else table.own
        return replace(table, key=tuple(dict.fromkeys(names)), own=own)

    def read(self, table: TableSchema) -> TableSchema:
        """Return the table with only the columns that events need: those of values and those of the keys."""
        keys = {*table.key, *(table.own or ())}
        kept = tuple(c for c in table.columns if c.name in keys or self.shows(table.id, c.name))
        return table if len(kept) == len(table.columns) else replace(table, columns=kept)


def _matches(expressions: Expressions, name: str) -> bool:
    return any(expression.fullmatch(name) for expression in expressions)


def _found(wanted: Iterable[str], table: TableSchema) -> Iterable[str]:
    """Yield the table's own names of `wanted`: exact matches, else the only column that differs just in case."""
    names = [column.name for column in table.columns]
    for name in wanted:
        alike = [name] if name in names else [other for other in names if other.lower() == name.lower()]
        if len(alike) != 1:
            raise ConfigError(
                f"message.key.columns names the column {name} of {table.id}, which the table does not have, or which "
                "is not captured.",
                "Correct the option, or the columns that are captured: a publication and a capture instance may have a "
                "list of them.",
            )
        yield alike[0]
