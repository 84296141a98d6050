"""Requests of the pipeline to its planner to read tables again, kept until snapshots have filled the tables. Driver.

A request is a signal for an incremental snapshot. It is written to the table of positions before it is sent. It stays
there until the offset of a batch shows that the previous batch had the snapshot's last rows. Until then, no moment is
whole. After a restart, a request is sent again if no offset shows its snapshot as running. A snapshot that is taken
twice does no harm.

A table that the source does not have any more cannot be read. Its request then waits without a signal, and moments are
whole again. The request is sent when a change of the table arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError
from tailrace.sinks.tables.positions import Positions, Request
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import Signal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("tailrace")


class Rereads:
    """The requests of one sink, kept in its table of positions.

    `send` sends a signal to the planner. `captured` returns the schemas and names of the tables that the source has.
    """

    def __init__(
        self,
        positions: Positions,
        send: Callable[[Signal], object],
        captured: Callable[[], Container[tuple[str, str]]],
    ) -> None:
        self._positions, self._send, self._captured = positions, send, captured
        self._tables: dict[str, tuple[str, str]] = {}
        self._session: SparkSession | None = None
        # ids of signals that this process has sent, that an offset has shown, and whose last rows the last batch had
        self._sent: set[str] = set()
        self._going: set[str] = set()
        self._done: set[str] = set()
        self._lock = Lock()

    def know(self, source: str, schema: str, table: str) -> None:
        """Note the schema and the name of a source table that has rows in the batch. Call it after `begin`."""
        self._tables[source] = schema, table
        waiting = self._positions.rereads.get(source)
        if waiting is not None and not waiting.signal:
            self.ask(source, "changes of it come again")

    def begin(self, session: SparkSession, offset: Callable[[], Mapping[str, Any]]) -> None:
        """Begin a batch that ends at `offset`. Call it after `Positions.open`.

        Requests whose tables were read are removed. Requests of an earlier process are sent again if the offset does
        not show them.
        """
        self._session = session
        before = self._positions.rereads
        if not before:
            return
        progress = Progress.from_json(offset().get("progress", {}))
        going, left = set(_going(progress)), dict(before)
        for source, request in before.items():
            name = request.signal
            if not name:
                continue
            if name in going:
                self._going.add(name)
                # If these rows are read again, the next offset contains the table again.
                is_last = f"{request.schema}.{request.table}" in progress.done
                (self._done.add if is_last else self._done.discard)(name)
            elif name in self._done:
                log.warning("%s has been read again", source)
                del left[source]
            elif name in self._going:
                self._going.remove(name)
                if self._is_gone(request):
                    log.warning(
                        "%s is not read again, because it is not among the captured tables any more: its copy lacks "
                        "values; remedy: remove the copy. If a change of the table comes, it is read",
                        source,
                    )
                    left[source] = replace(request, signal="")
                    continue
                log.warning(
                    "the snapshot that %s needs was given up; remedy: read it by a snapshot (signal execute-snapshot). "
                    "The next start asks for it again",
                    source,
                )
            elif name not in self._sent:
                left[source] = Request.new(request.schema, request.table)
        if left != before:
            self._positions.keep_rereads(session, left)
            for source, request in left.items():
                if request.signal and request != before[source]:
                    self._ask(request)

    def ask(self, source: str, reason: str) -> None:
        """Ask for a snapshot of a table. The snapshot begins after this batch. Callable from any thread."""
        with self._lock:
            known = self._positions.rereads
            if source in known and known[source].signal in self._sent - self._going:
                # The snapshot has not begun yet.
                return
            assert self._session is not None
            request = Request.new(*self._tables[source])
            log.warning("%s is read again by a snapshot: %s", source, reason)
            self._positions.keep_rereads(self._session, {**known, source: request})
            self._ask(request)

    def _is_gone(self, request: Request) -> bool:
        """Return True if the source has no such table; False if the query for its tables fails."""
        try:
            return (request.schema, request.table) not in self._captured()
        except TailraceError as error:
            log.warning("the captured tables cannot be listed: %s", error)
            return False

    def _ask(self, request: Request) -> None:
        self._send(request.message())
        self._sent.add(request.signal)


def _going(progress: Progress) -> Iterator[str]:
    """Yield the ids of the pipeline's own signals whose tables are being read or wait to be read."""
    for state in (progress.state, progress.before):
        yield from () if state is None else (one.reread for one in state.collections)
    yield from (one.collection.reread for one in progress.held)
