"""The tables that a PostgreSQL query captures now, and the log position up to which they are valid. Any process."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.batch import position_text
from tailrace.config import Config, TableFilter
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.schema.coverage import carried
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.snapshot.session import locking
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings

if TYPE_CHECKING:
    import psycopg

_LOCK_MS = 60_000
_LSN = """
select (case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
        else pg_catalog.pg_current_wal_insert_lsn() end - '0/0'::pg_lsn)::int8
"""


def captured(config: Config, settings: EventSettings) -> CapturedTables:
    """See tailrace.connectors.captured_tables. Raises ConnectionFailed, PrerequisiteError, ConfigError.

    A statement that alters a table holds a lock until every session sees the alteration. A table read under a lock is
    therefore valid up to the log's end at that moment, even if commits wait for a standby.
    """
    return connections.explained(lambda: _captured(config, settings))()


def _captured(config: Config, settings: EventSettings) -> CapturedTables:
    with closing(connections.connect(config)) as connection:
        catalog = Catalog(connection, config["database.dbname"], settings.shaping.comments)
        names = captured_tables(catalog.tables(), TableFilter(config))
        cover = carried(connection, config, settings, names)
        names = cover.tables(names)
        lsn, tables = 0, [oid for oid, _, _ in names]
        if len(tables) == 1:
            with connection.transaction():
                _hold(connection, tables[0], str(names[0][1]))
                lsn = end_of_log(connection)
                found = catalog.schemas(tables)
        else:
            found = catalog.schemas(tables)
        admission = Admission(settings, FORM)
        admitted = tuple(cover.schema(admission.admit(found[oid])) for oid in tables if oid in found)
        # the next commit may be at the log's end
        return CapturedTables(admitted, position_text(max(lsn - 1, 0)), FORM)


def end_of_log(connection: psycopg.Connection[Any]) -> int:
    """Return the LSN of the log's end; everything visible lies before it."""
    (lsn,) = connection.execute(_LSN).fetchone() or (0,)
    return int(lsn)


def _hold(connection: psycopg.Connection[Any], oid: int, name: str) -> None:
    """Lock the table as a reader does, with a time limit. Raises PrerequisiteError, ConnectionFailed."""
    import psycopg

    try:
        connection.execute(f"set local lock_timeout = {_LOCK_MS}".encode())
        row = connection.execute("select %s::oid::regclass::text", (oid,)).fetchone()
        connection.execute(locking(f"only {row[0] if row else name}").encode())
    except psycopg.errors.InsufficientPrivilege:
        raise PrerequisiteError(
            f"The user may not read {name}, whose columns typed rows have.",
            f"grant select on {name} to the role, or select on the columns in column.include.list.",
        ) from None
    except psycopg.errors.LockNotAvailable:
        raise ConnectionFailed(
            f"{name} is being altered: its columns are not known yet.", "Try again when the statement is done."
        ) from None
