"""The parts of a pipeline in SQL Server's databases: signal tables and their capture instances. Driver.

Capture instances of other tables are not removed: other programs may read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.removal import OTHER_SERVER, UNKNOWN, Removable, Removal, shaped
from tailrace.connectors.sqlserver.dialect import SqlServerDialect, SqlServerSession
from tailrace.connectors.sqlserver.options import signal_tables
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.setup.prerequisites import TEXTS
from tailrace.connectors.sqlserver.values.texts import quoted


def _found(config: Config, stored: Mapping[str, Any] | None) -> list[Removable]:
    if not config["signal.data.collection"]:
        return []
    dialect = SqlServerDialect(config)
    known = None if stored is None else TablesOffset.from_json(dict(stored)).lineages
    found: list[Removable] = []
    for database, (schema, table) in signal_tables(config["signal.data.collection"], dialect.databases).items():
        with closing(dialect.connect(database)) as session:
            found += _in_database(session, TableId(session.database, schema, table), known)
    return found


def _in_database(session: SqlServerSession, table: TableId, known: Mapping[str, str] | None) -> Iterator[Removable]:
    columns = session.all(statements.SIGNAL_COLUMNS, table.schema, table.table)
    if not columns:
        return
    kept = UNKNOWN if known is None else shaped([kind in TEXTS for _, kind, *_ in columns])
    lineage = "" if known is None else known.get(session.database, "")
    if lineage and lineage != session.lineage():
        kept = OTHER_SERVER
    of = f" of {session.database}"
    instances = [row[2] for row in session.all(statements.CAPTURES) if (row[5], row[6]) == (table.schema, table.table)]
    for instance in instances:
        names = {"source_schema": table.schema, "source_name": table.table, "capture_instance": instance}
        given = ", ".join(f"@{word} = N'{name.replace(chr(39), chr(39) * 2)}'" for word, name in names.items())
        disabled = f"use {quoted(session.database)}; exec sys.sp_cdc_disable_table {given}"
        yield Removable(f"the capture instance {instance}{of}", disabled, kept)
    name = quoted(session.database, table.schema, table.table)
    yield Removable(f"the signal table {table.schema}.{table.table}{of}", f"drop table {name}", kept)


def _remove(config: Config, part: Removable) -> None:
    dialect = SqlServerDialect(config)
    with closing(dialect.connect(dialect.databases[0])) as session:
        session.run(part.statement)


REMOVAL = Removal(_found, _remove)
