"""The log that PostgreSQL keeps for replication slots. Planner.

PostgreSQL documentation, "pg_replication_slots", "pg_stat_replication_slots", `max_slot_wal_keep_size`. Every slot of
the server is read: a forgotten one fills the disk as well.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from tailrace.config import Config
from tailrace.connectors.postgres.server.connection import connect
from tailrace.connectors.retention import LogRetention, SlotState

_HAS_STATISTICS = 140_000

_SLOTS: Final = """
select s.slot_name, s.active, coalesce(s.wal_status, ''), (head.lsn - s.restart_lsn)::int8,
  (head.lsn - s.confirmed_flush_lsn)::int8, s.safe_wal_size,
  extract(epoch from now() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8,
  coalesce(to_jsonb(s) ->> 'invalidation_reason', case when s.wal_status = 'lost' then 'wal_removed' else '' end),
  {spilled}
from pg_replication_slots s
  cross join (
    select case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end
  ) head(lsn)
  {statistics}
order by s.slot_name"""

_LIMIT: Final = """
select case when keep.size < 0 then null else greatest(keep.size, least.size) * 1048576 end
from (select setting::int8 from pg_settings where name = 'max_slot_wal_keep_size') keep(size),
  (select setting::int8 from pg_settings where name = 'wal_keep_size') least(size)"""


def retention(config: Config) -> LogRetention:
    """Return the state of every slot of the server."""
    with closing(connect(config)) as connection:
        has_statistics = connection.info.server_version >= _HAS_STATISTICS
        query = _SLOTS.format(
            spilled="t.spill_bytes, t.spill_txns" if has_statistics else "null, null",
            statistics="left join pg_stat_replication_slots t using (slot_name)" if has_statistics else "",
        )
        row = connection.execute(_LIMIT.encode()).fetchone()
        limit = None if row is None else row[0]
        own = config["slot.name"]
        return LogRetention(
            tuple(
                SlotState(
                    name=name,
                    is_own=name == own,
                    is_active=active,
                    status=status,
                    retained_bytes=retained,
                    unconfirmed_bytes=unconfirmed,
                    limit_bytes=limit,
                    safe_bytes=safe,
                    inactive_s=inactive,
                    invalidated=invalidated,
                    spilled_bytes=spilled,
                    spilled_transactions=transactions,
                )
                for (
                    name, active, status, retained, unconfirmed, safe, inactive, invalidated, spilled, transactions
                ) in connection.execute(query.encode())
            )
        )  # fmt: skip
