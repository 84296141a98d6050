"""What a PostgreSQL server says of its log: whose it is, how far it is flushed, what has been committed. Planner."""

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

# How often it is asked whether the server has flushed its log, in s.
FLUSH_PAUSE = 0.01


def flushed_end(connection: psycopg.Connection[Any]) -> FlushedLsn:
    """The end of the log as far as it is flushed: so much of it can be read now."""
    row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    return FlushedLsn(int(row[0]))


def present(connection: psycopg.Connection[Any]) -> TargetLsn:
    """An LSN behind every commit that others can see now; the server flushes its log up to there soon.

    A commit under synchronous_commit=off is seen before it is flushed. The WAL writer flushes up to the last such
    commit, within three times wal_writer_delay, and no further: so one is written behind what is unflushed, that of
    a transaction without changes. The LSN itself may be a page's header ahead of where the last record ends.
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
    """An LSN that the log is flushed to, behind every commit that others can see now; None if that takes too long.

    With a `target`, which a commit must follow, it need not be behind more than that. The server flushes by itself
    within three times wal_writer_delay, unless it is too busy for that.
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


# A transaction keeps the lock of its id until new snapshots show it. Servers hide the rows of others by nulls.
_WAITING = """
select backend_xid::text::int8 from pg_catalog.pg_stat_activity
where wait_event = 'SyncRep' and backend_xid is not null
union
select transactionid::text::int8 from pg_catalog.pg_locks
where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted and pid <> pg_catalog.pg_backend_pid()
  and not pg_catalog.pg_has_role('pg_read_all_stats', 'usage')
  and pg_catalog.current_setting('synchronous_standby_names') <> ''
"""


def waiting(connection: psycopg.Connection[Any]) -> list[int]:
    """The ids, of 32 bits, of transactions that are in the log as committed and wait for a synchronous standby: no new
    snapshot shows them yet. Also others that are running, where the role may not see who waits."""
    return [row[0] for row in connection.execute(_WAITING).fetchall()]


@dataclass(frozen=True, slots=True)
class ServerId:
    """Whose log it is: `system` is the cluster's identifier, the same on its standbys and in copies of its files;
    `timeline` the branch of its log, a new one from each promotion and each recovery to a point in time on."""

    system: str
    timeline: int

    def to_json(self) -> dict[str, Any]:
        return {"system": self.system, "timeline": self.timeline}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ServerId:
        return cls(fields["system"], fields["timeline"])


def identify(replication: psycopg.Connection[Any], known: ServerId | None = None, reached: int = 0) -> ServerId:
    """The server behind a replication connection.

    Raises PositionLost when its log is not the one that was read from the server `known` up to the LSN `reached`.
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
    """Why the server's log is not the one that was read from the server `known` up to the LSN `reached`, as the rest of
    a sentence; empty when it is.

    A copy of the server's files that went on by itself has the same identifier and the same timeline: it cannot be
    known from the original.
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
    """Raises ConnectionFailed when the server has become a standby: another one is the primary soon, under the same
    name."""
    try:
        refuse_standby(connection)
    except PrerequisiteError as error:
        raise ConnectionFailed(error.message, error.remedy) from None


def refuse_another(connection: ArrowConnection, server: ServerId) -> None:
    """Raises ConnectionFailed when the connection has come to another server than `server`: a new session sees whether
    that one's log is the one that was read. Raises the driver's errors.

    Servers that share their storage, as Aurora's, may have no such function; they have one log for all of them.
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
            f"Another server answers than the one that was asked whose log it has: it is {place}.",
            "See that database.hostname leads to the primary alone.",
        )


def timeline_of(connection: ArrowConnection) -> int | None:
    """The timeline of the server behind the connection, None for a standby. "System Administration Functions":
    pg_walfile_name, whose first eight hexadecimal digits are the timeline."""
    batches = connection.query(
        "select case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_lsn()), 8) end"
    )
    (digits,) = [found for batch in batches for found in batch.column(0).to_pylist()]
    return None if digits is None else int(digits, 16)


def _ancestors(replication: psycopg.Connection[Any], timeline: int) -> Iterator[tuple[int, int]]:
    """The timelines that `timeline` comes from, each with the LSN at which it was left."""
    row = replication.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchone()
    assert row is not None
    for line in _text(row[1]).splitlines():
        fields = line.split("#", 1)[0].split(None, 2)
        if len(fields) > 1:
            yield int(fields[0]), lsn_value(fields[1])


def _text(content: str | bytes) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else content


class CatalogXmin:
    """The slot's catalog xmin, read once in `xmin.fetch.interval.ms`; `connect` gives a connection."""

    def __init__(self, config: Mapping[str, Any], connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._interval = config["xmin.fetch.interval.ms"] / 1000
        self._slot = config["slot.name"]
        self._connect = connect
        self._due = 0.0
        self._known = 0

    def now(self) -> int:
        """0 where it is not wanted or not known."""
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
"""Other slots of the database that stand at or before a position: of which the slot of before is one, where it is
there."""


def way_back(connection: psycopg.Connection[Any], slot: str, lsn: int) -> str:
    """Return the remedy for a slot that does not lead on from a checkpoint at `lsn`."""
    anew = "delete the checkpoint to start again with a snapshot."
    others = [name for (name,) in connection.execute(EARLIER, (slot, lsn_text(lsn))).fetchall()]
    if not others:
        return f"The changes since the checkpoint are lost: {anew}"
    listed = ", ".join(others)
    return f"If slot.name was another one before, set it back and nothing is lost: there is {listed}. Otherwise {anew}"


def refuse_standby(connection: psycopg.Connection[Any]) -> None:
    """Raises PrerequisiteError when the server is a standby: nothing can be made there, no publication and no slot."""
    row = connection.execute("select pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        raise PrerequisiteError("The server is a standby.", NAME_PRIMARY)


NAME_PRIMARY = "Name the primary in database.hostname: changes are read from primaries only."
"""The remedy for a configuration that names a standby."""


def decodes_behind_standbys(connection: psycopg.Connection[Any], slot: str) -> bool:
    """Whether the server sends no more of the log than standbys have confirmed (synchronized_standby_slots).

    It does so for slots that standbys keep, and not for copies of them.
    """
    row = connection.execute(
        "select coalesce((to_jsonb(s) ->> 'failover')::bool, false) and "
        "coalesce(current_setting('synchronized_standby_slots', true), '') <> '' "
        "from pg_replication_slots s where slot_name = %s",
        (slot,),
    ).fetchone()
    return row is not None and bool(row[0])
