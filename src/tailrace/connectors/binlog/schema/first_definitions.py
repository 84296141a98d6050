"""The definitions with which a query begins or continues: from the catalog, or from its offset. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.config.filters import TableFilter
from tailrace.connectors.binlog.dialect import Dialect
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import Created, ListedTable
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import Definitions, FollowRules, State
from tailrace.connectors.binlog.server.connection import dialect_of, variables
from tailrace.connectors.binlog.server.errors import explained
from tailrace.events.event_settings import EventSettings

if TYPE_CHECKING:
    from pymysql.connections import Connection

_log = logging.getLogger("tailrace")
_ONLY = "schema.history.internal.store.only.captured"


def told(config: Config, tables: TableFilter) -> Callable[[str, str], bool]:
    """Return a test for tables whose schema changes get records; with an empty table name for databases."""
    if config[f"{_ONLY}.tables.ddl"]:
        return lambda database, table: not table or tables.includes(database, table)
    if config[f"{_ONLY}.databases.ddl"]:
        return lambda database, table: tables.includes_schema(database)
    return lambda database, table: database not in catalog.BUILT_IN


def wanted(config: Config, tables: TableFilter) -> Callable[[str, str], bool]:
    """Return a test for tables whose definitions are kept: captured ones, and those whose schema changes get
    records."""
    captured = tables.includes
    if not config["include.schema.changes"]:
        return captured
    tells = told(config, tables)
    return lambda database, table: captured(database, table) or tells(database, table)


def read_tables(
    session: Connection[Any], config: Config, tables: TableFilter, listed: Sequence[ListedTable] | None = None
) -> tuple[dict[Name, Created], dict[Name, str]]:
    """Return the current definitions of all wanted tables, and the reasons why captured ones were not understood."""
    dialect, keeps, captured = dialect_of(config), wanted(config, tables), tables.includes
    found: dict[Name, Created] = {}
    doubtful: dict[Name, str] = {}
    for one in catalog.names(session) if listed is None else listed:
        if not catalog.holds_rows(one) or not keeps(*one.id):
            continue
        try:
            found |= catalog.created(session, [one.id], dialect)
        except Unparsable as fault:
            if captured(*one.id):
                doubtful[one.id] = f"its definition is not understood: {fault.what}"
            _log.info("The definition of %s.%s is not understood: %s.", *one.id, fault.what)
    return found, doubtful


def initial_state(session: Connection[Any], config: Config, tables: TableFilter) -> State:
    """Return the current definitions as a state."""
    found, doubtful = read_tables(session, config, tables)
    return state_of(found, doubtful, catalog.databases(session))


def state_of(
    found: dict[Name, Created], doubtful: dict[Name, str], databases: dict[str, catalog.DatabaseCharset]
) -> State:
    """Return the state for definitions from the catalog."""
    tables = (one.table for one in found.values())
    return State.of(tables, {name: one.charset for name, one in databases.items()}, doubtful)


def opened(
    config: Config,
    settings: EventSettings,
    text: str,
    connect: Callable[[], Connection[Any]],
    tables: TableFilter,
    *,
    removed: Container[Name] = (),
    later: str = "",
    before: str = "",
) -> Definitions:
    """Return the definitions from a position on.

    `text` is the text of the state at the position; "" stands for the current catalog. `later` is the text at the end
    of a batch that has been planned already, `before` the text of the state before the catalog's; both may be "".
    `connect` opens a session. `tables` selects the captured tables, and `removed` are the tables that a command has
    removed. Raises TailraceError.
    """
    dialect = dialect_of(config)
    session = connect()
    try:
        folds = explained(variables)(session, "lower_case_table_names").get("lower_case_table_names", "0") != "0"
        start = State.from_text(text) if text else explained(initial_state)(session, config, tables)
    finally:
        session.close()
    if before and not text:
        start = start.after(State.from_text(before))
    tells = config["include.schema.changes"] and settings.typed is None and not settings.copies
    return Definitions(
        dialect,
        tables.includes,
        _asking(connect, dialect),
        start=start,
        later=State.from_text(later) if later else None,
        told=told(config, tables) if tells else None,
        keyed=settings.shaping.keyed,
        following=FollowRules(
            rereads=config["on.unknown.ddl"] == "reread",
            empties=settings.copies,
            by_name=settings.copy,
            folds=folds,
            removed=removed,
            unknown_rows=config["inconsistent.schema.handling.mode"],
        ),
    )


def _asking(connect: Callable[[], Connection[Any]], dialect: Dialect) -> Callable[[Name], TableDefinition | None]:
    """Return a function that reads a table from the catalog, each time in a new session."""

    def ask(name: Name) -> TableDefinition | None:
        session = connect()
        try:
            found = explained(catalog.created)(session, [name], dialect).get(name)
        except Unparsable as fault:
            _log.info("The definition of %s.%s is not understood: %s.", *name, fault.what)
            return None
        finally:
            session.close()
        return None if found is None else found.table

    return ask
