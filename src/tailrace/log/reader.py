"""LogReader: a log that a thread reads ahead, one per planner, and the spool that the thread fills. Planner."""

from __future__ import annotations

import logging
from typing import Generic

from tailrace.errors import SpoolFailed
from tailrace.log.contracts import (
    NO_LIMITS,
    Committed,
    Limits,
    LogFeed,
    O,
    OpenLog,
    P,
    ReaderState,
    Setback,
    Step,
    Taken,
)
from tailrace.log.spool import Spool
from tailrace.process.runtime import THREADS, Runtime, Thread

log = logging.getLogger("tailrace")

# The longest time that a refresh takes, in s.
REFRESH_SECONDS = 0.02
# Seconds between two answers to the server while the spool is full.
REST_SECONDS = 0.2


class LogReader(OpenLog[O, P, P], Generic[O, P, Committed, Taken]):
    """An open log that a thread reads: it puts what `feed` returns after `start` into a spool until it is closed.

    A target is a position. A connector's subclass adds what is committed, when an idle position is far, and the
    windows, offset and tasks of a batch.

    The spool holds up to `memory_limit` bytes in memory and `disk_limit` more on disk; while it is full, nothing is
    read. A lost session is followed by another, as the feed says. A lasting error ends the thread. The calls that need
    unread log raise it, but only once everything read has been planned, because the server may no longer have that part
    of the log. All methods are for the planner's main thread.
    """

    def __init__(
        self,
        feed: LogFeed[P, Committed, Taken],
        start: P,
        *,
        memory_limit: int,
        disk_limit: int,
        name: str = "tailrace-reader",
        runtime: Runtime = THREADS,
    ) -> None:
        self._feed = feed
        self._name = name
        self._runtime = runtime
        self.spool: Spool[P, Taken] = Spool(start, memory_limit, disk_limit, runtime)
        # the spool's version that the latest plan has seen, and whether it has seen its target
        self._seen, self._has_seen = 0, False
        # the number of calls of `refresh`, the number of answered calls, and whether a caller waits for a change
        self._asked = self._answered = 0
        self._is_awaited = False
        # True once a warning has said that the disk refuses data
        self._has_warned = False
        # True once a session has found the same log that was read before
        self._has_begun = False
        self._failure: BaseException | None = None
        self._is_connected = False
        self._setbacks: dict[str, int] = {}
        self._stop = runtime.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._runtime.start(self._run, self._name)

    def close(self) -> None:
        """Stop the thread and its session; wait at most a few seconds. May be called twice."""
        self._stop.set()
        self._feed.hurry()
        self.spool.wake()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(5)

    @property
    def has_failed(self) -> bool:
        """True if nothing more will be read."""
        return self._failure is not None

    def reading(self) -> ReaderState:
        spool = self.spool
        return ReaderState(
            self._is_connected, dict(self._setbacks), spool.put_bytes, spool.size, spool.limit,
            transactions=spool.transactions, transaction_bytes=spool.transaction_bytes,
            planned_read_s=spool.planned_read_s,
        )  # fmt: skip

    def check(self) -> None:
        """Raise the error that ended the thread, once everything that it read has been released."""
        failure = self._failure
        if failure is not None and not len(self.spool):
            raise failure

    def has_read(self, target: P) -> bool:
        """Return True if everything up to `target` has been read.

        Always False before the first session: the log of a server that was restored or promoted may end before the
        position that was read, and any target in it would seem to be reached.
        """
        return self._has_begun and self._feed.has_read(target)

    def refresh(self) -> None:
        """Fetch into the spool what the server has sent until now, if that takes only a moment."""
        seen = self.spool.version
        self._asked += 1
        self._feed.hurry()
        deadline = self._runtime.monotonic() + REFRESH_SECONDS
        while (
            self._feed.is_prompt
            and not self.spool.full
            and self._answered < self._asked
            and self._runtime.monotonic() < deadline
        ):
            self.spool.wait(deadline - self._runtime.monotonic(), seen)
            seen = self.spool.version

    def wait(self, seconds: float) -> None:
        self._wait(seconds, self._seen)

    def wait_for_next(self, seconds: float) -> None:
        """Wait until something is read from now on, at most `seconds`. Raises the error that ended the thread."""
        self._wait(seconds, self.spool.version)

    def _wait(self, seconds: float, since: int) -> None:
        """Wait until the spool's version differs from `since`, at most `seconds`.

        Meanwhile the reader puts changes into the spool at once instead of gathering them. Raises the error that ended
        the thread.
        """
        self._raise()
        self._is_awaited = True
        self._feed.hurry()
        self.spool.wait(seconds, since)
        self._is_awaited = False
        self._raise()

    def is_filling(self, max_bytes: int, target: P | None = None) -> bool:
        self._seen = self.spool.version
        is_behind = self._feed.is_behind or (target is not None and not self.has_read(target))
        return is_behind and not self.spool.full and not self.has_failed and 2 * self.spool.size < max_bytes

    def plan(self, start: P, limits: Limits, target: P | None) -> P:
        # both are read first, so that nothing that is read during the plan counts as seen
        self._seen = self.spool.version
        self._has_seen = target is not None and self.has_read(target)
        return self.plan_upto(start, target, limits)

    def has_seen(self, target: P) -> bool:
        return self._has_seen

    def whole(self, start: P) -> P:
        return self.plan_upto(start, None)

    def plan_upto(self, start: P, upto: P | None, limits: Limits = NO_LIMITS) -> P:
        """Call `Spool.plan`. If a single unfinished transaction fills the spool, return a cut in it.

        Without `upto`, raises the error that ended the thread if there is nothing to deliver.
        """
        # read the failure first: everything read before it is in the spool
        failure = self._failure
        end = start
        if limits.enough_bytes is not None:
            end = self.spool.plan(start, limits.rows, min(limits.enough_bytes, limits.bytes), upto, whole=True)
        if end == start:
            end = self.spool.plan(start, limits.rows, limits.bytes, upto)
        if end == start and self.spool.full:
            end = self.spool.plan(start, limits.rows, limits.bytes, upto, cut=True)
        if end == start and upto is None and failure is not None:
            raise failure
        return end

    def take(self, start: P, end: P) -> list[Taken]:
        """Return the rows in `(start, end]`, waiting until they have been read (a replay after a restart).

        The spool accepts them whatever its limits are. Raises SpoolFailed, or the error that ended the thread.
        """
        with self.spool.requiring(end):
            while True:
                # read both first, so that nothing read between two calls is missed
                failure, seen = self._failure, self.spool.version
                if self.spool.has_reached(end) or self._feed.has_passed(end):
                    return self.spool.take(start, end)
                if failure is not None:
                    raise failure
                self.spool.wait(1.0, seen)

    def release(self, position: Committed) -> None:
        """Release everything up to `position`, which Spark has committed, and let the server discard it in time."""
        self.spool.release(self._feed.acknowledge(position))

    def idle_position(self, start: P) -> P:
        """Return the position up to which the server has sent no captured change since `start`; `start` if rows wait.

        Committing that position lets the server discard log that only tables which are not captured have filled.
        """
        # first how far the log has been read, then the rows: the rows must be known at least as far
        moved = self._feed.reached(start)
        return start if self.spool.holds_rows_after(start) else moved

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the reader's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read_on()
        except BaseException as error:
            # the planner must not wait for a thread that is gone, whatever ended it
            self._failure = self._feed.setback(error).error
            self.spool.wake()

    def _read_on(self) -> None:
        failures: dict[str, int] = {}
        while not self._stop.is_set():
            before = self._feed.progress
            try:
                self._session()
            except Exception as error:
                if self._stop.is_set():
                    return
                if self._feed.progress > before:
                    failures.clear()
                setback = self._setback(error)
                failed = failures.get(setback.kind, 0)
                if 0 <= setback.limit <= failed:
                    raise
                failures[setback.kind] = failed + 1
                self._setbacks = {**self._setbacks, setback.kind: self._setbacks.get(setback.kind, 0) + 1}
                pause = setback.pause(failed)
                log.warning("%s; trying again in %.1f s", setback.text, pause)
                self._stop.wait(pause)

    def _setback(self, error: Exception) -> Setback:
        setback = self._feed.setback(error)
        return setback.of_disk() if isinstance(error, SpoolFailed) else setback

    def _session(self) -> None:
        """Read until closed. An error ends the session."""
        feed, spool = self._feed, self.spool
        try:
            feed.open()
            self._is_connected = True
            if not self._has_begun:
                self._has_begun = True
                spool.wake()
            while not self._stop.is_set():
                seen = spool.version
                if spool.full:
                    self._rest(seen)
                    continue
                asked, before = self._asked, feed.progress
                step = feed.read(self._answered < asked, self._is_hurried)
                if step is not None:
                    self._keep(step)
                if self._answered < asked or feed.progress > before:
                    self._answered = asked
                    spool.wake()
        finally:
            self._is_connected = False
            feed.close()

    def _is_hurried(self) -> bool:
        return self._answered < self._asked or self._is_awaited

    def _rest(self, seen: int) -> None:
        """Answer the server, then wait a while until the spool's version differs from `seen`."""
        self._feed.rest()
        self.spool.wait(REST_SECONDS, seen)

    def _keep(self, step: Step[P, Taken]) -> None:
        """Keep a step's run, then tell the feed.

        If the disk refuses the run, wait as for a full spool, until Spark has committed earlier runs. Raises
        SpoolFailed if Spark cannot commit anything, because a batch being replayed needs the run.
        """
        while True:
            try:
                self.spool.put(step.run, step.is_wanted)
                self._feed.keep(step)
                return
            except SpoolFailed as error:
                if self._stop.is_set() or self.spool.is_required:
                    raise
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("%s Reading goes on as fast as Spark commits what waits.", error)
            seen = self.spool.version
            while self.spool.full and not self._stop.is_set():
                self._rest(seen)
                seen = self.spool.version
