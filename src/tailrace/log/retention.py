"""LogRetention: what a server keeps of its log, for whom, and for how long. Planner.

A connector's descriptor names the function that asks for it, in `retention`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.config import Config


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot of the server; None is unknown, or unbounded.

    `is_own` is True for the slot of this pipeline. `retained_bytes` are the bytes of log that the server keeps for the
    slot, `unconfirmed_bytes` those that its reader has not confirmed, `limit_bytes` the most that the server keeps for
    it, `safe_bytes` those that may still be written before it loses log. `status` is the server's word: reserved,
    extended, unreserved or lost, `invalidated` the reason why the slot is lost, "" if it is not. `inactive_s` are
    seconds since its reader left. `spilled_bytes` and `spilled_transactions` count what decoding has written to the
    server's disk.
    """

    name: str
    is_own: bool
    is_active: bool
    status: str
    retained_bytes: int | None = None
    unconfirmed_bytes: int | None = None
    limit_bytes: int | None = None
    safe_bytes: int | None = None
    inactive_s: float | None = None
    invalidated: str = ""
    spilled_bytes: int | None = None
    spilled_transactions: int | None = None


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The slots of a server, or the ages of its log.

    `oldest_s` is the time of the oldest change that the log still has, in s since 1970, `kept_s` the seconds for which
    the server keeps changes; None if the server does not tell. `level` says what the pipeline does about its slot: 0
    nothing, 1 it has warned, 2 incremental snapshots wait, 3 it ends; None if it does not watch the slot.
    """

    slots: tuple[SlotState, ...] = ()
    oldest_s: float | None = None
    kept_s: float | None = None
    level: int | None = None


Retaining = Callable[[Config], LogRetention]
"""Asks a server, over a connection of its own. Raises TailraceError or the driver's errors."""
