"""Publication, slot and replica identities: made at the start of a query where they are missing. Planner."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId
from tailrace.config import TableFilter
from tailrace.connectors.postgres.position import lsn_value
from tailrace.connectors.postgres.snapshot import quoted
from tailrace.errors import ConfigError, PrerequisiteError

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

CapturedTable = tuple[int, TableId, str]


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A slot that was just created: the LSN that it starts at, and the snapshot that shows exactly what is before.

    The snapshot lasts as long as the replication connection that created the slot stays idle.
    """

    consistent_lsn: int
    snapshot: str


def captured_tables(tables: Sequence[CapturedTable], lists: TableFilter) -> list[CapturedTable]:
    """The tables that the include and exclude lists leave, ordered by name."""
    return [entry for entry in tables if lists.includes(entry[1].schema, entry[1].table)]


def prepare_publication(
    connection: psycopg.Connection[Any], config: Mapping[str, Any], captured: Sequence[CapturedTable]
) -> None:
    """Create the publication, or bring its tables up to date, as `publication.autocreate.mode` says.

    Raises PrerequisiteError when it is missing and may not, or cannot, be created.
    """
    import psycopg

    name, mode = config["publication.name"], config["publication.autocreate.mode"]
    row = connection.execute("select puballtables from pg_publication where pubname = %s", (name,)).fetchone()
    listed = ", ".join(f"{quoted(table.schema)}.{quoted(table.table)}" for _, table, _ in captured)
    try:
        if row is None:
            if mode == "disabled":
                raise PrerequisiteError(
                    f"The publication {name} does not exist, and publication.autocreate.mode is disabled.",
                    f"create publication {quoted(name)} for table …;",
                )
            if mode == "filtered" and not captured:
                raise ConfigError(
                    "publication.autocreate.mode=filtered, but the include and exclude lists leave no table.",
                    "Correct the lists.",
                )
            tables = {"all_tables": " for all tables", "filtered": f" for table {listed}", "no_tables": ""}[mode]
            connection.execute(f"create publication {quoted(name)}{tables}".encode())
        elif mode == "filtered" and not row[0] and captured:
            connection.execute(f"alter publication {quoted(name)} set table {listed}".encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise PrerequisiteError(
            f"The user {config['database.user']} may not create or change the publication {name}: "
            f"{error.diag.message_primary}.",
            "Create it as a superuser and set publication.autocreate.mode=disabled, or own the tables and use "
            "filtered.",
        ) from None


def warn_of_unpublished(
    connection: psycopg.Connection[Any], publication: str, captured: Sequence[CapturedTable]
) -> list[str]:
    """Captured tables that the publication lacks: no change of them will arrive. Logged, and returned."""
    rows = connection.execute(
        "select schemaname, tablename from pg_publication_tables where pubname = %s", (publication,)
    ).fetchall()
    published = {(schema, table) for schema, table in rows}
    # a partitioned table is published by its leaves, unless by its root
    missing = [
        str(table) for _, table, relkind in captured if (table.schema, table.table) not in published and relkind != "p"
    ]
    if missing:
        log.warning(
            "the publication %s lacks captured tables, whose changes will not arrive: %s; add them with "
            "alter publication, or set publication.autocreate.mode=filtered",
            publication,
            ", ".join(missing),
        )
    return missing


def warn_of_identities(connection: psycopg.Connection[Any], captured: Sequence[CapturedTable]) -> list[str]:
    """Tables without a usable replica identity, whose updates and deletes the server refuses. Logged, and returned."""
    rows = connection.execute(
        "select c.oid::int8 from pg_class c where c.oid = any(%s::oid[]) and (c.relreplident = 'n' or "
        "(c.relreplident = 'd' and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)))",
        ([oid for oid, _, _ in captured],),
    ).fetchall()
    lacking = {oid for (oid,) in rows}
    found = [str(table) for oid, table, _ in captured if oid in lacking]
    if found:
        log.warning(
            "tables without a primary key or replica identity, whose updates and deletes PostgreSQL refuses while they "
            "are published: %s; run alter table … replica identity full",
            ", ".join(found),
        )
    return found


_IDENTITY = re.compile(r"(?P<table>.+):(?P<kind>FULL|DEFAULT|NOTHING|INDEX\s+(?P<index>\S+))", re.IGNORECASE)


def set_replica_identities(
    connection: psycopg.Connection[Any], values: Sequence[str], captured: Sequence[CapturedTable]
) -> None:
    """`replica.identity.autoset.values`: `expression:FULL|DEFAULT|NOTHING|INDEX name` for each matching table.

    Raises ConfigError for a value that says something else.
    """
    from tailrace.config.filters import compile_expression

    letters = {"full": "f", "default": "d", "nothing": "n"}
    for value in values:
        match = _IDENTITY.fullmatch(value.strip())
        if match is None:
            raise ConfigError(
                f"replica.identity.autoset.values: {value!r} is not understood.",
                "Write schema.table:FULL, DEFAULT, NOTHING or INDEX name.",
            )
        expression = compile_expression(match["table"])
        for oid, table, _ in captured:
            if not expression.fullmatch(str(table)):
                continue
            row = connection.execute("select relreplident::text from pg_class where oid = %s", (oid,)).fetchone()
            if row is not None and letters.get(match["kind"].lower()) == row[0]:
                continue
            identity = f"using index {quoted(match['index'])}" if match["index"] else match["kind"].lower()
            statement = f"alter table {quoted(table.schema)}.{quoted(table.table)} replica identity {identity}"
            connection.execute(statement.encode())
            log.info("set the replica identity of %s to %s", table, identity)


def find_slot(connection: psycopg.Connection[Any], config: Mapping[str, Any]) -> int | None:
    """The LSN that the slot is confirmed to, None when there is no such slot.

    Raises PrerequisiteError for a slot of another database, plugin or kind.
    """
    name = config["slot.name"]
    row = connection.execute(
        "select plugin, slot_type, database, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 from pg_replication_slots "
        "where slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, kind, database, confirmed = row
    if kind != "logical" or plugin != "pgoutput" or database != config["database.dbname"]:
        raise PrerequisiteError(
            f"The replication slot {name} is a {kind} slot of plugin {plugin} in database {database}; a logical "
            f"slot of pgoutput in {config['database.dbname']} is needed.",
            "Choose another slot.name, or drop that slot.",
        )
    return int(confirmed)


def create_slot(replication: psycopg.Connection[Any], name: str) -> NewSlot:
    """Create the slot through a replication connection and export its snapshot.

    Raises PrerequisiteError when the server refuses (wal_level, free slots, rights).
    """
    import psycopg

    try:
        row = replication.execute(
            f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput (SNAPSHOT 'export')".encode()
        )
    except psycopg.errors.SyntaxError:
        # before PostgreSQL 15
        row = replication.execute(f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput EXPORT_SNAPSHOT".encode())
    except psycopg.Error as error:
        raise PrerequisiteError(
            f"The replication slot {name} cannot be created: {error.diag.message_primary or error}.",
            "Set wal_level=logical, keep max_replication_slots above the slots in use, and give the user REPLICATION.",
        ) from None
    found = row.fetchone()
    assert found is not None
    return NewSlot(lsn_value(found[1]), found[2])
