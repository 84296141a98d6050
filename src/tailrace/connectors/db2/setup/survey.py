"""Survey of a Db2 database: its tables, and the statements that capture still needs. Driver.

If some tables are in capture mode, the file lists these. If none is, the file lists all tables, and the statements put
each into capture mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from tailrace.columns.table import TableId
from tailrace.config import Config, TableFilter
from tailrace.connectors.db2.dialect import Db2Session, dialect
from tailrace.connectors.db2.setup.prerequisites import CONTROL, adding, grant, unreadable
from tailrace.connectors.survey import ServerSurvey, lists
from tailrace.snapshot.mode import snapshot_mode


def look(config: Config) -> ServerSurvey:
    """Survey the database of `database.dbname`. Implements `tailrace.connectors.survey.Surveying`."""
    with closing(dialect(config).connect(config["database.dbname"])) as session:
        includes = TableFilter(config).includes
        there = [table for table in session.tables() if includes(table.schema, table.table)]
        tables, statements = _captured(config, session, there)
    return ServerSurvey(lists([(table.schema, table.table) for table in tables], "schema"), tuple(statements))


def _captured(config: Config, session: Db2Session, there: Sequence[TableId]) -> tuple[Sequence[TableId], list[str]]:
    """Return the tables for the file, and the statements that capture of them still needs."""
    schema = config["cdc.control.schema"]
    faults = {table: unreadable(session, schema, table) for table in (*CONTROL, "IBMSNAP_CAPPARMS")}
    closed = [f"{grant(config, schema, table)};" for table, fault in faults.items() if fault not in ("", "absent")]
    if any(faults[table] == "absent" for table in CONTROL):
        lacking = [
            f"-- with asnclp, once: CREATE CONTROL TABLES FOR CAPTURE SERVER, in the schema {schema}",
            f"-- and then: asncap capture_server={config['database.dbname']} capture_schema={schema}",
        ]
        return there, [*lacking, *adding(there), *_rights(config, session, there)]
    if faults["IBMSNAP_REGISTER"]:
        # the register cannot be read, so the tables in capture mode are unknown
        return there, [*closed, *_rights(config, session, there)]
    registered = {(row.schema, row.table): (row.change_schema, row.change_table) for row in session.register()}
    captured = [table for table in there if (table.schema, table.table) in registered]
    if not captured:
        return there, [*adding(there), *closed, *_rights(config, session, there)]
    changes = [TableId(table.database, *registered[table.schema, table.table]) for table in captured]
    rights = [*_rights(config, session, changes, always=True), *_rights(config, session, captured)]
    return captured, [*closed, *rights]


def _rights(config: Config, session: Db2Session, tables: Sequence[TableId], *, always: bool = False) -> Iterator[str]:
    """Yield a grant for each table that the user may not read, if a snapshot reads tables, or `always`."""
    for table in tables if always or snapshot_mode(config).reads != "never" else ():
        if unreadable(session, table.schema, table.table) not in ("", "absent"):
            yield f"{grant(config, table.schema, table.table)};"
