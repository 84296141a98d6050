"""Obedience: applies signals to the progress of a query. Planner; no I/O of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tailrace.config.filters import table_name
from tailrace.snapshot import signals
from tailrace.snapshot.incremental import Collection, IncrementalSnapshot, Notification, Notifications, requested
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import (
    Action,
    ExecuteSnapshot,
    LogMessage,
    MalformedSignal,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
    shown,
)

LONGEST_MESSAGE = 10_000
"""The most characters that a signal puts into one line of the log."""

log = logging.getLogger("tailrace")


MOST_WAITING = 100_000
"""The most tables that wait to be read: they are in every offset."""


class SignalHandler:
    """Handles signals. `captured` lists the tables that may be read, in the order of their names.

    `refuses` returns the reason to refuse a condition (see `conditions.refusal`). `local` converts a table name in a
    signal to the form of `captured`. A signal that cannot be handled for any reason is reported, without its data, and
    ignored: it stays in the log, and would end the query again at each of its starts.
    """

    def __init__(
        self,
        captured: Callable[[], Sequence[tuple[str, str]]],
        notifications: Notifications,
        refuses: Callable[[str], str],
        local: Callable[[str], str] = str,
    ) -> None:
        self._captured = captured
        self._notifications = notifications
        self._refuses = refuses
        self._local = local

    def handle(
        self, signal: Signal, position: str, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        """Return the progress, and the state before its window, after `signal`; and the notifications.

        `position` is shown by a signal of the type `log`. Raises the errors of `captured`: these are not the signal's
        fault, and the signal comes again.
        """
        action = self._read(signal)
        if action is None:
            return progress, before, []
        tables: Sequence[tuple[str, str]] = ()
        if isinstance(action, ExecuteSnapshot) and action.collections:
            tables = self._captured()
        try:
            return self._carry_out(action, position, tables, progress, before)
        except MalformedSignal as fault:
            log.warning("signal %s is ignored: %s", action.id, fault)
        except Exception as error:
            # the error's text may contain the signal's data
            log.warning("signal %s is ignored: it cannot be carried out (%s)", action.id, type(error).__name__)
        return progress, before, []

    def _read(self, signal: Signal) -> Action | None:
        try:
            action = signals.read(signal)
            if isinstance(action, ExecuteSnapshot):
                conditions = tuple((self._local(entry), sql) for entry, sql in action.conditions)
                return replace(action, collections=tuple(map(self._local, action.collections)), conditions=conditions)
            if isinstance(action, StopSnapshot):
                return replace(action, collections=tuple(map(self._local, action.collections)))
            return action
        except MalformedSignal as fault:
            log.warning("a signal is ignored: %s", fault)
        except Exception as error:
            log.warning("a signal is ignored: it cannot be read (%s)", type(error).__name__)
        return None

    def _carry_out(
        self,
        action: Action,
        position: str,
        tables: Sequence[tuple[str, str]],
        progress: Progress,
        before: IncrementalSnapshot | None,
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        if isinstance(action, ExecuteSnapshot):
            return self._execute(action, tables, progress, before)
        if isinstance(action, LogMessage):
            log.warning("%s", shown(action.message.replace("{}", position), LONGEST_MESSAGE))
        elif isinstance(action, StopSnapshot) and progress.state is not None:
            left = progress.state.without(action.collections)
            before = None if before is None else before.without(action.collections)
            kept = () if left is None else left.collections
            gone = [one for one in progress.state.collections if one not in kept]
            note = self._notifications.stopped(progress.state, gone if kept else ())
            return replace(progress, state=left), before, [note] if gone else []
        elif isinstance(action, PauseSnapshot | ResumeSnapshot) and progress.state is not None:
            paused = isinstance(action, PauseSnapshot)
            state = replace(progress.state, paused=paused)
            note = self._notifications.listing(state, "PAUSED" if paused else "RESUMED")
            before = None if before is None else replace(before, paused=paused)
            return replace(progress, state=state), before, [note]
        return progress, before, []

    def _execute(
        self,
        action: ExecuteSnapshot,
        tables: Sequence[tuple[str, str]],
        progress: Progress,
        before: IncrementalSnapshot | None,
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        if not action.collections:
            log.info("signal %s names no tables: nothing to do", action.id)
            return progress, before, []
        for _, condition in action.conditions:
            reason = self._refuses(condition)
            if reason:
                raise MalformedSignal(f"its condition is refused: {reason}")
        found, missing = signals.resolve(action.collections, tables)
        collections = requested(action, found)
        waiting = len(progress.blocking) + (0 if progress.state is None else len(progress.state.collections))
        if waiting + len(collections) + len(missing) > MOST_WAITING:
            raise MalformedSignal(f"more than {MOST_WAITING:,} tables would wait to be read")
        for entry in missing:
            log.warning("signal %s: no captured table is named %s", action.id, shown(entry))
        if action.blocking:
            return replace(progress, blocking=progress.blocking + tuple(collections)), before, []
        # a missing table is reported when its turn comes
        collections += [Collection(*table_name(entry)) for entry in missing]
        if before is not None:
            # if the window is read again, what was requested since still has to be read
            before = before.added(action.id, collections)
        if progress.state is not None:
            return replace(progress, state=progress.state.added(action.id, collections)), before, []
        state = IncrementalSnapshot(action.id, tuple(collections))
        log.info("incremental snapshot %s of %s", action.id, shown(", ".join(map(str, collections)), LONGEST_MESSAGE))
        return replace(progress, state=state), before, [self._notifications.listing(state, "STARTED")]
