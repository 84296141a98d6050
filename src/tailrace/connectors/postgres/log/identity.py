"""Identity and state of a server's log: system and timeline, flushed end, transactions not yet shown. Planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.log.endings import UNSUPPORTED
from tailrace.connectors.postgres.protocol.position import FlushedLsn, TargetLsn, lsn_text, lsn_value
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres.server.arrow import ArrowConnection

# Seconds between two queries for the flushed end of the log.
FLUSH_PAUSE = 0.01


def flushed_end(connection: psycopg.Connection[Any]) -> FlushedLsn:
    """Return the flushed end of the log, up to which it can be read now."""
    row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    return FlushedLsn(int(row[0]))


def present(connection: psycopg.Connection[Any]) -> TargetLsn:
    """Return an LSN after every commit that is visible now; the server will soon flush its log up to this LSN.

    A commit under synchronous_commit=off is visible before it is flushed. The WAL writer flushes up to the last such
    commit, within three times wal_writer_delay, and no further. If part of the log is unflushed, this function
    therefore commits a transaction without changes after it. The LSN may be ahead of the last record's end by a page
    header.
    """
    row = connection.execute(
        "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, "
        "pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()"
    ).fetchone()
    assert row is not None
    inserted, is_ahead = row
    if is_ahead:
        connection.execute("select txid_current()")
    return TargetLsn(int(inserted))


def flushed_present(
    connection: psycopg.Connection[Any], runtime: Runtime, target: TargetLsn | None = None
) -> FlushedLsn | None:
    """Wait for a flushed LSN after every commit that is visible now, and return it; None if that takes too long.

    With `target`, a result of `present`, return a flushed LSN at or after it. The server flushes by itself within three
    times wal_writer_delay, unless it is too busy.
    """
    target = present(connection) if target is None else target
    flushed = flushed_end(connection)
    if flushed < target:
        row = connection.execute("select setting::int from pg_settings where name = 'wal_writer_delay'").fetchone()
        assert row is not None
        deadline = runtime.monotonic() + 3.5 * row[0] / 1000
        while (flushed := flushed_end(connection)) < target:
            if runtime.monotonic() > deadline:
                return None
            runtime.sleep(FLUSH_PAUSE)
    return flushed


# A transaction keeps the lock on its id until new snapshots show it. pg_stat_activity shows nulls for the sessions of
# other roles. A prepared transaction has no session; the session that commits it has no id.
_WAITING = """
select backend_xid::text::int8 from pg_catalog.pg_stat_activity
where wait_event = 'SyncRep' and backend_xid is not null
union
select p.transaction::text::int8 from pg_catalog.pg_prepared_xacts p join pg_catalog.pg_stat_activity a
  on a.wait_event = 'SyncRep' and a.backend_xid is null
  and pg_catalog.strpos(a.query, pg_catalog.replace(p.gid, $$'$$, $$''$$)) > 0
union
select transactionid::text::int8 from pg_catalog.pg_locks
where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted
  and pid is distinct from pg_catalog.pg_backend_pid() and not pg_catalog.pg_has_role('pg_read_all_stats', 'usage')
  and pg_catalog.current_setting('synchronous_standby_names') <> ''
"""


def waiting(connection: psycopg.Connection[Any]) -> list[int]:
    """Return the 32-bit ids of transactions that are committed in the log and wait for a synchronous standby.

    New snapshots do not show them yet. If the role may not see which sessions wait, return the ids of all running
    transactions.
    """
    return [row[0] for row in connection.execute(_WAITING).fetchall()]


@dataclass(frozen=True, slots=True)
class ServerId:
    """Identity of a server's log.

    `system` is the cluster's identifier, the same on its standbys and in copies of its files. `timeline` is the branch
    of its log: each promotion and each recovery to a point in time begins a new one.
    """

    system: str
    timeline: int

    def to_json(self) -> dict[str, Any]:
        return {"system": self.system, "timeline": self.timeline}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ServerId:
        return cls(fields["system"], fields["timeline"])


def identify(replication: psycopg.Connection[Any], known: ServerId | None = None, reached: int = 0) -> ServerId:
    """Return the identity of the server behind a replication connection.

    Raises PositionLost if its log is not the log that was read from the server `known` up to the LSN `reached`.
    """
    reason = "" if known is None else branched_off(replication, known, reached)
    if reason:
        raise PositionLost(
            f"The server's log is not the one that was read: {reason}.",
            "This is another server, or one that was promoted or restored to an earlier time: delete the checkpoint "
            "and drop the slot to start again with a snapshot.",
        )
    row = replication.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return ServerId(_text(row[0]), int(row[1]))


def branched_off(replication: psycopg.Connection[Any], known: ServerId, reached: int) -> str:
    """Return why the server's log is not the log read from `known` up to the LSN `reached`, as the rest of a sentence.

    Return "" if it is that log. A copy of the server's files that runs as a server of its own has the same identifier
    and timeline: it cannot be distinguished from the original.
    """
    found = identify(replication)
    if found.system != known.system:
        return f"its system identifier is {found.system}, that of the log that was read is {known.system}"
    if found.timeline == known.timeline:
        return ""
    if found.timeline > known.timeline:
        for timeline, end in _ancestors(replication, found.timeline):
            if timeline == known.timeline:
                if reached <= end:
                    return ""
                return f"it left timeline {timeline} at {lsn_text(end)}, before {lsn_text(reached)}, which was read"
    return f"it is on timeline {found.timeline}, and does not come from timeline {known.timeline}, which was read"


def refuse_new_standby(connection: psycopg.Connection[Any]) -> None:
    """Raise ConnectionFailed, a retriable error, if the server has become a standby.

    Another server will soon be the primary, under the same name.
    """
    try:
        refuse_standby(connection)
    except PrerequisiteError as error:
        raise ConnectionFailed(error.message, error.remedy) from None


def refuse_another(connection: ArrowConnection, server: ServerId) -> None:
    """Raise ConnectionFailed if the connection has reached another server than `server`. Raises the driver's errors,
    too.

    A new session then checks whether that server's log is the log that was read. Servers with shared storage, such as
    Aurora, may lack the function that gives the timeline. They share one log and are accepted.
    """
    try:
        timeline = timeline_of(connection)
    except Exception as error:
        if getattr(error, "sqlstate", None) != UNSUPPORTED:
            raise
        return
    if timeline != server.timeline:
        place = "a standby" if timeline is None else f"on timeline {timeline}, and not on {server.timeline}"
        raise ConnectionFailed(
            f"Another server has answered than the one that was identified first: it is {place}.",
            "Let database.hostname lead to the primary alone.",
        )


def timeline_of(connection: ArrowConnection) -> int | None:
    """Return the timeline of the server behind the connection; None for a standby.

    PostgreSQL documentation, "System Administration Functions": the first eight hexadecimal digits of pg_walfile_name.
    """
    batches = connection.query(
        "select case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_lsn()), 8) end"
    )
    (digits,) = [found for batch in batches for found in batch.column(0).to_pylist()]
    return None if digits is None else int(digits, 16)


def _ancestors(replication: psycopg.Connection[Any], timeline: int) -> Iterator[tuple[int, int]]:
    """Yield the timelines from which `timeline` descends, each with the LSN at which it was left."""
    row = replication.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchone()
    assert row is not None
    for line in _text(row[1]).splitlines():
        fields = line.split("#", 1)[0].split(None, 2)
        if len(fields) > 1:
            yield int(fields[0]), lsn_value(fields[1])


def _text(content: str | bytes) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else content


class CatalogXmin:
    """The slot's catalog xmin, queried at most once every `xmin.fetch.interval.ms` over the connection of `connect`."""

    def __init__(self, config: Mapping[str, Any], connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._interval = config["xmin.fetch.interval.ms"] / 1000
        self._slot = config["slot.name"]
        self._connect = connect
        self._due = 0.0
        self._known = 0

    def now(self) -> int:
        """Return the catalog xmin; 0 if the option turns it off or it is not known."""
        now = time.monotonic()
        if self._interval and now >= self._due:
            row = self._connect().execute(
                "select coalesce(catalog_xmin::text::int8, 0) from pg_replication_slots where slot_name = %s",
                (self._slot,),
            ).fetchone()  # fmt: skip
            self._known = 0 if row is None else int(row[0])
            self._due = now + self._interval
        return self._known


EARLIER = """
select slot_name::text from pg_catalog.pg_replication_slots
where slot_type = 'logical' and plugin = 'pgoutput' and not temporary and slot_name <> %s
  and database = pg_catalog.current_database() and confirmed_flush_lsn <= %s::pg_lsn
order by confirmed_flush_lsn desc, slot_name limit 5
"""
"""Other slots of the database at or before a position. A slot that the pipeline used earlier is among them if it
exists."""


def way_back(connection: psycopg.Connection[Any], slot: str, lsn: int) -> str:
    """Return the remedy for a slot from which reading cannot go on at the checkpoint's position `lsn`."""
    anew = "delete the checkpoint to start again with a snapshot."
    others = [name for (name,) in connection.execute(EARLIER, (slot, lsn_text(lsn))).fetchall()]
    if not others:
        return f"The changes since the checkpoint are lost: {anew}"
    listed = ", ".join(others)
    return f"If slot.name was another one before, set it back and nothing is lost: there is {listed}. Otherwise {anew}"


def refuse_standby(connection: psycopg.Connection[Any]) -> None:
    """Raise PrerequisiteError if the server is a standby: neither publications nor slots can be created there."""
    row = connection.execute("select pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        raise PrerequisiteError("The server is a standby.", NAME_PRIMARY)


NAME_PRIMARY = "Name the primary in database.hostname: changes are read from primaries only."
"""The remedy for a configuration that names a standby."""


def decodes_behind_standbys(connection: psycopg.Connection[Any], slot: str) -> bool:
    """Return True if for this slot the server sends only log that standbys have confirmed.

    This holds for failover slots with synchronized_standby_slots set, but not for copies of such slots.
    """
    row = connection.execute(
        "select coalesce((to_jsonb(s) ->> 'failover')::bool, false) and "
        "coalesce(current_setting('synchronized_standby_slots', true), '') <> '' "
        "from pg_replication_slots s where slot_name = %s",
        (slot,),
    ).fetchone()
    return row is not None and bool(row[0])
