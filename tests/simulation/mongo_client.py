"""The primary of a simulated replica set behind PyMongo's interface: clients, sessions and commands.

It answers only the commands that a planner and its tasks send. At each command others may go first, the process may be
killed, and the command may fail, take effect although its answer is lost, or meet another primary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace, TracebackType
from typing import Any

from bson import decode, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, ServerSelectionTimeoutError

from tests.simulation.mongod import Cursor, OplogCursor, Server, StreamCursor, answer, failure
from tests.simulation.oplog import Change, Document, Entry, Key, Namespace, View, key_of, number_of, stamp
from tests.simulation.world import Process

FOUND_MS = 30_000
"""Milliseconds for which a client looks for a primary."""
AWAIT_MS = 1_000
"""Default of milliseconds for which a cursor at the end of the log waits."""


def _passing(rng: Random) -> Exception:
    """Return a random transient error."""
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
        """Take a step, at the beginning and the end of every command. Raises random errors."""
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
        """Raise NotPrimaryError once after each election."""
        if self._elections != self.server.elections:
            self._elections = self.server.elections
            raise NotPrimaryError("not primary", {"code": 10107})

    def wait(self, seconds: float, is_due: Callable[[], bool]) -> None:
        """Wait in a command until `is_due`, at most `seconds`."""
        elections = self.server.elections
        self.process.wait(seconds, lambda: is_due() or self.server.elections != elections)
        self.check()

    def sees(self, after: int) -> None:
        """Wait until the primary knows that a majority has all entries up to a timestamp."""
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

    def list_collections(self, filter: Document | None = None) -> list[Document]:  # noqa: A002
        if self._name == "admin":
            # the server's identity, which a planner asks for once
            return [{"name": "system.version", "type": "collection", "info": {"uuid": bytes(16)}}]
        self._client.call()
        return [{"name": name, "type": "collection"}
                for database, name in self._client.server.log.namespaces() if database == self._name]  # fmt: skip

    def command(self, command: Any, *, codec_options: Any = None, session: Any = None) -> Any:
        client = self._client
        client.call()
        given = {command: 1} if isinstance(command, str) else command
        name = next(iter(given))
        found = dict(_COMMANDS[name](client, self._name, given))
        # the command took effect, and may fail now
        client.call()
        # the time of the primary's last entry, even if no majority has it
        found["operationTime"] = stamp(client.server.log.entries[-1].at)
        return found if codec_options is None else RawBSONDocument(encode(found))


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
    """Return the number of documents in an answer: as requested, or fewer, as if they were large."""
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
        return answer("firstBatch", found, 0, namespace, None)
    return server.open(Cursor(found), _size(server, command), namespace)


def _within(documents: list[Document], command: Command) -> list[Document]:
    """Return the documents from `min` to before `max`, and up to the greatest `_id` in the filter of a window."""
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
        return answer("firstBatch", [log.entries[end - 1 if latest else log.oldest].raw], 0, "local.oplog.rs", None)
    place = max(log.oldest, log.place(number_of(command["filter"]["ts"]["$gte"])))
    if command.get("singleBatch"):
        found = [one.raw for one in log.entries[place : min(end, place + command["limit"])]]
        return answer("firstBatch", found, 0, "local.oplog.rs", None)
    cursor = OplogCursor(server, place, majority=_is_majority(command), tails=command.get("tailable", False))
    return server.open(cursor, _size(server, command), "local.oplog.rs")


def _aggregate(client: Client, database: str, command: Command) -> Document:
    server, log = client.server, client.server.log
    first, *stages = command["pipeline"]
    if "$sample" in first:
        found = log.documents((database, command["aggregate"]), log.shown)
        return answer("firstBatch", [{"_id": one["_id"]} for one in found], 0, "d.c", None)
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
