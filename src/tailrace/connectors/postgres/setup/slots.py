"""The replication slot: finding, creating and dropping it, and checks of its position. Planner."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.log.endings import TWO_PHASE, SlotInUse, two_phase_refused
from tailrace.connectors.postgres.log.identity import ServerId, branched_off, flushed_end, identify
from tailrace.connectors.postgres.protocol.position import AcknowledgedLsn, LogPosition, confirmed, lsn_value
from tailrace.connectors.postgres.server.connection import Connect
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.errors import PrerequisiteError
from tailrace.log.contracts import Setback
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    import psycopg


log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A slot that was just created: its start LSN, and the snapshot that shows exactly the commits before it.

    The snapshot lasts as long as the replication connection that created the slot stays idle.
    """

    consistent_lsn: AcknowledgedLsn
    snapshot: str


STATE = f"select active_pid, {invalidation.REASON} from pg_replication_slots s where slot_name = %s"


def find_slot(connection: psycopg.Connection[Any], config: Mapping[str, Any]) -> AcknowledgedLsn | None:
    """Return the slot's confirmed LSN; None if there is no such slot.

    Raises PrerequisiteError for a slot of another database, plugin or kind, and for one with two_phase.
    """
    name = config["slot.name"]
    row = connection.execute(
        f"select plugin, slot_type, database, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, {TWO_PHASE} "
        "from pg_replication_slots s where slot_name = %s".encode(),
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, kind, database, stands, has_two_phase = row
    if kind != "logical" or plugin != "pgoutput" or database != config["database.dbname"]:
        raise PrerequisiteError(
            f"The replication slot {name} is a {kind} slot of plugin {plugin} in database {database}; a logical "
            f"slot of pgoutput in {config['database.dbname']} is needed.",
            "Choose another slot.name, or drop that slot.",
        )
    if has_two_phase:
        raise two_phase_refused(name)
    return confirmed(int(stands))


def clear_lost_position(
    connection: psycopg.Connection[Any],
    config: Mapping[str, Any],
    position: LogPosition,
    server: ServerId | None,
    reached_lsn: int,
    connect: Connect,
) -> str:
    """Drop the slot if the server has invalidated it, so that it can be created anew.

    Return why the log cannot be read from `position`, as the beginning of a sentence; "" if it can. The log of `server`
    was delivered up to `reached_lsn`, which after a snapshot is ahead of the position.
    """
    name = config["slot.name"]
    stands = find_slot(connection, config)
    if stands is None:
        return f"the replication slot {name} is gone"
    row = connection.execute(STATE, (name,)).fetchone()
    if row is not None and row[1]:
        drop(connection, name)
        return f"the replication slot {name} cannot be read any more: {invalidation.why(row[1])}"
    if stands > position.safe_lsn:
        return f"the replication slot {name} stands ahead of the checkpoint"
    if flushed_end(connection) < position.safe_lsn:
        return "the server's log ends before the checkpoint"
    if server is not None:
        with closing(connect(config, replication=True)) as replication:
            reason = branched_off(replication, server, reached_lsn)
            if reason:
                return f"the server's log is not the one that was read: {reason}"
    return ""


def await_free(connection: psycopg.Connection[Any], config: Mapping[str, Any], runtime: Runtime) -> str:
    """Wait until no other client reads the slot, within `slot.max.retries` and `slot.retry.delay.ms`.

    Return the reason for which the server has invalidated the slot; "" if it can be read or created. Raises SlotInUse
    if another process keeps reading it.
    """
    name = config["slot.name"]
    failures = 0
    while True:
        holder, reason = connection.execute(STATE, (name,)).fetchone() or (None, "")
        if holder is None or reason:
            return str(reason)
        retries, longest = config["slot.max.retries"], config["slot.retry.delay.ms"] / 1000
        busy = Setback("slot", "", retries, 0.2, longest, SlotInUse(name, holder))
        if 0 <= busy.limit <= failures:
            raise busy.error
        pause = busy.pause(failures)
        log.warning("the replication slot %s is in use by process %d; trying again in %.1f s", name, holder, pause)
        runtime.sleep(pause)
        failures += 1


@dataclass(slots=True)
class SlotStart:
    """The start of a query without checkpoint: the position of its slot, in the log of `server`.

    `snapshot` was exported by the slot's creation and lasts until `close`; None for a slot that existed before.
    """

    position: LogPosition
    server: ServerId
    snapshot: str | None
    _replication: psycopg.Connection[Any]

    def close(self) -> None:
        self._replication.close()


def slot_start(connection: psycopg.Connection[Any], config: Mapping[str, Any], connect: Connect) -> SlotStart:
    """Return the start at the slot, which is created if it is missing. Raises as `find_slot` and `create_slot`."""
    replication = connect(config, replication=True)
    try:
        server = identify(replication)
        stands = find_slot(connection, config)
        if stands is not None:
            return SlotStart(LogPosition(idle_lsn=stands), server, None, replication)
        created = create_slot(replication, config["slot.name"], config["slot.failover"])
        return SlotStart(LogPosition(idle_lsn=created.consistent_lsn), server, created.snapshot, replication)
    except BaseException:
        replication.close()
        raise


def drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a slot if it exists."""
    connection.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (name,)
    )


def create_slot(
    replication: psycopg.Connection[Any], name: str, failover: bool = False, *, temporary: bool = False
) -> NewSlot:
    """Create the slot through a replication connection, and export its snapshot.

    With `failover` standbys keep the slot; a `temporary` slot ends with the connection. Raises PrerequisiteError if the
    server refuses (wal_level, free slots, rights) or is too old for `failover`.
    """
    import psycopg

    version = replication.info.server_version
    if failover and version < 170000:
        raise PrerequisiteError(
            f"slot.failover needs PostgreSQL 17; this server is version {version // 10000}.", "Unset slot.failover."
        )
    options = "EXPORT_SNAPSHOT" if version < 150000 else "(SNAPSHOT 'export')"
    if failover:
        options = "(SNAPSHOT 'export', FAILOVER)"
    try:
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        row = replication.execute(f"CREATE_REPLICATION_SLOT {quoted(name)} {kind} pgoutput {options}".encode())
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
            # the session has ended, which says nothing about the slot
            raise
        raise PrerequisiteError(
            f"The replication slot {name} cannot be created: {error.diag.message_primary or error}.",
            "Set wal_level=logical, keep max_replication_slots above the slots in use, and give the user REPLICATION.",
        ) from None
    found = row.fetchone()
    assert found is not None
    return NewSlot(confirmed(lsn_value(found[1])), found[2])


def warn_of_failover(connection: psycopg.Connection[Any], slot: str) -> str:
    """Log and return a warning if the slot exists and was created without slot.failover; else return ""."""
    row = connection.execute(
        "select to_jsonb(s) ->> 'failover' from pg_replication_slots s where slot_name = %s", (slot,)
    ).fetchone()
    if row is None or row[0] == "true":
        return ""
    text = f"the replication slot {slot} was made without slot.failover: no standby keeps it"
    log.warning("%s", text)
    return text
