"""StatementHeartbeats: heartbeats with the statement that is run at each of them. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.server.connection import own_path
from tailrace.events.heartbeat import Heartbeats

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


class StatementHeartbeats(Heartbeats):
    """The clock that runs `heartbeat.action.query`; `connect` gives a connection in autocommit mode."""

    def __init__(self, config: Mapping[str, Any], connect: Callable[[], psycopg.Connection[Any]]) -> None:
        super().__init__(config["heartbeat.interval.ms"])
        self._query: str | None = config["heartbeat.action.query"]
        self._connect = connect

    def _act(self) -> None:
        import psycopg

        if not self._query:
            return
        try:
            connection = self._connect()
            with own_path(connection):
                connection.execute(self._query.encode())
        except psycopg.Error as error:
            reason = error.diag.message_primary or type(error).__name__
            log.warning("heartbeat.action.query fails: %s; the heartbeat goes on without it", reason)
