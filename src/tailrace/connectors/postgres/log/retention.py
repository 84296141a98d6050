"""The log that replication slots keep on the server: its size, the causes, and a forecast until the space is used.

Driver and planner. Reads only, except `drop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.protocol.position import LogPosition, sent
from tailrace.connectors.postgres.server.connection import connect
from tailrace.errors import PrerequisiteError
from tailrace.log.retention import LogRetention, SlotState, duration

if TYPE_CHECKING:
    import psycopg

_NOW = "case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end"
# Both settings are in MB, and the server keeps the larger number.
_LIMIT = """
select max(setting::int8) filter (where name = 'max_slot_wal_keep_size') as most,
  max(setting::int8) filter (where name = 'wal_keep_size') as least
from pg_settings where name in ('max_slot_wal_keep_size', 'wal_keep_size')
"""
_SLOTS = f"""
select s.slot_name, s.slot_type, s.database, s.active_pid, s.temporary,
  ({_NOW} - s.restart_lsn)::int8 as kept, ({_NOW} - s.confirmed_flush_lsn)::int8,
  coalesce(s.wal_status, ''), s.safe_wal_size::int8, {invalidation.REASON},
  extract(epoch from now() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8, ({_NOW} - '0/0')::int8,
  {{spilled}}
from pg_replication_slots s {{statistics}}
where %s::text is null or s.slot_name = %s
order by kept desc nulls last, 1
"""
_HAS_STATISTICS = 140_000
# The oldest transactions that have written: a logical slot keeps the log from the beginning of the oldest one on.
_WRITERS = """
select 'prepared', gid, coalesce(extract(epoch from now() - prepared), 0)::float8, owner::text, ''
from pg_prepared_xacts
union all
select 'session', pid::text, coalesce(extract(epoch from now() - xact_start), 0)::float8, usename::text,
  coalesce(state, '')
from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
order by 3 desc limit 3
"""
_FORECAST_SECONDS = 300.0
_LEAST_SAMPLES = 3
_MUCH = 64 << 20


@dataclass(frozen=True, slots=True)
class SlotLog:
    """A replication slot and the log that it keeps.

    - `retained` is the number of bytes of log that the server keeps for it. `kept` is the same, or None if the server
      keeps no log. `unconfirmed` is the number of bytes after the position that its reader has acknowledged.
    - `limit` is the number of retained bytes at which the server or the disk invalidates it, and `room` the bytes until
      then; None without a limit. `safe` is safe_wal_size, the server's own figure for `room`.
    - `reason` says why it cannot be read any more; "" if it can. `status` is its wal_status.
    - `idle_s` is the number of seconds since it was last read; None if unknown.
    - `spilled` are the bytes and the transactions that decoding has written to the server's disk; None if unknown.
    - `end_lsn` is the end of the server's log.
    """

    name: str
    kind: str
    database: str
    pid: int | None
    temporary: bool
    retained: int
    unconfirmed: int
    limit: int | None
    room: int | None
    reason: str
    idle_s: float | None
    kept: int | None = None
    status: str = ""
    safe: int | None = None
    spilled: tuple[int | None, int | None] = (None, None)
    end_lsn: int = 0

    @property
    def percent(self) -> float | None:
        """The retained bytes in percent of the limit; None without a limit."""
        return None if self.limit is None else 100 * self.retained / max(self.limit, 1)


def read(connection: psycopg.Connection[Any], config: Mapping[str, Any], name: str | None = None) -> list[SlotLog]:
    """Return the slot `name`, or all slots if it is None; slots that keep more log come first."""
    given = config["slot.limit.bytes"]
    most, least = connection.execute(_LIMIT.encode()).fetchone() or (-1, 0)
    own = None if most is None or most < 0 else max(most, least or 0) << 20
    limits = [limit for limit in (own, given or None) if limit is not None]
    limit = min(limits, default=None)
    has_statistics = connection.info.server_version >= _HAS_STATISTICS
    query = _SLOTS.format(
        spilled="t.spill_bytes, t.spill_txns" if has_statistics else "null, null",
        statistics="left join pg_stat_replication_slots t using (slot_name)" if has_statistics else "",
    )
    found = []
    for row in connection.execute(query.encode(), (name, name)).fetchall():
        slot, kind, database, pid, temporary, kept, unconfirmed, status, safe, reason, idle_s, end, *spilled = row
        retained = kept or 0
        room = None if limit is None else max(limit - retained, 0)
        if safe is not None and own is not None:
            room = safe if room is None else min(room, safe)
        found.append(
            SlotLog(
                slot, kind, database or "", pid, temporary, retained, unconfirmed or 0, limit, room, reason, idle_s,
                kept, status, safe, (spilled[0], spilled[1]), end,
            )
        )  # fmt: skip
    return found


def retention(config: Config) -> LogRetention:
    """Ask the server for all of its slots, for metrics; see LogRetention."""
    with closing(connect(config)) as connection:
        return reported(read(connection, config), config)


def reported(slots: Sequence[SlotLog], config: Mapping[str, Any], level: int | None = None) -> LogRetention:
    """Return the slots of a server in the form of metrics."""
    return LogRetention(
        tuple(
            SlotState(
                name=one.name,
                is_own=one.name == config["slot.name"],
                is_active=one.pid is not None,
                status=one.status,
                retained_bytes=one.kept,
                unconfirmed_bytes=one.unconfirmed if one.kind == "logical" else None,
                limit_bytes=one.limit,
                safe_bytes=one.safe,
                inactive_s=one.idle_s,
                # a physical slot that was never used keeps no log either
                invalidated=one.reason if one.kind == "logical" or one.status == "lost" else "",
                spilled_bytes=one.spilled[0],
                spilled_transactions=one.spilled[1],
            )
            for one in sorted(slots, key=lambda one: one.name)
        ),
        level=level,
        newest=log_end(max((one.end_lsn for one in slots), default=0)),
    )


def log_end(lsn: int) -> dict[str, Any] | None:
    """Return the end of the log in the form of a query's newest offset; None if it is unknown (0)."""
    return {"log": LogPosition(idle_lsn=sent(lsn)).to_json()} if lsn else None


def causes(connection: psycopg.Connection[Any], slot: SlotLog) -> Iterator[tuple[str, str]]:
    """Yield the causes that make a slot keep log, each with a remedy."""
    quoted = slot.name.replace("'", "''")
    if slot.reason:
        yield (
            f"it cannot be read any more: {invalidation.why(slot.reason)}",
            f"select pg_drop_replication_slot('{quoted}'); {invalidation.advice(slot.reason)}",
        )
        return
    if slot.pid is None:
        since = "" if slot.idle_s is None or slot.idle_s < 1 else f" for {duration(slot.idle_s)}"
        yield (
            f"nobody has read it{since}",
            f"Start its reader, or drop it if that is given up: tailrace slots FILE --drop {slot.name}.",
        )
        return
    if slot.kind == "logical" and slot.retained - slot.unconfirmed > max(slot.unconfirmed, _MUCH):
        for kind, name, seconds, user, state in connection.execute(_WRITERS.encode()).fetchall():
            long = duration(seconds)
            if kind == "prepared":
                yield (
                    f"the transaction {name} of {user} has been prepared for {long}, and was neither committed nor "
                    "rolled back",
                    "commit prepared or rollback prepared it.",
                )
            else:
                idle = ", which is idle in it," if state.startswith("idle in") else ""
                yield (
                    f"a transaction of {user} (process {name}){idle} has been open for {long}",
                    f"End it: select pg_terminate_backend({name}).",
                )
    if slot.unconfirmed > _MUCH:
        yield (
            f"its reader has yet to commit {size(slot.unconfirmed)}",
            "See whether its sink is slow or refuses records, and let it catch up.",
        )


class Rate:
    """The growth of a slot's log, over the samples of the last five minutes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, at: float, retained: int) -> None:
        """Note the retained bytes at a moment in seconds."""
        self._samples.append((at, retained))
        while self._samples[-1][0] - self._samples[0][0] > _FORECAST_SECONDS:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """The slope of the retained bytes; None with fewer than three samples."""
        if len(self._samples) < _LEAST_SAMPLES:
            return None
        times = [at for at, _ in self._samples]
        middle = sum(times) / len(times)
        mean = sum(kept for _, kept in self._samples) / len(times)
        spread = sum((at - middle) ** 2 for at in times)
        return sum((at - middle) * (kept - mean) for at, kept in self._samples) / spread if spread else None

    def seconds_left(self, slot: SlotLog) -> float | None:
        """Return the seconds until the slot's room is used at this rate; None if unknown, or if the log does not
        grow."""
        rate = self.bytes_per_s
        return None if rate is None or rate <= 0 or slot.room is None else slot.room / rate


def told(slot: SlotLog, rate: Rate) -> str:
    """Return the amount of log that a slot keeps, as a sentence without a full stop."""
    text = f"the replication slot {slot.name} keeps {size(slot.retained)} of log"
    if slot.limit is not None:
        text += f", {slot.percent:.0f} % of the {size(slot.limit)} that there is room for"
    per_s, left = rate.bytes_per_s, rate.seconds_left(slot)
    if per_s is not None and per_s >= 1:
        text += f", and {size(per_s)} more each second"
    if left is not None:
        text += f": it is full in {duration(left)}"
    return text


def drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a slot that nobody reads. Raises PrerequisiteError if the server refuses."""
    import psycopg

    try:
        connection.execute("select pg_drop_replication_slot(%s)", (name,))
    except psycopg.Error as error:
        raise PrerequisiteError(
            f"The server does not drop the slot {name}: {error.diag.message_primary or type(error).__name__}.",
            "Stop its reader first, and log in with a role that has REPLICATION.",
        ) from None


def size(number: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TB"
