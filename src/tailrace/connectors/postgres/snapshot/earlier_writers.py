"""EarlierWriters: transactions that wrote to a table before the log carried its changes. Planner.

The log has the changes of a table from the moment at which the publication has the table, also within a transaction. A
transaction that is running then may have written rows before that moment. The log lacks these rows, and no snapshot
shows them until the transaction ends. A table that is captured late is therefore read only after all such transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection as Several
from typing import TYPE_CHECKING, Any

from tailrace.snapshot.incremental import Collection

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

_NOW = "select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.xid::text"
# The processes that hold a writer's lock on the table, or on a partition of it, with an id older than the given one. A
# prepared transaction has no process.
_WRITERS = """
with recursive part(oid) as (
  select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %s and c.relname = %s
  union all
  select i.inhrelid from part join pg_catalog.pg_inherits i on i.inhparent = part.oid)
select distinct coalesce(held.pid, 0) from pg_catalog.pg_locks held
join pg_catalog.pg_locks own on own.virtualtransaction = held.virtualtransaction and own.locktype = 'transactionid'
where held.locktype = 'relation' and held.relation in (select oid from part) and held.granted and own.granted
  and own.mode = 'ExclusiveLock'
  and held.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
  and held.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and pg_catalog.age(own.transactionid) > pg_catalog.age(%s::pg_catalog.xid)
order by 1
"""


class EarlierWriters:
    """Tracks the transactions that must end before a table captured late can be read."""

    def __init__(self) -> None:
        # by table: the next transaction id when the table was first seen
        self._since: dict[str, str] = {}
        self._free: set[str] = set()
        self._told: set[str] = set()

    def keep(self, late: Several[str]) -> None:
        """Forget all tables except `late`, the tables that were captured late and have not been read."""
        self._since = {name: since for name, since in self._since.items() if name in late}
        self._free &= set(late)
        self._told &= set(late)

    def has(self, connection: psycopg.Connection[Any], table: Collection) -> bool:
        """Return True if a running transaction may have written to `table` before the log carried its changes.

        When this is called, the log carries them. A later snapshot shows the rows of all other transactions.
        """
        name = str(table)
        if name in self._free:
            return False
        if name not in self._since:
            row = connection.execute(_NOW).fetchone()
            assert row is not None
            self._since[name] = row[0]
        given = table.schema, table.table, self._since[name]
        found = [pid for (pid,) in connection.execute(_WRITERS, given).fetchall()]
        if not found:
            self._free.add(name)
            return False
        if name not in self._told:
            self._told.add(name)
            who = ", ".join("a prepared transaction" if pid == 0 else f"process {pid}" for pid in found)
            log.warning(
                "%s is read when the transactions have ended that wrote to it before its changes arrived: %s", name, who
            )
        return True
