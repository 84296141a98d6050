"""The parts of a pipeline in a Db2 database: its signal table, and the registration that captures it. Driver.

Registrations of other tables are not removed: other programs may read their changes. Db2 has no identity of a server on
all its platforms, so the register decides if the checkpoint belongs to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset
from tailrace.connectors.changetables.position import following
from tailrace.connectors.db2.dialect import Db2Session, dialect
from tailrace.connectors.db2.server.catalog import literal, quoted
from tailrace.connectors.db2.values.declaration import TEXTS
from tailrace.connectors.removal import OTHER_SERVER, UNKNOWN, Removable, Removal, shaped
from tailrace.errors import ConnectionFailed, TailraceError


def _found(config: Config, stored: Mapping[str, Any] | None) -> list[Removable]:
    if not config["signal.data.collection"]:
        return []
    with closing(dialect(config).connect(config["database.dbname"])) as session:
        table = session.signal_table()
        assert table is not None
        name = (table.schema, table.table)
        columns = session.catalog().columns([name]).get(name, [])
        if not columns:
            return []
        kept = UNKNOWN if stored is None else shaped([one.column.type_name in TEXTS for one in columns])
        if stored is not None:
            kept = _foreign(session, table, TablesOffset.from_json(dict(stored))) or kept
        drop = Removable(f"the signal table {'.'.join(name)}", f"drop table {quoted(*name)}", kept)
        if not _is_registered(session, table):
            return [drop]
        call = f"call ASNCDC.REMOVETABLE({literal(table.schema)}, {literal(table.table)})"
        return [Removable(f"the registration of the signal table {'.'.join(name)}", call, kept), drop]


def _is_registered(session: Db2Session, table: TableId) -> bool:
    try:
        return any((row.schema, row.table) == (table.schema, table.table) for row in session.register())
    except ConnectionFailed:
        raise
    except TailraceError:
        # without control tables nothing is registered
        return False


def _foreign(session: Db2Session, table: TableId, stored: TablesOffset) -> str:
    """Return why the signal table may belong to another pipeline, as a sentence; "" if register and checkpoint agree.

    The checkpoint has the signal table's change table and its first position. Pruning advances this position, but not
    beyond the position that the pipeline has read, unless changes are lost.
    """
    reached = stored.databases.get(table.database)
    known = None if reached is None else next(iter(reached.eras.of(table)), None)
    if reached is None or known is None:
        return "The checkpoint does not show that the pipeline has read it."
    try:
        newest = session.newest()
        starts = {row.source: row.start for row in session.captures() if row.name == known.capture.name}
    except ConnectionFailed:
        raise
    except TailraceError:
        return OTHER_SERVER
    return "" if _is_own(known.capture.start, starts.get(table), newest, reached) else OTHER_SERVER


def _is_own(noted: bytes, start: bytes | None, newest: bytes | None, reached: DatabaseProgress) -> bool:
    if start is None or newest is None or newest < reached.position:
        return False
    return noted <= start <= following(reached.position)


def _remove(config: Config, part: Removable) -> None:
    with closing(dialect(config).connect(config["database.dbname"])) as session:
        session.execute(part.statement)


REMOVAL = Removal(_found, _remove)
