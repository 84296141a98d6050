"""Retrying: an engine that repeats calls while its server is unreachable. Planner."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tailrace.config import Config
from tailrace.errors import ConnectionFailed
from tailrace.log.contracts import O, Offset, P, ReaderState, Result, T, Task
from tailrace.log.engine import LogEngine

log = logging.getLogger("tailrace")

# The first pause before a retry, in s; each further pause is twice as long, up to the option's value.
_FIRST_PAUSE = 0.2


class Retrying(LogEngine[O, P, T]):
    """Mixin for a connector's engine, placed before its own class.

    A failed call of an engine changes nothing. So once a call has succeeded, an unreachable server is asked again:
    `errors.max.retries` times in a row (-1: for ever), with pauses that grow up to
    `retriable.restart.connector.wait.ms`. The first call raises at once, so that a wrong address shows at the start.
    """

    def __init__(self, config: Config, *given: Any) -> None:
        super().__init__(config, *given)
        self._limit: int = config["errors.max.retries"]
        self._longest: float = config["retriable.restart.connector.wait.ms"] / 1000
        self._patience: float = config["poll.interval.ms"] / 1000
        self._has_answered = False
        self._ends = False
        self._failures = self._setbacks = 0
        # time of the next try
        self._due = 0.0

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        """Return `start` while the server is unreachable, so that the query can be stopped meanwhile.

        A query that ends at the present waits instead: it would take `start` for its end.
        """
        while True:
            left = self._due - self._runtime.monotonic()
            if left > 0 and not self._ends:
                self._runtime.sleep(min(left, self._patience))
                return start
            self._runtime.sleep(max(left, 0))
            try:
                return self._answered(super().latest_offset(start, max_rows, max_bytes))
            except ConnectionFailed as error:
                self._note(error)

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        return self._until_answered(functools.partial(super().partitions, start, end))

    def stop_at_present(self) -> None:
        self._until_answered(super().stop_at_present)
        self._ends = True

    def reading(self) -> ReaderState:
        state = super().reading()
        setbacks = {**state.setbacks, "planning": self._setbacks} if self._setbacks else state.setbacks
        return replace(state, is_connected=state.is_connected and not self._failures, setbacks=setbacks)

    def _until_answered(self, call: Callable[[], Result]) -> Result:
        while True:
            self._runtime.sleep(max(self._due - self._runtime.monotonic(), 0))
            try:
                return self._answered(call())
            except ConnectionFailed as error:
                self._note(error)

    def _answered(self, found: Result) -> Result:
        self._has_answered, self._failures, self._due = True, 0, 0.0
        return found

    def _note(self, error: ConnectionFailed) -> None:
        """Set the time of the next try; raise `error` if there is none."""
        if not self._has_answered or error.is_lasting or 0 <= self._limit <= self._failures:
            raise error
        pause = min(self._longest, _FIRST_PAUSE * 2.0 ** min(self._failures, 30))
        self._failures += 1
        self._setbacks += 1
        self._due = self._runtime.monotonic() + pause
        log.warning("planning a batch failed (%s); trying again in %.1f s", error.message, pause)
