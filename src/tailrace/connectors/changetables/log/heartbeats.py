"""StatementHeartbeats: heartbeats with the statement that is run at each of them. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.errors import ConnectionFailed, TailraceError
from tailrace.events.heartbeat import Heartbeats

log = logging.getLogger("tailrace")


class StatementHeartbeats(Heartbeats):
    """The clock that runs `heartbeat.action.query` by `execute`. Raises ConnectionFailed when the session is gone."""

    def __init__(self, config: Mapping[str, Any], execute: Callable[[str], None]) -> None:
        super().__init__(config["heartbeat.interval.ms"])
        self._query: str | None = config["heartbeat.action.query"]
        self._execute = execute

    def _act(self) -> None:
        if not self._query:
            return
        try:
            self._execute(self._query)
        except ConnectionFailed:
            raise
        except TailraceError as error:
            log.warning("heartbeat.action.query fails: %s The heartbeat goes on without it.", error.message)
