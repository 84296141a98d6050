"""Sessions that last beyond a task, and reading that goes on after a lost connection. Any process."""

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
from tailrace.connectors.changetables.dialect import ChangeRows, Dialect, Session
from tailrace.connectors.changetables.eras import Span
from tailrace.connectors.changetables.log.rows import fixed
from tailrace.connectors.changetables.position import following, preceding
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.runtime import THREADS, Runtime

log = logging.getLogger("tailrace")
T = TypeVar("T")

# So often a server that is behind the planner's is asked again, with growing pauses.
BEHIND = 15

# Idle sessions of this process, by dialect and database. A worker outlives its tasks, and a login is dear.
_idle: dict[tuple[bytes, str], list[Session]] = {}
_lock = threading.Lock()


@contextmanager
def borrowed(dialect: Dialect, database: str) -> Iterator[Session]:
    """A session of this process, given back at the end; after an error it is closed.

    Where its connection was lost, those of the others that wait are most likely lost too: they are closed as well.
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
    """Close the sessions that nobody uses."""
    with _lock:
        sessions = [session for waiting in _idle.values() for session in waiting]
        _idle.clear()
    for session in sessions:
        session.close()


@dataclass(frozen=True, slots=True)
class Retries:
    """How a lost connection is tried again: `most` times in a row (-1: for ever), with growing pauses of at most
    `longest` s."""

    most: int
    longest: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Retries:
        return cls(config["errors.max.retries"], config["retriable.restart.connector.wait.ms"] / 1000)

    def pause(self, failure: int, error: ConnectionFailed, runtime: Runtime = THREADS) -> None:
        """Wait after the `failure`-th failure in a row; raises `error` when there were enough."""
        if 0 <= self.most < failure:
            raise error
        log.warning("%s Trying again.", error.message)
        runtime.sleep(min(self.longest, 0.1 * 2 ** min(failure, 20)))

    def run(self, work: Callable[[], T], lost: Callable[[], bool], runtime: Runtime = THREADS) -> T:
        """The result of `work`, done again when its connection is lost, if `lost` says that this is of use."""
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
    dialect: Dialect, database: str, span: Span, table: TableSchema, retries: Retries, *, masked: bool = False
) -> Iterator[ChangeRows]:
    """The rows of a span, through lost connections: behind the rows that were given, the reading goes on.

    `table` names the columns to read; `masked` as in Session. A session may lead to another server than the planner's
    does: one that is behind it is waited for. Raises PositionLost when that takes too long, and when rows of the span
    were cleaned up meanwhile: the rows that were given may then have a gap, and nothing of the batch may be committed.
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


def _behind(span: Span) -> ConnectionFailed:
    return ConnectionFailed(
        f"The newest position of the server is before {span.upto.hex()}, to which changes of "
        f"{span.era.capture.source} are to be read: it is a replica that is behind, or it was restored.",
        "Wait until the replica has caught up, or read from the primary.",
    )


def lost(span: Span) -> PositionLost:
    """The error for a span whose beginning was cleaned up."""
    capture = span.era.capture
    return PositionLost(
        f"Changes of {capture.source} behind the position {span.after.hex()} were cleaned up in the change table "
        f"{capture.name} before they were read.",
        "Start again with a new checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot; and let "
        "the database keep its changes for longer than the pipeline may stand still.",
    )


class _Given:
    """How far rows were given: all up to a commit, and so many of that commit's own."""

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
        """Behind which position to read on, and how many of the rows to leave out then."""
        return (self._after, 0) if self._commit is None else (preceding(self._commit), self._rows)


def _without(rows: ChangeRows, count: int) -> ChangeRows:
    count = min(count, len(rows))
    return ChangeRows(
        rows.commit.slice(count),
        rows.change.slice(count),
        rows.operation[count:],
        [column.slice(count) for column in rows.columns],
        None if rows.command is None else rows.command[count:],
    )
