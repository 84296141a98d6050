"""A simulated replica set as PyMongo shows its primary: commands, cursors, sessions, and what befalls them.

It answers the commands that a planner and its tasks send, and knows no others. Each is a step at which others may go
first, it may fail, be carried out while its answer is lost, or find another primary; or the process may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace, TracebackType
from typing import Any

from bson import Int64, decode, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, OperationFailure, ServerSelectionTimeoutError

from tests.simulation.oplog import (
    Change,
    Document,
    Entry,
    Key,
    Namespace,
    Oplog,
    Prepared,
    View,
    key_of,
    number_of,
    stamp,
    token,
)
from tests.simulation.world import Process

CAPTURED: tuple[Namespace, ...] = (("d", "a"), ("d", "b"), ("e", "c"))
SIGNALS: Namespace = ("d", "signals")
NAMES: tuple[Namespace, ...] = (*CAPTURED, ("d", "left"))
"""The collections that somebody writes to, with one that is not captured."""
IDS = 24
FOUND_MS = 30_000
AWAIT_MS = 1_000
"""How long a cursor at the end of the log waits where its client does not say."""


def failure(code: int, name: str) -> OperationFailure:
    """A command's error."""
    return OperationFailure(name, code, {"codeName": name, "ok": 0})


def _passing(rng: Random) -> Exception:
    """An error that a client meets now and then, and that passes."""
    made: list[Callable[[], Exception]] = [
        lambda: AutoReconnect("connection closed"),
        lambda: NetworkTimeout("timed out"),
        lambda: NotPrimaryError("not primary", {"code": 10107}),
        lambda: failure(11602, "InterruptedDueToReplStateChange"),
        lambda: failure(262, "ExceededTimeLimit"),
        lambda: failure(91, "ShutdownInProgress"),
        lambda: failure(134, "ReadConcernMajorityNotAvailableYet"),
    ]
    return rng.choice(made)()


@dataclass
class Odds:
    """How probable it is that a call fails, that a cursor dies, that somebody does something between two steps, that
    what is written is replicated at once, and that a transaction is prepared."""

    fails: float
    dies: float
    act: float
    replicates: float
    prepares: float


class Server:
    """The replica set: its log, its cursors, and those who write. `now` gives the time in seconds."""

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

    # --- those who write ---

    def act(self, drops: float = 0.0) -> None:
        """Somebody does something in the database."""
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
        """Some more of the log reaches a majority."""
        log = self.log
        log.replicate(self.rng.randint(log.majority, len(log.entries)))

    def insert(self, namespace: Namespace, document: Document) -> Entry:
        """A client's insert."""
        return self.log.single(Change("i", namespace, document["_id"], 0, document))

    def finish(self) -> None:
        """End what is in progress."""
        for one in list(self.log.prepared):
            self._end(one, commits=True)

    def _end(self, prepared: Prepared, *, commits: bool) -> None:
        self.log.end(prepared, self._session(), commits=commits)

    def _session(self) -> int:
        self._next_session += 1
        return self._next_session

    def _changes(self, count: int) -> list[Change]:
        """What one transaction does: it sees what it has done before, and leaves alone what another one has locked."""
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

    # --- what befalls it ---

    def elect(self) -> None:
        """Another member becomes the primary. It has what a majority has, and does not know yet how much that is."""
        rng, log = self.rng, self.log
        self.elections += 1
        self.cursors.clear()
        self.away_until = self.now() + rng.choice([0.0, 0.0, 1.0, 12.0])
        shown = log.majority if rng.random() < 0.5 else rng.randint(max(1, log.majority - 5), log.majority)
        log.elect(rng.randint(log.majority, len(log.entries)), max(shown, log.oldest + 1))

    # --- commands ---

    def open(self, cursor: Cursor, most: int, namespace: str) -> Document:
        """The first answer of a cursor."""
        documents, behind = cursor.take(most)
        number = 0
        if not cursor.is_over:
            number, self._next_cursor = self._next_cursor, self._next_cursor + 1
            self.cursors[number] = cursor
        return _answer("firstBatch", documents, number, namespace, behind)

    def more(self, number: int, most: int, namespace: str) -> Document:
        cursor = self.cursors.get(number)
        if cursor is None:
            raise failure(43, "CursorNotFound")
        documents, behind = cursor.take(most)
        if cursor.is_over:
            del self.cursors[number]
        return _answer("nextBatch", documents, 0 if cursor.is_over else number, namespace, behind)


def _answer(name: str, documents: Sequence[Any], number: int, namespace: str, behind: Key | None) -> Document:
    cursor: Document = {name: list(documents), "id": Int64(number), "ns": namespace}
    if behind is not None:
        cursor["postBatchResumeToken"] = token(behind)
    return {"cursor": cursor, "ok": 1.0}


class Cursor:
    """What `getMore` goes on with: documents that were found at once."""

    is_over = False
    waits = False

    def __init__(self, documents: Sequence[Any] = ()) -> None:
        self._documents = list(documents)

    def is_due(self) -> bool:
        """Whether there is something to look at."""
        return True

    def take(self, most: int) -> tuple[list[Any], Key | None]:
        """The next documents, and the place behind them."""
        found, self._documents = self._documents[:most], self._documents[most:]
        self.is_over = not self._documents
        return found, None


class OplogCursor(Cursor):
    """Entries from a place on, to the end of what may be seen; one that tails waits there."""

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
            # one that has nothing to stand on is dead; another may go on from where the log ends by now
            self.is_over = not found
            self._place = self._server.rng.choice([self._place, self._place, max(self._place, self._end())])
        self._is_open = True
        return [one.raw for one in found], None


class StreamCursor(Cursor):
    """The events behind a place of a change stream."""

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


# --- the client -----------------------------------------------------------------------------------------------------


class Client:
    """A MongoClient of a process."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self._elections = server.elections
        self.topology_description = SimpleNamespace(
            topology_type_name="ReplicaSetWithPrimary", server_descriptions=lambda: {}
        )

    @property
    def admin(self) -> _Database:
        return self["admin"]

    @property
    def local(self) -> _Database:
        return self["local"]

    def __getitem__(self, name: str) -> _Database:
        return _Database(self, name)

    def close(self) -> None:
        pass

    def start_session(self, *, causal_consistency: bool) -> _Session:
        return _Session()

    def list_database_names(self) -> list[str]:
        self.call()
        return ["admin", "config", "local", *sorted({name for name, _ in self.server.log.namespaces()})]

    def call(self) -> None:
        """Every command begins and ends with this."""
        server, process = self.server, self.process
        process.step()
        if server.away_until > server.now():
            process.wait(FOUND_MS / 1000, lambda: server.away_until <= server.now())
            if server.away_until > server.now():
                raise ServerSelectionTimeoutError("no primary")
        self.check()
        if server.rng.random() < server.odds.fails:
            raise _passing(server.rng)

    def check(self) -> None:
        """Raise what a client meets that was connected to the primary before."""
        if self._elections != self.server.elections:
            self._elections = self.server.elections
            raise NotPrimaryError("not primary", {"code": 10107})

    def wait(self, seconds: float, is_due: Callable[[], bool]) -> None:
        """Wait in a command until `is_due`, at most so long."""
        elections = self.server.elections
        self.process.wait(seconds, lambda: is_due() or self.server.elections != elections)
        self.check()

    def sees(self, after: int) -> None:
        """Wait until the primary knows that a majority has all up to a timestamp."""
        log = self.server.log
        while log.entries[log.shown - 1].at < after:
            if log.entries[-1].at < after:
                log.idle()
            self.wait(10.0, lambda: log.entries[log.shown - 1].at >= after)
            if self.server.rng.random() < 0.1:
                raise failure(50, "MaxTimeMSExpired")


class _Session:
    operation_time: Any = None

    def __enter__(self) -> _Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    def end_session(self) -> None:
        pass


class _Database:
    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def __getitem__(self, name: str) -> _Collection:
        return _Collection(self._client, (self._name, name))

    def list_collections(self) -> list[Document]:
        self._client.call()
        return [{"name": name, "type": "collection"}
                for database, name in self._client.server.log.namespaces() if database == self._name]  # fmt: skip

    def command(self, command: Any, *, codec_options: Any = None, session: Any = None) -> Any:
        client = self._client
        client.call()
        given = {command: 1} if isinstance(command, str) else command
        name = next(iter(given))
        answer = dict(_COMMANDS[name](client, self._name, given))
        # what was carried out may fail now
        client.call()
        # what the primary has, whatever a majority has
        answer["operationTime"] = stamp(client.server.log.entries[-1].at)
        return answer if codec_options is None else RawBSONDocument(encode(answer))


class _Collection:
    def __init__(self, client: Client, namespace: Namespace) -> None:
        self._client = client
        self._namespace = namespace

    def estimated_document_count(self) -> int:
        self._client.call()
        log = self._client.server.log
        return len(log.documents(self._namespace, len(log.entries)))

    def insert_one(self, document: Document, *, session: _Session) -> None:
        self._client.call()
        self._done(self._client.server.insert(self._namespace, document), session)

    def delete_one(self, filter_: Document, *, session: _Session) -> None:
        self._client.call()
        log, id_ = self._client.server.log, filter_["_id"]
        if log.version(self._namespace, id_, len(log.entries)) is not None:
            self._done(log.single(Change("d", self._namespace, id_, 0)), session)

    def _done(self, entry: Entry, session: _Session) -> None:
        client, log = self._client, self._client.server.log
        if client.server.acknowledges_majority:
            elections = client.server.elections
            while log.entries[log.shown - 1].at < entry.at:
                client.wait(10.0, lambda: log.entries[log.shown - 1].at >= entry.at)
                if elections != client.server.elections:
                    raise AutoReconnect("connection closed")
        client.call()
        session.operation_time = stamp(entry.at)


# --- the commands ---------------------------------------------------------------------------------------------------

Command = Mapping[str, Any]


def _is_majority(command: Command) -> bool:
    is_stream = "aggregate" in command and "$changeStream" in command["pipeline"][0]
    return is_stream or command.get("readConcern", {}).get("level") == "majority"


def _size(server: Server, command: Command) -> int:
    """How many documents an answer holds: what was asked for, or less where they are large."""
    asked = command.get("batchSize") or command.get("cursor", {}).get("batchSize") or 101
    return min(int(asked), server.rng.choice([1, 2, 3, 10, 1000]))


def _find(client: Client, database: str, command: Command) -> Document:
    concern = command.get("readConcern", {})
    if "afterClusterTime" in concern:
        client.sees(number_of(concern["afterClusterTime"]))
    server, log = client.server, client.server.log
    namespace = f"{database}.{command['find']}"
    end = log.shown if _is_majority(command) else len(log.entries)
    if namespace == "local.oplog.rs":
        return _find_entries(server, command, end)
    found = log.documents((database, command["find"]), end)
    found = _within(found, command)
    if command.get("sort", {}).get("_id") == -1:
        found.reverse()
    if "limit" in command:
        found = found[: command["limit"]]
    if command.get("singleBatch"):
        return _answer("firstBatch", found, 0, namespace, None)
    return server.open(Cursor(found), _size(server, command), namespace)


def _within(documents: list[Document], command: Command) -> list[Document]:
    """Those between `min` and `max`, and up to the greatest one that a window reads."""
    if "min" in command:
        least = decode(command["min"].raw)["_id"]
        documents = [one for one in documents if one["_id"] >= least]
    if "max" in command:
        bound = decode(command["max"].raw)["_id"]
        documents = [one for one in documents if one["_id"] < bound]
    if "$expr" in command.get("filter", {}):
        greatest = command["filter"]["$expr"]["$lte"][1]["$literal"]
        documents = [one for one in documents if one["_id"] <= greatest]
    return documents


def _find_entries(server: Server, command: Command, end: int) -> Document:
    log = server.log
    if "sort" in command or not command.get("filter"):
        latest = command.get("sort", {}).get("$natural") == -1
        return _answer("firstBatch", [log.entries[end - 1 if latest else log.oldest].raw], 0, "local.oplog.rs", None)
    place = max(log.oldest, log.place(number_of(command["filter"]["ts"]["$gte"])))
    if command.get("singleBatch"):
        found = [one.raw for one in log.entries[place : min(end, place + command["limit"])]]
        return _answer("firstBatch", found, 0, "local.oplog.rs", None)
    cursor = OplogCursor(server, place, majority=_is_majority(command), tails=command.get("tailable", False))
    return server.open(cursor, _size(server, command), "local.oplog.rs")


def _aggregate(client: Client, database: str, command: Command) -> Document:
    server, log = client.server, client.server.log
    first, *stages = command["pipeline"]
    if "$sample" in first:
        found = log.documents((database, command["aggregate"]), log.shown)
        return _answer("firstBatch", [{"_id": one["_id"]} for one in found], 0, "d.c", None)
    stream = first["$changeStream"]
    behind: Key = (log.entries[log.shown - 1].at + 1, 0, 0, 0)
    if "startAfter" in stream:
        behind = key_of(decode(stream["startAfter"].raw))
        if log.entries[log.oldest].at > behind[0]:
            raise failure(286, "ChangeStreamHistoryLost")
    view = View(
        "" if stream.get("allChangesForCluster") else database,
        "" if command["aggregate"] == 1 else command["aggregate"],
        stages[0]["$match"],
        stream.get("fullDocument") == "updateLookup",
        any("$changeStreamSplitLargeEvent" in stage for stage in stages),
    )
    cursor = StreamCursor(log, view, behind)
    return server.open(cursor, _size(server, command), f"{database}.$cmd.aggregate")


def _get_more(client: Client, database: str, command: Command) -> Document:
    server = client.server
    number = int(command["getMore"])
    if server.rng.random() < server.odds.dies:
        server.cursors.pop(number, None)
    cursor = server.cursors.get(number)
    if cursor is not None and cursor.waits and not cursor.is_due():
        client.wait(command.get("maxTimeMS", AWAIT_MS) / 1000, cursor.is_due)
    return server.more(number, _size(server, command), f"{database}.{command['collection']}")


def _kill(client: Client, database: str, command: Command) -> Document:
    for number in command["cursors"]:
        client.server.cursors.pop(int(number), None)
    return {"ok": 1.0}


_COMMANDS: dict[str, Callable[[Client, str, Command], Document]] = {
    "ping": lambda client, database, command: {"ok": 1.0},
    "hello": lambda client, database, command: {"setName": "rs", "ok": 1.0},
    "find": _find,
    "aggregate": _aggregate,
    "getMore": _get_more,
    "killCursors": _kill,
}
