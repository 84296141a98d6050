"""Heartbeats: when a batch gets one, and the statement that is run with it. Planner.

A heartbeat is part of the offset that ends its batch, so a batch that is planned again after a crash has the same
one. The statement is run when the heartbeat is decided on, and not again at such a repetition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


class Heartbeats:
    """The clock of `heartbeat.interval.ms`; 0 means none. `connect` gives a connection in autocommit mode."""

    def __init__(self, interval_ms: int, query: str | None, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._interval = interval_ms / 1000
        self._query = query
        self._connect = connect
        self._last = time.monotonic()
        self.runs = 0

    def remaining(self) -> float:
        """Seconds until the next heartbeat is due, 0 when it is; infinite without heartbeats."""
        if not self._interval:
            return float("inf")
        return max(0.0, self._last + self._interval - time.monotonic())

    def beat(self, previous_ms: int) -> int:
        """The time of the heartbeat that is due, in ms since 1970, later than `previous_ms`; runs the statement."""
        self._last = time.monotonic()
        if self._query:
            self._act(self._query)
        return max(int(time.time() * 1000), previous_ms + 1)

    def _act(self, query: str) -> None:
        import psycopg

        try:
            self._connect().execute(query.encode())
            self.runs += 1
        except psycopg.Error as error:
            reason = error.diag.message_primary or type(error).__name__
            log.warning("heartbeat.action.query fails: %s; the heartbeat goes on without it", reason)
