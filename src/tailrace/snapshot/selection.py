"""The captured tables that a snapshot reads, their order, and their select statements.

No I/O. Tables are named `schema.table`, the name that the lists match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.config.expressions import compile_expression
from tailrace.config.filters import table_name
from tailrace.errors import ConfigError

_OVERRIDES = "snapshot.select.statement.overrides"


def selected(config: Mapping[str, Any], captured: Sequence[str]) -> list[str]:
    """Return the tables of `captured` (sorted by name) that the snapshot reads, in its order.

    Tables come in the order of `table.include.list`'s expressions; without a list, or among the tables of one
    expression, in the order of names. `snapshot.include.collection.list` leaves tables out and changes no order. With
    today's format the signal table is left out; with the format 1.7 it is read like any other.
    """
    names = list(captured)
    named = config["signal.data.collection"] or ()
    if config["event.format"] != "1.7":
        signals = {".".join(table_name(name)) for name in ([named] if isinstance(named, str) else named)}
        names = [name for name in names if name not in signals]
    if config["table.include.list"]:
        expressions = [compile_expression(text) for text in config["table.include.list"]]
        places = {name: _first(expressions, name) for name in names}
        names.sort(key=lambda name: places[name])
    wanted = [compile_expression(text) for text in config["snapshot.include.collection.list"]]
    return [name for name in names if not wanted or any(expression.fullmatch(name) for expression in wanted)]


def _first(expressions: Sequence[Any], name: str) -> int:
    return next((place for place, found in enumerate(expressions) if found.fullmatch(name)), len(expressions))


def by_row_count(config: Mapping[str, Any], names: Sequence[str], rows: Mapping[str, int]) -> list[str]:
    """Return `names` in the order of `snapshot.tables.order.by.row.count`; equal counts keep their order."""
    order = config["snapshot.tables.order.by.row.count"]
    if order == "disabled":
        return list(names)
    return sorted(names, key=lambda name: rows[name] if order == "ascending" else -rows[name])


def overrides(config: Mapping[str, Any], captured: Sequence[str]) -> dict[str, str]:
    """Return the statement of each captured table that has one, without closing semicolon.

    Spark may convert option names to lower case, so a table without a statement under its exact name gets one whose
    name differs only in case. Raises ConfigError for a listed table without a statement, and for a statement whose
    table is not listed.
    """
    listed: list[str] = config[_OVERRIDES]
    prefix = f"{_OVERRIDES}."
    given = {name[len(prefix) :]: config[name] for name in config if name.lower().startswith(prefix)}
    found: dict[str, str] = {}
    unused = dict(given)
    for table in listed:
        matching = [table] if table in given else [name for name in given if name.lower() == table.lower()]
        if len(matching) != 1:
            raise ConfigError(
                f"{_OVERRIDES} lists {table}, which has no statement.", f"Give it one with {prefix}{table}."
            )
        unused.pop(matching[0], None)
        found[table] = given[matching[0]].strip().rstrip(";").rstrip()
    if unused:
        first = min(unused)
        raise ConfigError(f"{prefix}{first} is given, but {_OVERRIDES} does not list {first}.", "List the table there.")
    known = set(captured)
    return {table: statement for table, statement in found.items() if table in known}
