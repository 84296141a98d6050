"""Obedience: what a signal changes in the progress of a query. Planner; no I/O of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tailrace.config.filters import table_name
from tailrace.snapshot import signals
from tailrace.snapshot.incremental import Collection, IncrementalSnapshot, Notification, Notifications, requested
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import (
    ExecuteSnapshot,
    LogMessage,
    MalformedSignal,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
)

log = logging.getLogger("tailrace")


class Obedience:
    """Carries signals out. `captured` lists the tables that may be read, in the order of their names; `refuses` tells
    why a condition is refused (see `conditions.refusal`).
    """

    def __init__(
        self,
        captured: Callable[[], Sequence[tuple[str, str]]],
        notifications: Notifications,
        refuses: Callable[[str], str],
    ) -> None:
        self._captured = captured
        self._notifications = notifications
        self._refuses = refuses

    def obey(
        self, signal: Signal, position: str, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        """The progress, and what was before its window, after `signal`; what there is to tell.

        `position` is what a signal of the type `log` shows. A signal that cannot be carried out is told and ignored.
        """
        try:
            action = signals.read(signal)
            if isinstance(action, ExecuteSnapshot):
                return self._execute(action, progress, before)
            if isinstance(action, LogMessage):
                log.warning("%s", action.message.replace("{}", position))
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
        except MalformedSignal as fault:
            log.warning("a signal is ignored: %s", fault)
        return progress, before, []

    def _execute(
        self, action: ExecuteSnapshot, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        if not action.collections:
            log.info("signal %s names no tables: nothing to do", action.id)
            return progress, before, []
        for _, condition in action.conditions:
            reason = self._refuses(condition)
            if reason:
                raise MalformedSignal(f"the condition of signal {action.id} is refused: {reason}")
        found, missing = signals.resolve(action.collections, self._captured())
        for entry in missing:
            log.warning("signal %s: no captured table is named %s", action.id, entry)
        collections = requested(action, found)
        if action.blocking:
            return replace(progress, blocking=progress.blocking + tuple(collections)), before, []
        # a table that is not there is told as such when its turn comes
        collections += [Collection(*table_name(entry)) for entry in missing]
        if before is not None:
            # when the window is read again, what was asked for since is still to be read
            before = before.added(action.id, collections)
        if progress.state is not None:
            return replace(progress, state=progress.state.added(action.id, collections)), before, []
        state = IncrementalSnapshot(action.id, tuple(collections))
        log.info("incremental snapshot %s of %s", action.id, ", ".join(map(str, collections)))
        return replace(progress, state=state), before, [self._notifications.listing(state, "STARTED")]
