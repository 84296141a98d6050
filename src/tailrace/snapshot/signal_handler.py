"""SignalHandler: applies signals to the progress of a query. Planner; no I/O of its own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as Several
from dataclasses import dataclass, replace

from tailrace.config.config import Config
from tailrace.config.filters import table_name
from tailrace.snapshot import signals
from tailrace.snapshot.incremental import (
    Collection,
    IncrementalSnapshot,
    Notification,
    Notifications,
    PausedTable,
    requested,
)
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import (
    Action,
    AddTables,
    ExecuteSnapshot,
    LogMessage,
    MalformedSignal,
    PauseSnapshot,
    PauseTables,
    RemoveTables,
    ResumeSnapshot,
    ResumeTables,
    Signal,
    StopSnapshot,
    shown,
)

LONGEST_MESSAGE = 10_000
"""The most characters that a signal puts into one line of the log."""

log = logging.getLogger("tailrace")


MOST_WAITING = 100_000
"""The most tables that may wait to be read. They are in every offset."""


@dataclass(frozen=True, slots=True)
class LiveTables:
    """Functions of a connector that add tables to a running query. `config` has the lists of tables.

    `every` returns the tables of the database, in the order of their names. `prepared` makes the database ready for
    further tables, and returns the reason for each table that cannot be captured. `unread` returns the captured tables
    for which the log lacks rows, each with the type of the notification about it.
    """

    config: Config
    every: Callable[[], Sequence[tuple[str, str]]]
    prepared: Callable[[Sequence[tuple[str, str]]], Mapping[tuple[str, str], str]]
    signal_table: tuple[str, str] | None = None
    unread: Callable[[], Sequence[tuple[tuple[str, str], str]]] = tuple


class SignalHandler:
    """Handles signals. `captured` lists the tables that may be read, in the order of their names.

    `refuses` returns the reason to refuse a condition (see `conditions.refusal`). `local` converts a table name in a
    signal to the form of `captured`. Without `live` no table can be added or removed.

    A signal that cannot be handled for any reason is reported, without its data, and ignored: it stays in the log, and
    would otherwise end the query at every start.
    """

    def __init__(
        self,
        captured: Callable[[], Sequence[tuple[str, str]]],
        notifications: Notifications,
        refuses: Callable[[str], str],
        local: Callable[[str], str] = str,
        live: LiveTables | None = None,
    ) -> None:
        self._captured = captured
        self._live = live
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
        if isinstance(action, ExecuteSnapshot | RemoveTables | AddTables) and action.collections:
            tables = self._present(progress)
        if isinstance(action, AddTables) and self._live is not None:
            return self._add(action, self._live, tables, progress, before)
        try:
            return self._carry_out(action, position, tables, progress, before)
        except MalformedSignal as fault:
            log.warning("signal %s is ignored: %s", action.id, fault)
        except Exception as error:
            # the error's text may contain the signal's data
            log.warning("signal %s is ignored: it cannot be carried out (%s)", action.id, type(error).__name__)
        return progress, before, []

    def _present(self, progress: Progress) -> Sequence[tuple[str, str]]:
        """Return the captured tables, with the commands of earlier signals of the batch."""
        commands = progress.commands
        captured = dict.fromkeys(table for table in self._captured() if table not in commands.removed)
        return list(captured | dict.fromkeys(commands.added))

    def _add(
        self,
        action: AddTables,
        live: LiveTables,
        captured: Sequence[tuple[str, str]],
        progress: Progress,
        before: IncrementalSnapshot | None,
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        """Add tables: what the database refuses is reported, and does not end the query."""
        try:
            found, missing = signals.resolve(action.collections, live.every())
        except MalformedSignal as fault:
            log.warning("signal %s is ignored: %s", action.id, fault)
            return progress, before, []
        for entry in missing:
            log.warning("signal %s: no table is named %s", action.id, shown(entry))
        fresh = [table for table in found if table not in set(captured)]
        refused = live.prepared(fresh) if fresh else {}
        for table in found:
            why = "it is captured already" if table not in fresh else refused.get(table, "")
            if why:
                log.warning("signal %s: %s is not added: %s", action.id, shown(".".join(table)), why)
        fresh = [table for table in fresh if table not in refused]
        if not fresh:
            return progress, before, []
        again = [table for table in fresh if table in progress.commands.removed]
        if again:
            log.warning(
                "signal %s: rows that were deleted since %s was removed stay in copies; remedy: tailrace verify "
                "--repair",
                action.id,
                shown(",".join(map(".".join, again))),
            )
        progress = replace(progress, commands=progress.commands.adding(fresh, live.config))
        names = ",".join(map(".".join, fresh))
        note = self._notifications.of(action.id, "ADDED", "Captured Tables", data_collections=names)
        collections = [Collection(*table) for table in fresh]
        progress, before, notes = self._begin(action.id, collections, progress, before)
        log.warning("signal %s adds %s, and reads the rows beside the stream", action.id, shown(names))
        return progress, before, [note, *notes]

    def _remove(
        self,
        action: RemoveTables,
        live: LiveTables,
        captured: Sequence[tuple[str, str]],
        progress: Progress,
        before: IncrementalSnapshot | None,
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        found, missing = signals.resolve(action.collections, captured)
        for entry in missing:
            log.warning("signal %s: no captured table is named %s", action.id, shown(entry))
        if live.signal_table in found:
            log.warning("signal %s: the signal table stays, for signals come by it", action.id)
            found = [table for table in found if table != live.signal_table]
        if found and len(found) >= len([table for table in captured if table != live.signal_table]):
            raise MalformedSignal("it would remove every table: stop the pipeline instead")
        if not found:
            return progress, before, []
        progress = replace(progress, commands=progress.commands.removing(found, live.config))
        names = ",".join(map(".".join, found))
        notes = [self._notifications.of(action.id, "REMOVED", "Captured Tables", data_collections=names)]
        state, gone = progress.state, set(found)
        if state is not None and any((collection.schema, collection.table) in gone for collection in state.collections):
            left = state.leaving(gone)
            kept = () if left is None else left.collections
            ended = [collection for collection in state.collections if collection not in kept]
            notes.append(self._notifications.stopped(state, ended if kept else ()))
            progress = replace(progress, state=left)
        before = None if before is None else before.leaving(gone)
        blocking = tuple(
            collection for collection in progress.blocking if (collection.schema, collection.table) not in gone
        )
        log.warning("signal %s removes %s: no change of it arrives any more", action.id, shown(names))
        return replace(progress, blocking=blocking, held=_without(progress.held, gone)), before, notes

    def _read(self, signal: Signal) -> Action | None:
        try:
            action = signals.read(signal)
            if isinstance(action, ExecuteSnapshot):
                conditions = tuple((self._local(entry), sql) for entry, sql in action.conditions)
                return replace(action, collections=tuple(map(self._local, action.collections)), conditions=conditions)
            if isinstance(action, StopSnapshot | AddTables | RemoveTables | PauseTables | ResumeTables):
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
        if isinstance(action, RemoveTables) and self._live is not None:
            return self._remove(action, self._live, tables, progress, before)
        if isinstance(action, AddTables | RemoveTables):
            raise MalformedSignal("this pipeline cannot add or remove tables while it runs: edit the lists")
        if isinstance(action, LogMessage):
            log.warning("%s", shown(action.message.replace("{}", position), LONGEST_MESSAGE))
        elif isinstance(action, PauseTables):
            return self._pause(action, progress, before)
        elif isinstance(action, ResumeTables):
            return self._resume(action, progress, before)
        elif isinstance(action, StopSnapshot):
            return self._stop(action, progress, before)
        elif isinstance(action, PauseSnapshot | ResumeSnapshot) and progress.state is not None:
            paused = isinstance(action, PauseSnapshot)
            state = replace(progress.state, paused=paused)
            note = self._notifications.listing(state, "PAUSED" if paused else "RESUMED")
            before = None if before is None else replace(before, paused=paused)
            return replace(progress, state=state), before, [note]
        return progress, before, []

    def _stop(
        self, action: StopSnapshot, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        names = [(held.collection.schema, held.collection.table) for held in progress.held]
        paused = set(signals.resolve(action.collections, names)[0] if action.collections else names)
        kept_held = _without(progress.held, paused)
        ended = [held.collection for held in progress.held if held not in kept_held]
        progress = replace(progress, held=kept_held)
        if progress.state is None:
            if not paused:
                return progress, before, []
            listed = ",".join(map(".".join, sorted(paused)))
            note = self._notifications.of(action.id, "ABORTED", data_collections=listed)
            return progress, before, [note]
        left = progress.state.without(action.collections)
        before = None if before is None else before.without(action.collections)
        kept = () if left is None else left.collections
        gone = [collection for collection in progress.state.collections if collection not in kept]
        gone += ended
        note = self._notifications.stopped(progress.state, gone if kept else ())
        return replace(progress, state=left), before, [note] if gone else []

    def _pause(
        self, action: PauseTables, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        state = progress.state
        reading = () if state is None else state.collections
        names = list(dict.fromkeys((collection.schema, collection.table) for collection in reading))
        found, missing = signals.resolve(action.collections, names)
        for entry in missing:
            log.warning(
                "signal %s: %s is not paused, for no incremental snapshot reads it. Its changes go on: the log has one "
                "position for all tables",
                action.id,
                shown(entry),
            )
        if state is None or not found:
            return progress, before, []
        # rows of this batch's window may have to be read again: reading goes on before them
        read = set() if before is None else {(collection.schema, collection.table) for collection in before.collections}
        gone = set(found)
        held = [] if before is None else before.held(gone)
        held += state.held(gone - read)
        progress = replace(progress, state=state.leaving(gone), held=(*progress.held, *held))
        listed = ",".join(map(".".join, found))
        log.warning("signal %s pauses the reading of %s; changes go on", action.id, shown(listed))
        note = self._notifications.of(action.id, "PAUSED", data_collections=listed)
        return progress, None if before is None else before.leaving(gone), [note]

    def _resume(
        self, action: ResumeTables, progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        names = list(dict.fromkeys((paused.collection.schema, paused.collection.table) for paused in progress.held))
        found, missing = signals.resolve(action.collections, names)
        for entry in missing:
            log.warning("signal %s: no paused table is named %s", action.id, shown(entry))
        if not found:
            return progress, before, []
        gone = set(found)
        resumed = [paused for paused in progress.held if (paused.collection.schema, paused.collection.table) in gone]
        state = progress.state
        state = IncrementalSnapshot.of_held(action.id, resumed) if state is None else state.resumed(resumed)
        listed = ",".join(map(".".join, found))
        log.warning("signal %s resumes the reading of %s", action.id, shown(listed))
        note = self._notifications.of(action.id, "RESUMED", data_collections=listed)
        progress = replace(progress, state=state, held=_without(progress.held, gone))
        return progress, None if before is None else before.resumed(resumed), [note]

    def read_unread(
        self, tables: Several[tuple[tuple[str, str], str]], progress: Progress, before: IncrementalSnapshot | None
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        """Begin to read the rows of `tables`, which `LiveTables.unread` has returned."""
        notes: list[Notification] = []
        for kind in dict.fromkeys(kind for _, kind in tables):
            named = [table for table, of in tables if of == kind]
            identity, listed = str(uuid.uuid4()), ",".join(map(".".join, named))
            notes.append(self._notifications.of(identity, kind, "Captured Tables", data_collections=listed))
            log.warning("%s: the rows are read beside the stream: %s", _UNREAD.get(kind, kind), shown(listed))
            progress, before, begun = self._begin(identity, [Collection(*table) for table in named], progress, before)
            notes += begun
        return progress, before, notes

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
        waiting = (
            len(progress.blocking)
            + len(progress.held)
            + (0 if progress.state is None else len(progress.state.collections))
        )
        if waiting + len(collections) + len(missing) > MOST_WAITING:
            raise MalformedSignal(f"more than {MOST_WAITING:,} tables would wait to be read")
        for entry in missing:
            log.warning("signal %s: no captured table is named %s", action.id, shown(entry))
        if action.blocking:
            return replace(progress, blocking=progress.blocking + tuple(collections)), before, []
        # the snapshot reports a missing table when it comes to it
        collections += [Collection(*table_name(entry)) for entry in missing]
        if action.id.startswith(signals.REREAD):
            collections = [replace(collection, reread=action.id) for collection in collections]
        return self._begin(action.id, collections, progress, before)

    def _begin(
        self,
        signal: str,
        collections: Sequence[Collection],
        progress: Progress,
        before: IncrementalSnapshot | None,
    ) -> tuple[Progress, IncrementalSnapshot | None, list[Notification]]:
        """Begin a snapshot of further tables, or add them to the running one."""
        if before is not None:
            # if the window is read again, tables that were requested since must still be read
            before = before.added(signal, collections)
        if progress.state is not None:
            return replace(progress, state=progress.state.added(signal, collections)), before, []
        state = IncrementalSnapshot(signal, tuple(collections))
        log.info("incremental snapshot %s of %s", signal, shown(", ".join(map(str, collections)), LONGEST_MESSAGE))
        return replace(progress, state=state), before, [self._notifications.listing(state, "STARTED")]


DISCOVERED, GAP = "DISCOVERED", "GAP"
"""Types of the notifications about tables for which the log lacks rows: they are new, or their changes are lost."""

_UNREAD = {DISCOVERED: "new tables", GAP: "the log lacks changes of tables"}


def _without(held: tuple[PausedTable, ...], gone: Several[tuple[str, str]]) -> tuple[PausedTable, ...]:
    return tuple(paused for paused in held if (paused.collection.schema, paused.collection.table) not in gone)
