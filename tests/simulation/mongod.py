"""A simulated replica set: writers, cursors and elections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bson import Int64
from pymongo.errors import OperationFailure

from tests.simulation.oplog import (
    Change,
    Document,
    Entry,
    Key,
    Namespace,
    Oplog,
    Prepared,
    View,
    token,
)

CAPTURED: tuple[Namespace, ...] = (("d", "a"), ("d", "b"), ("e", "c"))
SIGNALS: Namespace = ("d", "signals")
NAMES: tuple[Namespace, ...] = (*CAPTURED, ("d", "left"))
"""The collections that are written to; the last one is not captured."""
IDS = 24


def failure(code: int, name: str) -> OperationFailure:
    """Return a command's error."""
    return OperationFailure(name, code, {"codeName": name, "ok": 0})


@dataclass
class Odds:
    """Probabilities: that a call fails, that a cursor dies, that somebody writes between two steps, that a write is
    replicated at once, and that a transaction is prepared."""

    fails: float
    dies: float
    act: float
    replicates: float
    prepares: float


class Server:
    """A replica set: its log, cursors and writers. `now` returns the time in seconds."""

    def __init__(self, rng: Random, odds: Odds, now: Callable[[], float]) -> None:
        self.rng = rng
        self.odds = odds
        self.now = now
        self.log = Oplog(rng, now, old=rng.random() < 0.3)
        self.elections = 0
        self.away_until = 0.0
        self.acknowledges_majority = rng.random() < 0.5
        self.cursors: dict[int, Cursor] = {}
        self._next_cursor = 1
        self._next_number = 0
        self._next_session = 1

    # --- writers ---

    def act(self, drops: float = 0.0) -> None:
        """Write something random."""
        rng, log = self.rng, self.log
        what = rng.random()
        if what < drops:
            self._drop()
        elif what < 0.6:
            for _ in range(rng.choice([1, 1, 1, 3])):
                log.single(self._changes(1)[0])
        elif what < 0.75:
            log.retryable(self._changes(rng.choice([1, 2, 3])), self._session())
        elif what < 0.95:
            changes = self._changes(rng.choice([1, 2, 3, 8]))
            prepares = rng.random() < self.odds.prepares and len(log.prepared) < 2
            log.transaction(changes, rng.choice([1, 1, 2, 4]), self._session(), prepares=prepares)
        elif log.prepared:
            self._end(rng.choice(log.prepared), commits=rng.random() < 0.8)
        else:
            log.idle()
        if rng.random() < self.odds.replicates:
            log.replicate(len(log.entries))

    def replicate(self) -> None:
        """Replicate a random part of the log to a majority."""
        log = self.log
        log.replicate(self.rng.randint(log.majority, len(log.entries)))

    def insert(self, namespace: Namespace, document: Document) -> Entry:
        """Insert a document for a client."""
        return self.log.single(Change("i", namespace, document["_id"], 0, document))

    def finish(self) -> None:
        """Commit all prepared transactions."""
        for one in list(self.log.prepared):
            self._end(one, commits=True)

    def _end(self, prepared: Prepared, *, commits: bool) -> None:
        self.log.end(prepared, self._session(), commits=commits)

    def _session(self) -> int:
        self._next_session += 1
        return self._next_session

    def _changes(self, count: int) -> list[Change]:
        """Return random changes of one transaction. It sees its own changes, and avoids documents locked by others."""
        rng, log = self.rng, self.log
        locked = {(change.namespace, change.id) for one in log.prepared for change in one.changes}
        seen: dict[tuple[Namespace, int | str], bool] = {}
        found: list[Change] = []
        while len(found) < count:
            namespace = rng.choice(NAMES)
            id_ = rng.randrange(IDS)
            name = (namespace, id_)
            if name in locked:
                continue
            if name not in seen:
                seen[name] = log.version(namespace, id_, len(log.entries)) is not None
            op = rng.choice("uuurd") if seen[name] else "i"
            seen[name] = op != "d"
            self._next_number += 1
            found.append(Change(op, namespace, id_, self._next_number))
        return found

    def _drop(self) -> None:
        """Drop a collection, or a database."""
        locked = {change.namespace for one in self.log.prepared for change in one.changes}
        namespace = self.rng.choice(CAPTURED)
        if not locked and namespace[0] == "e":
            self.log.drop(self.rng.choice([namespace, ("e", "")]))
        elif not locked:
            self.log.drop(namespace)

    # --- elections ---

    def elect(self) -> None:
        """Let another member become the primary. It has all majority entries, but does not know yet which they are."""
        rng, log = self.rng, self.log
        self.elections += 1
        self.cursors.clear()
        self.away_until = self.now() + rng.choice([0.0, 0.0, 1.0, 12.0])
        shown = log.majority if rng.random() < 0.5 else rng.randint(max(1, log.majority - 5), log.majority)
        log.elect(rng.randint(log.majority, len(log.entries)), max(shown, log.oldest + 1))

    # --- commands ---

    def open(self, cursor: Cursor, most: int, namespace: str) -> Document:
        """Return the first answer of a cursor, and keep the cursor unless it is exhausted."""
        documents, behind = cursor.take(most)
        number = 0
        if not cursor.is_over:
            number, self._next_cursor = self._next_cursor, self._next_cursor + 1
            self.cursors[number] = cursor
        return answer("firstBatch", documents, number, namespace, behind)

    def more(self, number: int, most: int, namespace: str) -> Document:
        cursor = self.cursors.get(number)
        if cursor is None:
            raise failure(43, "CursorNotFound")
        documents, behind = cursor.take(most)
        if cursor.is_over:
            del self.cursors[number]
        return answer("nextBatch", documents, 0 if cursor.is_over else number, namespace, behind)


def answer(name: str, documents: Sequence[Any], number: int, namespace: str, behind: Key | None) -> Document:
    cursor: Document = {name: list(documents), "id": Int64(number), "ns": namespace}
    if behind is not None:
        cursor["postBatchResumeToken"] = token(behind)
    return {"cursor": cursor, "ok": 1.0}


class Cursor:
    """A cursor over documents that were found at once; the base of others."""

    is_over = False
    waits = False

    def __init__(self, documents: Sequence[Any] = ()) -> None:
        self._documents = list(documents)

    def is_due(self) -> bool:
        """Return True if there is something to return."""
        return True

    def take(self, most: int) -> tuple[list[Any], Key | None]:
        """Return the next documents, and the place after them, None without one."""
        found, self._documents = self._documents[:most], self._documents[most:]
        self.is_over = not self._documents
        return found, None


class OplogCursor(Cursor):
    """A cursor over the oplog from a place on, to the end of the visible entries; a tailing cursor waits there."""

    def __init__(self, server: Server, place: int, *, majority: bool, tails: bool) -> None:
        super().__init__()
        self._server = server
        self._log = server.log
        self._place = place
        self._majority = majority
        self.waits = tails
        self._is_open = False

    def _end(self) -> int:
        return self._log.shown if self._majority else len(self._log.entries)

    def is_due(self) -> bool:
        return self._place < self._end()

    def take(self, most: int) -> tuple[list[Any], Key | None]:
        if self._place < self._log.oldest:
            self.is_over = True
            raise failure(136, "CappedPositionLost")
        found = self._log.entries[self._place : min(self._end(), self._place + most)]
        self._place += len(found)
        if not self.waits:
            self.is_over = self._place >= self._end()
        elif not self._is_open:
            # a tailing cursor that finds no entry at first is dead; others may skip to the current end of the log
            self.is_over = not found
            self._place = self._server.rng.choice([self._place, self._place, max(self._place, self._end())])
        self._is_open = True
        return [one.raw for one in found], None


class StreamCursor(Cursor):
    """A cursor over the events after a place of a change stream."""

    waits = True

    def __init__(self, log: Oplog, view: View, behind: Key) -> None:
        super().__init__()
        self._log = log
        self._view = view
        self._behind = behind
        self._place = log.place(behind[0])

    def is_due(self) -> bool:
        return self._place < self._log.shown

    def take(self, most: int) -> tuple[list[Any], Key | None]:
        log = self._log
        found: list[Any] = []
        if self._place < log.oldest:
            self.is_over = True
            raise failure(286, "ChangeStreamHistoryLost")
        while self._place < log.shown:
            for key, event in self._view.events(log, self._place):
                if key <= self._behind:
                    continue
                if len(found) >= most:
                    return found, self._behind
                found.append(event)
                self._behind = key
                if event.get("operationType") == "invalidate":
                    self.is_over = True
                    return found, key
            at = log.entries[self._place].at
            self._place += 1
            if at > self._behind[0]:
                self._behind = (at, 0, 0, 0)
        return found, self._behind
