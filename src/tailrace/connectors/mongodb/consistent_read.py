"""The documents of the captured collections at one timestamp, for tasks of spark.read. Holder process.

A server of MongoDB 5 keeps its recent past (minSnapshotHistoryWindowInSeconds, by default 300), so no session has to
stay open. Each task reads with the read concern `snapshot` at the same `atClusterTime`, and checks that the server
confirms this timestamp.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter
from tailrace.connectors.mongodb.log.oplog import operation_time
from tailrace.connectors.mongodb.records.segment import Segment, read_documents
from tailrace.connectors.mongodb.server.connection import Address, connect, retries
from tailrace.connectors.mongodb.server.faults import explained, explained_error, is_passing
from tailrace.connectors.mongodb.server.raw import CursorBatch, RawCursor, concern_at
from tailrace.connectors.mongodb.server.routers import is_sharded
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot import chunks as snapshot
from tailrace.connectors.mongodb.snapshot.plan import Chunk, planned
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.process.runtime import THREADS

if TYPE_CHECKING:
    import pyarrow as pa
    from pymongo import MongoClient

log = logging.getLogger("tailrace")

_ATTEMPTS = 5
# The first version of the wire protocol with reads at a timestamp outside of a transaction: MongoDB 5.0.
_WIRE = 13
# The first version that can read capped collections at a timestamp: MongoDB 8.0.
_CAPPED_WIRE = 25
# Most retries of a task in a row after transient errors, if errors.max.retries allows as many.
_TRIES = 8
_TASKS = 4
"""Most tasks for each core."""
_TOO_OLD, _UNAVAILABLE = 239, 246
_STREAM = "Read a stream: spark.readStream with snapshot.mode=initial_only ends after the snapshot."
_GONE = (
    "Load again: that reads a new moment. A larger minSnapshotHistoryWindowInSeconds of the server keeps its past for "
    "longer."
)


class HeldDocuments:
    """Implements ConsistentRead. `position` is the timestamp, as the column `position` shows it."""

    position: str

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Choose the timestamp and plan the tasks. Raises TailraceError and PyMongo's errors."""
        self._config = config
        self._captured = CollectionFilter(config)
        address = Address.of(config)
        with closing(connect(address)) as client:
            name, wire = _server(client)
            shape = MongoSettings.of(config, settings, name)
            at, found = self._taken(client, legacy=shape.legacy)
            guard_number(config, len(found), "collections")
            chosen = snapshot.chosen(config, list(found), self._captured)
            if wire < _CAPPED_WIRE:
                _refuse_capped(client, chosen)
            split = [(one, _bounds(client, one)) for one in chosen]
        plan = planned(split, snapshot.filters(config))
        self.position = f"{at:016X}"
        log.info("read of %d collections in %d chunks at %s", len(split), len(plan.chunks), self.position)
        chunks = [
            HeldChunk(chunk, plan.filter(chunk.namespace), number, found[chunk.namespace])
            for number, chunk in enumerate(plan.chunks)
        ]
        attempts, first, longest = retries(config)
        tries = _TRIES if attempts < 0 else min(attempts, _TRIES)
        size = -(-len(chunks) // (_TASKS * (config["event.order.segments"] or os.cpu_count() or 1))) or 1
        self.tasks: tuple[Task, ...] = tuple(
            HeldTask(
                address,
                tuple(chunks[place : place + size]),
                at,
                shape,
                config["snapshot.fetch.size"],
                tries,
                (first, longest),
            )
            for place in range(0, len(chunks), size)
        )

    def _taken(self, client: MongoClient[Any], *, legacy: bool) -> tuple[int, Mapping[Namespace, Any]]:
        """Return a timestamp, and the captured collections that existed at it, each with its UUID."""
        found = identities(client, snapshot.collections(client, self._captured, legacy))
        for _ in range(_ATTEMPTS):
            at = operation_time(client)
            before, found = found, identities(client, snapshot.collections(client, self._captured, legacy))
            if before == found:
                return at, found
        raise PrerequisiteError(
            f"Collections were created, dropped or renamed during each of {_ATTEMPTS} attempts to list them.",
            "Read again when this is over.",
        )

    def is_read(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: nothing is open."""


@dataclass(frozen=True, slots=True)
class HeldChunk:
    """A chunk, the condition of its collection, its number, and the UUID of the collection at the timestamp."""

    chunk: Chunk
    filter: str
    number: int
    uuid: Any


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that reads the documents of some chunks at the timestamp `at`. Worker; holds the password.

        Documents come in the order of `_id`, so that after a lost connection only the lost answer is read again. `read`
    raises PositionLost if the server no longer has the timestamp, ConnectionFailed or PrerequisiteError.
    """

    address: Address
    chunks: tuple[HeldChunk, ...]
    at: int
    settings: MongoSettings
    batch_size: int
    tries: int
    pauses: tuple[float, float]

    def __repr__(self) -> str:
        return f"HeldTask({len(self.chunks)} chunks)"

    def read(self) -> Iterator[pa.RecordBatch]:
        from pymongo.errors import PyMongoError

        from tailrace.connectors.mongodb.records.records import to_rows

        try:
            with closing(connect(self.address)) as client:
                for one in self.chunks:
                    for segment in self._segments(client, one):
                        yield from to_rows(segment, self.settings)
        except PyMongoError as error:
            raise self._explained(error) from None

    def _segments(self, client: MongoClient[Any], one: HeldChunk) -> Iterator[Segment]:
        given, failures = 0, 0
        while True:
            try:
                for answer in self._answers(client, one, given):
                    failures = 0
                    yield self._read(one, answer, given)
                    given += len(answer.starts)
                self._demand(client, one)
                return
            except Exception as error:
                if failures >= self.tries or not is_passing(error):
                    raise
                log.warning("reading the documents is interrupted (%s); trying again", type(error).__name__)
            first, longest = self.pauses
            THREADS.sleep(min(longest, first * 2**failures))
            failures += 1

    def _answers(self, client: MongoClient[Any], one: HeldChunk, given: int) -> Iterator[CursorBatch]:
        """Yield the server's answers for the chunk without its first `given` documents."""
        database, _ = one.chunk.namespace
        command = snapshot.find_command(one.chunk, one.filter, self.batch_size, 0) | concern_at(self.at)
        command |= {"sort": {"_id": 1}} | ({"skip": given} if given else {})
        with closing(RawCursor(client, database, command)) as cursor:
            answer = cursor.next()
            if answer.seen_at != self.at:
                raise PrerequisiteError(
                    "The server does not confirm that it has read at the requested time.",
                    f"spark.read needs a server of MongoDB 5.0 or later that takes atClusterTime. {_STREAM}",
                )
            while True:
                if len(answer.starts):
                    yield answer
                if not cursor.alive:
                    return
                answer = cursor.next()

    def _demand(self, client: MongoClient[Any], one: HeldChunk) -> None:
        """Raise PositionLost if the collection was dropped or renamed: some servers then read it as empty at every
        timestamp."""
        namespace = one.chunk.namespace
        if identities(client, [namespace]) != {namespace: one.uuid}:
            raise PositionLost(
                f"The collection {'.'.join(namespace)} was dropped or renamed while it was read, and its past is gone.",
                "Load again: that reads a new moment.",
            )

    def _read(self, one: HeldChunk, answer: CursorBatch, given: int) -> Segment:
        first = (one.number << 40) + given
        read_ns = 0 if self.settings.legacy else time.time_ns()
        return read_documents(one.chunk.namespace, answer.data, answer.starts, self.at, first, read_ns=read_ns)

    def _explained(self, error: Exception) -> Exception:
        code = getattr(error, "code", None)
        if code == _TOO_OLD:
            return PositionLost("The server no longer has its state at the time of this read.", _GONE)
        if code == _UNAVAILABLE:
            return PositionLost("A collection was altered after the time of this read, and its past is gone.", _GONE)
        return explained_error(error)


def _server(client: MongoClient[Any]) -> tuple[str, int]:
    """Return the name of the replica set and the version of its wire protocol.

    Raises PrerequisiteError if the server is sharded, is not in a replica set, or cannot read at a given timestamp.
    """
    hello = client.admin.command("hello")
    if is_sharded(client):
        raise PrerequisiteError(
            "spark.read of a sharded cluster is not supported: a transaction over several shards can be seen before "
            "its place in the log, so no position would be right.",
            _STREAM,
        )
    name = str(hello.get("setName") or "")
    if not name:
        raise PrerequisiteError(
            "The server is not a member of a replica set, so its documents have no position.",
            "Start it with --replSet and run rs.initiate().",
        )
    wire = int(hello.get("maxWireVersion", 0))
    if wire < _WIRE:
        raise PrerequisiteError(
            "The server cannot read at a given time outside of a transaction.",
            f"spark.read needs MongoDB 5.0 or later. {_STREAM}",
        )
    return name, wire


def _refuse_capped(client: MongoClient[Any], names: Sequence[Namespace]) -> None:
    """Raise PrerequisiteError if one of the collections is capped."""
    found = [".".join(one) for one, listed in _listed(client, names).items() if listed.get("options", {}).get("capped")]
    if found:
        raise PrerequisiteError(
            f"The server cannot read capped collections at a given time: {', '.join(found)}.",
            "Leave them out by collection.exclude.list; MongoDB 8.0 can. " + _STREAM,
        )


def _bounds(client: MongoClient[Any], name: Namespace) -> list[str]:
    """Return the `_id` values at which to cut a collection, by its estimated size."""
    count = client[name[0]][name[1]].estimated_document_count()
    return snapshot.bounds(client, name, -(-count // snapshot.CHUNK_DOCUMENTS))


def identities(client: MongoClient[Any], names: Sequence[Namespace]) -> dict[Namespace, Any]:
    """Return the UUIDs of the collections that exist, in the order of `names`."""
    return {name: one.get("info", {}).get("uuid") for name, one in _listed(client, names).items()}


def _listed(client: MongoClient[Any], names: Sequence[Namespace]) -> dict[Namespace, Mapping[str, Any]]:
    """Return the server's descriptions of the collections that exist, in the order of `names`."""
    listed: dict[Namespace, Mapping[str, Any]] = {}
    for database in dict.fromkeys(database for database, _ in names):
        own = [name for of, name in names if of == database]
        for one in client[database].list_collections(filter={"name": {"$in": own}}):
            listed[database, one["name"]] = one
    return {name: listed[name] for name in names if name in listed}


def held(config: Config, settings: EventSettings) -> HeldDocuments:
    """Implements tailrace.connectors.consistent_read.Reading."""
    return explained(HeldDocuments)(config, settings)
