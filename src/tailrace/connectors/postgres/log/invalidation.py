"""Reasons why a server has invalidated a replication slot, with advice. No I/O.

PostgreSQL documentation, "pg_replication_slots": `invalidation_reason` comes with version 17, `idle_timeout` among its
values with 18. Older servers say `lost` in `wal_status`, and version 16 has `conflicting` besides.
"""

from __future__ import annotations

from typing import Final

from tailrace.errors import PositionLost

REASON: Final = """case
  when to_jsonb(s) ->> 'invalidation_reason' is not null then to_jsonb(s) ->> 'invalidation_reason'
  when restart_lsn is null or wal_status is not distinct from 'lost' then
    case when to_jsonb(s) ->> 'conflicting' = 'true' then 'conflicting' else 'wal_removed' end
  else '' end"""
"""SQL expression: the reason of a row `s` of pg_replication_slots; '' if the slot can be read."""

# By reason: the reason as the rest of a sentence, and the advice.
_REASONS: Final = {
    "wal_removed": (
        "the server has removed log that it needs",
        "Raise max_slot_wal_keep_size, so that the log is kept for as long as no pipeline reads it.",
    ),
    "rows_removed": (
        "while the server was a standby, rows of the catalog were removed that it needs",
        "Set hot_standby_feedback = on, with a physical slot, on each standby that may take over.",
    ),
    "wal_level_insufficient": (
        "wal_level was lower than logical for a while",
        "Keep wal_level = logical, on the primary and on each standby that may take over.",
    ),
    "conflicting": (
        "while the server was a standby, rows of the catalog were removed that it needs, or wal_level was lowered",
        "Keep wal_level = logical, and set hot_standby_feedback = on, with a physical slot, on each standby.",
    ),
    "idle_timeout": (
        "nobody has read it for longer than idle_replication_slot_timeout",
        "Raise idle_replication_slot_timeout (0: no limit), or run the pipeline more often.",
    ),
}


def why(reason: str) -> str:
    """Return the text of a reason that REASON gave, as the rest of a sentence."""
    text = _REASONS[reason][0] if reason in _REASONS else "the server has invalidated it"
    return f"{text} ({reason})"


def advice(reason: str) -> str:
    """Return advice that keeps the server from invalidating the next slot for the same reason."""
    return _REASONS[reason][1] if reason in _REASONS else "pg_replication_slots has the reason."


def remedy(slot: str, reason: str) -> str:
    """Return the remedy: how to start anew, and the advice for `reason`."""
    quoted = slot.replace("'", "''")
    return (
        f"select pg_drop_replication_slot('{quoted}'); then delete the checkpoint for a new snapshot. {advice(reason)}"
    )


def invalidated(slot: str, reason: str) -> PositionLost:
    """Return the error of a slot that cannot be read any more."""
    return PositionLost(f"The replication slot {slot} cannot be read any more: {why(reason)}.", remedy(slot, reason))
