"""MongoPlanner: the log engine for MongoDB, from the first position to the last batch. Planner process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.findings import listed
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.mongodb.chunking import MongoSnapshots
from tailrace.connectors.mongodb.log import coverage
from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.commands import Commands
from tailrace.connectors.mongodb.log.feed import ChangeSource, MongoFeed, ReaderSettings
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.majority import Majority
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces, choice, chosen
from tailrace.connectors.mongodb.log.oplog import OplogFeed, newest, operation_time
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.log_session import MongoLogSession
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.records.segment import OPLOG, STREAM
from tailrace.connectors.mongodb.server.connection import Address, connect, retries, server_uuid
from tailrace.connectors.mongodb.server.faults import (
    explained,
    explained_error,
    is_not_yet_committed,
    is_passing,
    is_refused_login,
    patiently,
)
from tailrace.connectors.mongodb.server.routers import answers, for_cursors
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot.windows import Incremental, MongoWindows
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Offset, Task
from tailrace.log.engine import LogEngine
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from pymongo import MongoClient

log = logging.getLogger("tailrace")

# Longest time in which a change stream must return its first position, in s.
START_SECONDS = 60.0
# Longest wait of the server for changes in a query that ends at the current end of the log, in ms.
TARGET_AWAIT_MS = 50


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies of the planner: the function that makes clients, and the runtime with its clock."""

    connect: Callable[[Address], MongoClient[Any]] = connect
    runtime: Runtime = THREADS


OUTSIDE = Environment()


class MongoPlanner(LogEngine[MongoOffset, ChangePosition, ChangePosition]):
    """Implements `tailrace.log.contracts.Planner` for MongoDB."""

    def __init__(self, config: Config, settings: EventSettings, outside: Environment = OUTSIDE) -> None:
        source = MongoSource(config, settings, outside)
        shown = MongoSettings.of(config, settings, "").events
        super().__init__(config, shown, outside.runtime, source, MongoOffset, _import_reader)


Log = contracts.OpenLog[MongoOffset, ChangePosition, ChangePosition]


class MongoSource(contracts.Source[MongoOffset, ChangePosition, ChangePosition]):
    """A replica set or a sharded cluster, read through its oplog or its change streams."""

    snapshots: MongoSnapshots

    def __init__(self, config: Config, settings: EventSettings, outside: Environment) -> None:
        self._outside = outside
        self._runtime = outside.runtime
        self._config = config
        self._events = settings
        self._captured = CollectionFilter(config)
        self._namespaces = Namespaces(self._captured)
        # the captured collections at the start; None if the user may not list them
        self._existing: frozenset[Namespace] | None = None
        self._commands = Commands(self._captured)
        self._streams = config["capture.mode"] != "oplog"
        self._kind = STREAM if self._streams else OPLOG
        self._majority = Majority(self.connect)
        self._client: MongoClient[Any] | None = None
        # the client that opens cursors, also for the reader's thread
        self._router: MongoClient[Any] | None = None
        # all sessions of a client use the password it was made with: if passwords change, the reader has its own client
        self._asks_password = bool(config["mongodb.password.command"])
        self._reader: MongoClient[Any] | None = None
        self._lock = self._runtime.condition()
        self._settings: MongoSettings | None = None
        self._server: str | None = None
        self._ends = False
        self._parallelism = config["event.order.segments"] or os.cpu_count() or 1
        self.snapshots = MongoSnapshots(
            config,
            self._captured,
            self._majority,
            self.connect,
            self._first_position,
            self._shape,
            self._uuid,
            reads_streams=self._streams,
            parallelism=self._parallelism,
            runtime=self._runtime,
        )
        self.incremental: Incremental | None = None
        if config["signal.data.collection"] or set(config["signal.enabled.channels"]) - {"source"}:
            windows = MongoWindows(
                config,
                self._captured.signals,
                self._cursors,
                lambda: sorted(self.snapshots.existing()),
                self._captured.includes,
                kind=self._kind,
                present=operation_time if self._streams else lambda client: newest(client).time,
                sees_majority=self._majority.is_seen,
                runtime=self._runtime,
            )
            self.incremental = Incremental(config, windows, self._runtime)

    def called(self, work: Callable[[], contracts.Result]) -> contracts.Result:
        return explained(lambda: self._logged_in(work))()

    def _logged_in(self, work: Callable[[], contracts.Result]) -> contracts.Result:
        """Call `work`; once more, with new clients, if the server refuses a password that a program has supplied."""
        try:
            return work()
        except Exception as error:
            if not self._asks_password or not is_refused_login(error):
                raise
            self._close_clients()
            return work()

    # --- sessions ------------------------------------------------------------------------------------------------

    def connect(self) -> MongoClient[Any]:
        """Return the planner's client."""
        if self._client is None:
            self._client = self._outside.connect(Address.of(self._config))
        return self._client

    def _cursors(self) -> MongoClient[Any]:
        """Return a client whose cursors stay with their server; a new client once its router is gone."""
        with self._lock:
            if self._router is not None and (self._router is self._client or answers(self._router)):
                return self._router
            if self._router is not None:
                self._router.close()
            self._router = for_cursors(self.connect(), Address.of(self._config), self._outside.connect)
            return self._router

    def _reading(self) -> MongoClient[Any]:
        """Return the client that reads the log from now on, with the current password."""
        if not self._asks_password:
            return self._cursors()
        if self._reader is not None:
            self._reader.close()
        address = Address.of(self._config)
        client = self._reader = self._outside.connect(address)
        self._reader = for_cursors(client, address, self._outside.connect)
        if self._reader is not client:
            client.close()
        return self._reader

    def _shape(self) -> MongoSettings:
        """Return the settings of events, with the name of the replica set."""
        if self._settings is None:
            name = str(self.connect().admin.command("hello").get("setName") or "")
            if not name and not self._streams:
                raise PrerequisiteError(
                    "The server is not a member of a replica set, so it has no oplog.",
                    "Start it with --replSet and run rs.initiate(); a sharded cluster is read through change streams.",
                )
            self._settings = MongoSettings.of(self._config, self._events, name)
        return self._settings

    def _uuid(self) -> str:
        """Return the server's identity at the first call; "" if the user may not see it."""
        if self._server is None:
            self._server = server_uuid(self.connect())
        return self._server

    # --- the start -----------------------------------------------------------------------------------------------

    def prepare(self, since: MongoOffset) -> None:
        self._shape()
        if not snapshot_mode(self._config).mends:
            self._demand_server(since)
        if self._config["guardrail.collections.max"]:
            count = sum(one != self._captured.signals for one in self.snapshots.existing())
            guard_number(self._config, count, "collections")
        self._warn(since)

    def _warn(self, since: MongoOffset) -> None:
        """Log warnings for collections whose changes are not all in the log, and for newly captured collections that
        already have documents."""
        from pymongo.errors import OperationFailure

        mode = snapshot_mode(self._config)
        if not mode.streams:
            return
        try:
            self._existing = frozenset(self.snapshots.existing())
            for one in coverage.findings(self.connect(), self._captured):
                log.warning("%s %s", one.text, one.remedy)
            late = self._late(since.choice) if since.choice and mode.reads != "never" else []
        except OperationFailure as error:
            if is_passing(error):
                raise
            # a user who may not list collections gets no warnings about them
            return
        if late:
            log.warning(
                "the lists capture %s from now on, and the log does not bring the documents that are already there; "
                "remedy: read them by a snapshot (signal execute-snapshot)",
                listed(late),
            )

    def _late(self, before: str) -> list[str]:
        """Return the captured collections that have documents and were not captured by an earlier choice."""
        if before == choice(self._config):
            return []
        was, client = chosen(before), self.connect()
        return [
            ".".join(one)
            for one in self.snapshots.existing()
            if one != self._captured.signals
            and not was.includes(*one)
            and client[one[0]][one[1]].find_one({}, {"_id": 1}) is not None
        ]

    def clear_lost(self, since: MongoOffset) -> str:
        try:
            self._demand_server(since)
            self._demand(since.log)
        except PositionLost as error:
            return error.message
        except Exception as error:
            explained = explained_error(error)
            if isinstance(explained, PositionLost):
                return explained.message
            raise
        return ""

    def first(self) -> MongoOffset:
        return MongoOffset(self._first_position(), choice=choice(self._config), server=self._uuid())

    def _first_position(self) -> ChangePosition:
        """Return the position at which a query without checkpoint begins: the current one, or capture.start.op.time."""
        at = self._config["capture.start.op.time"]
        if not self._streams:
            return ChangePosition(at, WHOLE) if at and at > 0 else self._majority.newest()
        if at and at > 0:
            # no token is needed: the first answer of the stream may already hold changes
            return ChangePosition(at, 0)
        feed = self._feed()
        until = self._runtime.monotonic() + START_SECONDS
        try:
            feed.open(ChangePosition())
            while self._runtime.monotonic() < until:
                chunk = feed.read()
                if chunk is not None and chunk.reached.token:
                    return chunk.reached
        finally:
            feed.close()
        raise PrerequisiteError(
            "The server gives no resume token for a change stream in which nothing happens.",
            "Change streams need MongoDB 4.0.7 or later.",
        )

    def _demand_server(self, since: MongoOffset) -> None:
        """Raise PositionLost if the offset is of another server, as its timestamps are not comparable."""
        if since.server and self._uuid() and since.server != self._uuid():
            raise PositionLost(
                "The checkpoint is of another replica set or sharded cluster than the one that the options name.",
                "Correct mongodb.connection.string; or delete the checkpoint to start with a snapshot, or set "
                "snapshot.mode=when_needed.",
            )

    def _demand(self, position: ChangePosition) -> None:
        """Raise PositionLost if the log can no longer be read from `position`."""

        def attempt() -> None:
            feed = self._feed()
            try:
                feed.open(position)
                feed.read()
            finally:
                feed.close()

        patiently(attempt, *retries(self._config), self._runtime)

    def present(self) -> ChangePosition:
        """Return a position after an entry that the feed is sure to reach."""
        self._shape()
        self._ends = True
        if self._streams:
            return ChangePosition(operation_time(self.connect()), WHOLE)
        # a new primary does not know at first which entries a majority has
        newest = patiently(self._majority.present, *retries(self._config), self._runtime, is_not_yet_committed)
        return ChangePosition(newest.time, WHOLE)

    # --- the log -------------------------------------------------------------------------------------------------

    def _feed(self) -> ChangeSource:
        config = self._config
        await_ms = config["cursor.max.await.time.ms"] or None
        if self._ends:
            # a query that ends at the current end of the log must not wait for later changes
            await_ms = min(await_ms or TARGET_AWAIT_MS, TARGET_AWAIT_MS)
        client = self.connect()
        if self._streams:
            settings = StreamSettings.of(config, self._captured)
            return ChangeStreamFeed(
                self._reading, self._namespaces, settings, await_ms=await_ms, commands=self._commands
            )
        whole = self._events.provide_transaction_metadata
        return OplogFeed(
            client,
            self._namespaces,
            await_ms=await_ms,
            majority=self._majority.is_seen(),
            whole=whole,
            commands=self._commands,
            renewed=self._reading if self._asks_password else None,
        )

    def open(self, since: MongoOffset, until: MongoOffset | None, target: ChangePosition | None) -> MongoLogSession:
        """Open the log after `since`.

        A batch up to `until` is read again in full: raises PositionLost if the log no longer has one of its ends.
        """
        if until is not None:
            self._demand(until.log)
        config = self._config
        session = MongoLogSession(
            MongoFeed(self._feed(), since.log, ReaderSettings.of(config)),
            config,
            self._shape(),
            self._namespaces.names,
            self._kind,
            self.incremental,
            self._parallelism,
            lambda: operation_time(self.connect()),
            self._uuid(),
            self._runtime,
        )
        session.start()
        return session

    def tasks(self, since: MongoOffset, until: MongoOffset) -> list[Task]:
        return self.snapshots.tasks(since, until)

    # --- beside the log ------------------------------------------------------------------------------------------

    @property
    def captured_tables(self) -> int | None:
        there = self._existing
        return None if there is None else len(there.union(self._namespaces.names.copy()) - {self._captured.signals})

    def status(self, log: Log | None) -> Offset | None:
        if not isinstance(log, MongoLogSession):
            return None
        newest_ = MongoOffset(log.newest()).to_json()
        running = None if self.incremental is None else self.incremental.status()
        return newest_ if running is None else newest_ | {"snapshot": running}

    def close(self) -> None:
        if self.incremental is not None:
            self.incremental.close()
        self._close_clients()
        if self._reader is not None:
            self._reader.close()

    def _close_clients(self) -> None:
        with self._lock:
            for client in (self._router, self._client):
                if client is not None:
                    client.close()
            self._router = self._client = None


def _import_reader() -> None:
    """Import the driver and the compiled kernels of the planner."""
    import pymongo  # noqa: F401

    fields.load_kernels()
