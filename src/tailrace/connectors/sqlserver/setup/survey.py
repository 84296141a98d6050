"""Survey of a SQL Server: the tables of its databases, and the statements that capture still needs. Driver.

If capture is enabled for some tables of a database, the file lists these. If it is enabled for none, the file lists all
tables, and the statements enable capture for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from tailrace.columns.table import TableId
from tailrace.config import Config, TableFilter
from tailrace.connectors.sqlserver.dialect import SqlServerDialect, SqlServerSession
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.texts import quoted
from tailrace.connectors.survey import ServerSurvey, lists
from tailrace.snapshot.mode import snapshot_mode


def look(config: Config) -> ServerSurvey:
    """Survey the databases of `database.names`. Implements `tailrace.connectors.survey.Surveying`."""
    dialect = SqlServerDialect(config)
    tables: set[tuple[str, str]] = set()
    needed: list[str] = []
    for database in dialect.databases:
        with closing(dialect.connect(database)) as session:
            chosen, lacking = _database(config, session)
        tables.update((table.schema, table.table) for table in chosen)
        if lacking:
            needed += [f"use {quoted(database)};", *lacking]
    return ServerSurvey(lists(sorted(tables), "schema"), tuple(needed))


def _database(config: Config, session: SqlServerSession) -> tuple[list[TableId], list[str]]:
    """Return the tables for the file, and the statements that capture of them still needs."""
    includes = TableFilter(config).includes
    there = [table for table in session.tables() if includes(table.schema, table.table)]
    enabled = bool(session.all(statements.STATES)[0][0])
    lacking = [] if enabled else ["exec sys.sp_cdc_enable_db;"]
    may = statements.permitted("SELECT")
    is_seen = enabled and all(session.one(may, quoted("cdc", name)) for name in statements.CATALOG)
    instances = session.all(statements.CAPTURES) if is_seen else []
    roles = {TableId(session.database, row[5], row[6]): row[9] for row in instances}
    captured = [table for table in there if table in roles]
    if not captured and (is_seen or not enabled):
        lacking += [_enabling(table) for table in there]
    if not is_seen:
        lacking.append(f"grant select on schema::cdc to {quoted(config['database.user'])};")
    lacking += _rights(config, session, captured or there, [roles[table] for table in captured])
    return captured or there, lacking


def _enabling(table: TableId) -> str:
    names = (f"@{word} = N'{name.replace(chr(39), chr(39) * 2)}'" for word, name in (
        ("source_schema", table.schema), ("source_name", table.table)))  # fmt: skip
    return f"exec sys.sp_cdc_enable_table {', '.join(names)}, @role_name = null;"


def _rights(
    config: Config, session: SqlServerSession, tables: Sequence[TableId], roles: Sequence[str | None]
) -> Iterator[str]:
    user = quoted(config["database.user"])
    for role in sorted({role for role in roles if role and not session.is_member(role)}):
        yield f"alter role {quoted(role)} add member {user};"
    may = statements.permitted("SELECT")
    for table in tables if snapshot_mode(config).reads != "never" else ():
        if not session.one(may, quoted(table.schema, table.table)):
            yield f"grant select on {quoted(table.schema, table.table)} to {user};"
