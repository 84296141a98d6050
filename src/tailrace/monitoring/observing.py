"""`tailrace.observe`: the metrics, status and health of a query that a PySpark program has started. Driver."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tailrace.errors import ConfigError, TailraceError
from tailrace.monitoring.exposition import exposed
from tailrace.monitoring.failures import recognise
from tailrace.monitoring.health import ALL, Health
from tailrace.monitoring.listener import listen
from tailrace.monitoring.monitor import BEAT_SECONDS, described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.monitoring.processes import jvm_lost, process_lost
from tailrace.monitoring.server import HttpServer

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_WRITES = "Processing new data"
"""The message in a query's status while a batch is planned and written."""


class ObservedQuery:
    """A query under observation. A context manager; `close` ends the observation, not the query."""

    def __init__(self, query: StreamingQuery, observation: Observation, health: Health) -> None:
        self._query, self._observation, self._health = query, observation, health
        self._server: HttpServer | None = None
        self._closed = threading.Event()
        self._remove = listen(query_session(query), (observation.update,), observation.tick, self._end, str(query.id))
        if query.lastProgress is not None:
            observation.update(_parsed(query.lastProgress))
        pace_s = min(BEAT_SECONDS, health.timeout_s / 4)
        threading.Thread(target=self._beat, args=(pace_s,), name="tailrace-beat", daemon=True).start()

    def status(self) -> dict[str, Any]:
        """Return the state of the query, as `tailrace status --json` prints it."""
        return self._observation.state()

    def metrics(self) -> str:
        """Return the metrics as text for Prometheus."""
        return exposed(self._observation)[0].decode()

    def health(self) -> dict[str, Any]:
        """Return the health of the query, as `/health` answers it."""
        return self._health.answer(ALL)[1]

    def serve(self, port: int = 0, host: str = "127.0.0.1", *, token: str | None) -> str:
        """Start an HTTP server with page, status, metrics and health; return its address.

        With `port` 0 the system chooses one. Requests need `token`; None demands none. Raises ConfigError if the port
        cannot be opened, or if the query has a server already.
        """
        if self._server is not None:
            raise ConfigError("The query has an HTTP server already.", "Close the observation first.")
        self._server = HttpServer(self._observation, self._health, host=host, port=port, token=token)
        self._server.start()
        return self._server.address

    def close(self) -> None:
        """End the observation and the server. May be called twice."""
        self._closed.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._remove()

    def _beat(self, pace_s: float) -> None:
        """Note every `pace_s` seconds that a batch is being written, or that the planner has tried again to reach the
        database, while the query runs; note a lost JVM."""
        while not self._closed.wait(pace_s) and self._observation.ending is None:
            try:
                message = self._query.status["message"]
            except Exception as error:
                lost = jvm_lost(error)
                if lost is not None:
                    self._observation.end(lost)
                continue
            # Spark asks the planner for the batch's tasks under the same message, and a planner may stand still
            if self._health.has_tried_again() or (message == _WRITES and self._health.has_planner()):
                self._observation.beat()

    def _end(self, text: str) -> None:
        self._observation.end(self._failure(text) if text else None)

    def _failure(self, text: str) -> TailraceError:
        found = recognise(text)
        if found is None and hasattr(self._query, "_jsq"):
            found = process_lost(self._query)
        return found or TailraceError("The query has failed.", "Its exception says why.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def observe(query: StreamingQuery, *, live_timeout_s: float = 60.0) -> ObservedQuery:
    """Observe a running query of a tailrace source, from now on.

    The numbers of planner and tasks need a driver on the planner's host, as in classic PySpark; with Spark Connect only
    the numbers of Spark's progress are known. After `live_timeout_s` seconds without a sign of life the query counts as
    stuck. A batch that is being written is a sign of life, as long as the planner is not stuck.
    """
    observation = Observation(described, PipelineNames(pipeline=query.name or ""))
    return ObservedQuery(query, observation, Health(observation, live_timeout_s))


def query_session(query: StreamingQuery) -> Any:
    """Return the session of a query."""
    from pyspark.sql import SparkSession

    found = getattr(query, "_session", None) or SparkSession.getActiveSession()
    if found is None:
        raise TailraceError("The query's session is not known.", "Call observe in the program that started the query.")
    return found


def _parsed(progress: Any) -> Any:
    import json

    return json.loads(progress.json) if hasattr(progress, "json") else progress
