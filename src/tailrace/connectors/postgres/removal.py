"""The parts of a pipeline on a PostgreSQL server: its slot, its publication and its signal table. Driver.

A slot or a publication of the configured name may belong to another program: Debezium's defaults have the same names.
Each counts as the pipeline's own only if it fits the pipeline's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.postgres.log.identity import identify
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import lsn_text
from tailrace.connectors.postgres.schema import inventory
from tailrace.connectors.postgres.server.connection import connect, explained
from tailrace.connectors.postgres.snapshot.key_chunks import literal
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.connectors.postgres.snapshot.signal_table import SignalTable
from tailrace.connectors.removal import OTHER_SERVER, UNKNOWN, Removable, Removal, shaped

if TYPE_CHECKING:
    import psycopg

_SLOT = """
select slot_type, plugin, database, active_pid, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8
from pg_catalog.pg_replication_slots where slot_name = %s
"""
_OTHERS = """
select slot_name from pg_catalog.pg_replication_slots
where slot_name <> %s and database = pg_catalog.current_database() and plugin = 'pgoutput' and not temporary
order by 1
"""
_PUBLISHED = """
select pubname from pg_catalog.pg_publication_tables
where schemaname = %s and tablename = %s and pubname <> %s
order by 1
"""
# One row if there is such a table: true if it has a signal table's three texts and no other column.
_TABLE = """
select count(*) = 3 and bool_and(t.typcategory = 'S')
from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
where a.attrelid = pg_catalog.to_regclass(%s) and a.attnum > 0 and not a.attisdropped having count(*) > 0
"""


def _found(config: Config, stored: Mapping[str, Any] | None) -> list[Removable]:
    offset = None if stored is None else PostgresOffset.from_json(dict(stored))
    with closing(connect(config)) as connection:
        foreign = "" if offset is None else _foreign(config, offset)
        return [
            *_slot(connection, config, offset, foreign),
            *_publication(connection, config, offset, foreign),
            *_signals(connection, config, offset, foreign),
        ]


def _foreign(config: Config, offset: PostgresOffset) -> str:
    """Return a sentence if the checkpoint belongs to another server; "" if it belongs to this one."""
    if offset.server is None:
        return ""
    with closing(connect(config, replication=True)) as replication:
        same = identify(replication).system == offset.server.system
    return "" if same else OTHER_SERVER


def _slot(
    connection: psycopg.Connection[Any], config: Config, offset: PostgresOffset | None, foreign: str
) -> Iterator[Removable]:
    name = config["slot.name"]
    row = connection.execute(_SLOT.encode(), (name,)).fetchone()
    if row is None:
        return
    kind, plugin, database, reader, stands = row
    kept = foreign
    if kind != "logical" or plugin != "pgoutput" or database != config["database.dbname"]:
        kept = f"It is a {kind} slot of {plugin or 'no plugin'} in the database {database or 'of none'}."
    elif reader is not None:
        kept = f"The server process {reader} reads it."
    elif offset is None:
        kept = UNKNOWN
    elif not kept and stands > max(offset.log.safe_lsn, offset.reached_lsn):
        kept = f"It stands at {lsn_text(stands)}, ahead of the checkpoint: another program has read it."
    yield Removable(f"the replication slot {name}", f"select pg_drop_replication_slot({literal(name)})", kept)


def _publication(
    connection: psycopg.Connection[Any], config: Config, offset: PostgresOffset | None, foreign: str
) -> Iterator[Removable]:
    name, there = config["publication.name"], inventory.publication_of(connection, config)
    if not there:
        return
    others = [slot for (slot,) in connection.execute(_OTHERS.encode(), (config["slot.name"],)).fetchall()]
    kept = foreign
    if config["publication.autocreate.mode"] == "disabled":
        kept = "publication.autocreate.mode=disabled says that somebody else has made it."
    elif offset is None:
        kept = UNKNOWN
    elif not kept and offset.inventory.publication != there:
        kept = "It is not the one by which this pipeline has read the log."
    elif not kept and others:
        kept = f"Other slots of this database may be read by it: {', '.join(others)}."
    yield Removable(f"the publication {name}", f"drop publication {quoted(name)}", kept)


def _signals(
    connection: psycopg.Connection[Any], config: Config, offset: PostgresOffset | None, foreign: str
) -> Iterator[Removable]:
    if not config["signal.data.collection"]:
        return
    table = SignalTable(config)
    row = connection.execute(_TABLE.encode(), (table.quoted,)).fetchone()
    if row is None:
        return
    published = connection.execute(
        _PUBLISHED.encode(), (table.schema, table.table, config["publication.name"])
    ).fetchall()
    kept = foreign
    if offset is None:
        kept = UNKNOWN
    elif not kept and not row[0]:
        kept = shaped([])
    elif not kept and published:
        kept = f"Other publications have it: {', '.join(name for (name,) in published)}."
    yield Removable(f"the signal table {table}", f"drop table {table.quoted}", kept)


def _remove(config: Config, part: Removable) -> None:
    with closing(connect(config)) as connection:
        connection.execute(part.statement.encode())


REMOVAL = Removal(explained(_found), explained(_remove))
