"""The phases of a run in log lines: what was done, how long it took, and a line while a phase takes long. Driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tailrace.monitoring.status import Describe, Status

log = logging.getLogger("tailrace")

SILENCE_S = 4.5
"""Seconds after which a line says that a phase is not over yet, and between two such lines."""


class Phases:
    """Logs the phases of a run, one at a time. A thread logs when a phase takes long; `close` ends the thread.

    `progress` and `idle` take Spark's reports about the query, on any thread: the first row ends the last phase of the
    start.
    """

    def __init__(self, describe: Describe, clock: Callable[[], float] = time.monotonic) -> None:
        self._describe = describe
        self._clock = clock
        self._began = clock()
        self._doing = ""
        self._since = self._told = self._began
        self._snapshot_since: float | None = None
        self._snapshot_events = 0
        self._is_delivering = False
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def watch(self) -> None:
        """Start the thread that logs phases that take long."""
        threading.Thread(target=self._watched, name="tailrace-phases", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watched(self) -> None:
        while not self._closed.wait(0.5):
            self.look()

    def look(self) -> None:
        """Log that the phase is not over yet, if the last line about it is old."""
        with self._lock:
            now = self._clock()
            if self._doing and now - self._told >= SILENCE_S:
                self._told = now
                log.info("Still %s: %.0f s so far.", self._doing, now - self._since)

    def begin(self, doing: str, since: float | None = None) -> None:
        """Begin a phase. `doing` ends a sentence, as in "starting Spark"; `since` is when it began, if earlier.

        Logs nothing, so SILENCE_S still counts from the line before.
        """
        with self._lock:
            self._doing = doing
            self._since = self._clock() if since is None else since

    def end(self, done: str) -> None:
        """End the phase, and log the sentence `done`, without its end, with the seconds."""
        with self._lock:
            self._told = self._clock()
            seconds, self._doing = self._told - self._since, ""
        log.info("%s, %.1f s.", done, seconds)

    @property
    def doing(self) -> str:
        """The phase that is not over; "" if there is none."""
        return self._doing

    @contextmanager
    def phase(self, doing: str, done: str, since: float | None = None) -> Iterator[None]:
        """Log `done` with the seconds of the block, unless it raises."""
        self.begin(doing, since)
        try:
            yield
        except BaseException:
            self._doing = ""
            raise
        self.end(done)

    def progress(self, record: Mapping[str, Any]) -> None:
        """Log the first delivered events and the end of the initial snapshot when a progress record shows them."""
        status = Status.of(record, self._describe)
        now = self._clock()
        if status.events and not self._is_delivering:
            self._is_delivering, self._doing = True, ""
            log.info(
                "The first batch is delivered: %s events, %.1f s after the start.",
                f"{status.events:,}",
                now - self._began,
            )
        self._snapshot_events += status.events
        if status.snapshot is not None and self._snapshot_since is None:
            self._snapshot_since = now
        elif status.snapshot is None and self._snapshot_since is not None:
            seconds, self._snapshot_since = now - self._snapshot_since, None
            log.info("The snapshot is complete: %s events, %.1f s.", f"{self._snapshot_events:,}", seconds)

    def idle(self) -> None:
        """Log once that there is nothing to deliver yet, unless events were delivered."""
        if not self._is_delivering:
            self._is_delivering = True
            self.end("There is nothing to deliver yet, so the run waits for changes")
