"""Sessions that outlive a task, and reading that continues after a lost connection. Any process."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.capture_history import PeriodPart
from tailrace.connectors.changetables.dialect import ChangeRows, Dialect, Session
from tailrace.connectors.changetables.log.rows import fixed
from tailrace.connectors.changetables.position import following, preceding
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.process.runtime import THREADS, Runtime

log = logging.getLogger("tailrace")
T = TypeVar("T")

# The most retries on a server that lags behind the planner's server, with growing pauses.
BEHIND = 15

# Idle sessions of this process, by dialect and database. A worker outlives its tasks, and a login is expensive.
_idle: dict[tuple[bytes, str], list[Session]] = {}
_lock = threading.Lock()


@contextmanager
def borrowed(dialect: Dialect, database: str) -> Iterator[Session]:
    """Lend a session of this process. It is closed after an error, else kept for the next use.

    If its connection was lost, the idle sessions are most likely lost, too, and are also closed.
    """
    name = (pickle.dumps(dialect), database)
    with _lock:
        waiting = _idle.get(name)
        session = waiting.pop() if waiting else None
    if session is None:
        session = dialect.connect(database)
    try:
        yield session
    except BaseException as error:
        session.close()
        if isinstance(error, ConnectionFailed):
            with _lock:
                stale = _idle.pop(name, [])
            for other in stale:
                other.close()
        raise
    with _lock:
        _idle.setdefault(name, []).append(session)


def close_idle() -> None:
    """Close all idle sessions."""
    with _lock:
        sessions = [session for waiting in _idle.values() for session in waiting]
        _idle.clear()
    for session in sessions:
        session.close()


@dataclass(frozen=True, slots=True)
class Retries:
    """Retries of a lost connection: `most` times in a row (-1: for ever), with growing pauses of at most `longest`
    s."""

    most: int
    longest: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Retries:
        return cls(config["errors.max.retries"], config["retriable.restart.connector.wait.ms"] / 1000)

    def pause(self, failure: int, error: ConnectionFailed, runtime: Runtime = THREADS) -> None:
        """Wait after the `failure`-th failure in a row. Raises `error` if there were too many."""
        if 0 <= self.most < failure:
            raise error
        log.warning("%s Trying again.", error.message)
        runtime.sleep(min(self.longest, 0.1 * 2 ** min(failure, 20)))

    def run(self, work: Callable[[], T], lost: Callable[[], bool], runtime: Runtime = THREADS) -> T:
        """Return the result of `work`. Retry after a lost connection if `lost` returns True."""
        failure = 0
        while True:
            try:
                return work()
            except ConnectionFailed as error:
                if not lost():
                    raise
                failure += 1
                self.pause(failure, error, runtime)


def changes(
    dialect: Dialect, database: str, span: PeriodPart, table: TableSchema, retries: Retries, *, masked: bool = False
) -> Iterator[ChangeRows]:
    """Yield the rows of a span. After a lost connection, continue after the rows that were yielded.

    `table` has the columns to read; `masked` is as in Session. A session may connect to another server than the
    planner's session; a server that lags gets time to catch up. Raises PositionLost if this takes too long, or if rows
    of the span were cleaned up meanwhile: then the yielded rows may have a gap, and nothing of the batch may be
    committed.
    """
    given = _Given(span.after)
    failure = 0
    behind = 0
    while True:
        after, skip = given.resumption()
        try:
            with borrowed(dialect, database) as session:
                newest = session.newest()
                if newest is None or newest < span.upto:
                    behind += 1
                    raise _behind(span)
                behind = 0
                for fetched in session.changes(span.era.capture, table, after, span.upto, masked=masked):
                    rows = fetched
                    if skip:
                        rows = _without(fetched, skip)
                        skip -= len(fetched) - len(rows)
                    if len(rows):
                        failure = 0
                        given.add(rows)
                        yield rows
                oldest = session.oldest(span.era.capture)
        except ConnectionFailed as error:
            failure += 1
            if behind > BEHIND:
                raise PositionLost(
                    error.message,
                    "Start again with the same checkpoint when the server has caught up; if it never will, because it "
                    "was restored, with a new checkpoint or with snapshot.mode=when_needed.",
                ) from None
            retries.pause(failure, error)
            continue
        if oldest > following(span.after):
            raise lost(span)
        return


def _behind(span: PeriodPart) -> ConnectionFailed:
    return ConnectionFailed(
        f"The newest position of the server is before {span.upto.hex()}, the end of the batch for "
        f"{span.era.capture.source}: it is a replica that is behind, or it was restored.",
        "Wait until the replica has caught up, or read from the primary.",
    )


def lost(span: PeriodPart) -> PositionLost:
    """Return the error for a span whose beginning was cleaned up."""
    capture = span.era.capture
    return PositionLost(
        f"Changes of {capture.source} after the position {span.after.hex()} were cleaned up in the change table "
        f"{capture.name} before they were read.",
        "Start again with a new checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot; and let "
        "the database keep its changes for longer than the pipeline may stand still.",
    )


class _Given:
    """The rows that were yielded: all up to a commit, and a number of this commit's rows."""

    def __init__(self, after: bytes) -> None:
        self._after = after
        self._commit: bytes | None = None
        self._rows = 0

    def add(self, rows: ChangeRows) -> None:
        commit = rows.commit[len(rows) - 1].as_py()
        of_it = int((fixed(rows.commit) == np.frombuffer(commit, f"S{len(commit)}")[0]).sum())
        self._rows = self._rows + of_it if commit == self._commit else of_it
        self._commit = commit

    def resumption(self) -> tuple[bytes, int]:
        """Return the position after which to resume, and the number of rows to skip there."""
        return (self._after, 0) if self._commit is None else (preceding(self._commit), self._rows)


def _without(rows: ChangeRows, count: int) -> ChangeRows:
    count = min(count, len(rows))
    return ChangeRows(
        rows.commit.slice(count),
        rows.change.slice(count),
        rows.operation[count:],
        [column.slice(count) for column in rows.columns],
        None if rows.command is None else rows.command[count:],
        {place: flags[count:] for place, flags in rows.touched.items()},
    )
