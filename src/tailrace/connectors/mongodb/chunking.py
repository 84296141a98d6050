"""MongoSnapshots: start initial and blocking snapshots, and give each batch its chunks. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.majority import Majority
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, choice
from tailrace.connectors.mongodb.log.oplog import operation_time
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.server.connection import Address
from tailrace.connectors.mongodb.server.faults import is_passing
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot import chunks as snapshot
from tailrace.connectors.mongodb.snapshot.plan import SnapshotPlan, SnapshotProgress
from tailrace.errors import ConfigError
from tailrace.log import contracts
from tailrace.log.contracts import Task
from tailrace.log.notifications import PendingNotifications
from tailrace.process.runtime import Runtime
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from pymongo import MongoClient

log = logging.getLogger("tailrace")


class MongoSnapshots(contracts.Snapshots[MongoOffset]):
    """Snapshots of the collections that `captured` includes.

    `first` returns the position at which a query begins to read the log, `shape` the settings of events, and `server`
    the server's identity for the offset. `reads_streams` is True if the log is a change stream.
    """

    def __init__(
        self,
        config: Config,
        captured: CollectionFilter,
        majority: Majority,
        connect: Callable[[], MongoClient[Any]],
        first: Callable[[], ChangePosition],
        shape: Callable[[], MongoSettings],
        server: Callable[[], str],
        *,
        reads_streams: bool,
        parallelism: int,
        runtime: Runtime,
    ) -> None:
        self.notifications = CollectionNotifications(config, runtime)
        self._config = config
        self._captured = captured
        self._majority = majority
        self._connect = connect
        self._first = first
        self._shape = shape
        self._server = server
        self._reads_streams = reads_streams
        self._parallelism = parallelism
        self._streams = snapshot_mode(config).streams
        self._names: Sequence[Namespace] = ()

    def existing(self) -> list[Namespace]:
        """Return the captured collections that exist now, in the order of a snapshot."""
        return snapshot.collections(self._connect(), self._captured, self._shape().legacy)

    def start(self, since: MongoOffset, *, fresh: bool) -> MongoOffset:
        """Plan a snapshot. The log is read from a position before the snapshot.

        A later start (`always`) skips the changes since the last run, as Debezium does: the snapshot shows their
        result.
        """
        at = self._present()
        position = self._first() if self._streams else since.log
        if self._streams and not self._reads_streams:
            at = position
        names = snapshot.chosen(self._config, self.existing(), self._captured)
        after = self._majority.after(names, at, position)
        made = self._plan(names, snapshot.filters(self._config), after)
        progress = SnapshotProgress(made, at, 0, _number(since))
        return replace(since, log=position, snapshot=progress, choice=choice(self._config), server=self._server())

    def block(self, since: MongoOffset) -> MongoOffset:
        from pymongo.errors import OperationFailure

        tables = since.progress.blocking
        names = [(one.schema, one.table) for one in tables]
        conditions = tuple(((one.schema, one.table), one.filter) for one in tables if one.filter)
        at = self._present()
        try:
            made = self._plan(names, conditions, self._majority.after(names, at, since.log))
        except (ValueError, OperationFailure) as error:
            if is_passing(error):
                raise
            why = f"code {error.code}" if isinstance(error, OperationFailure) else str(error)
            raise ConfigError(why, "Send the signal again, with a condition that MongoDB takes.") from None
        return replace(since, snapshot=SnapshotProgress(made, at, 0, _number(since)))

    def _plan(
        self, names: Sequence[Namespace], conditions: tuple[tuple[Namespace, str], ...], after: int
    ) -> SnapshotPlan:
        made = snapshot.plan(self._connect(), names, conditions, after=after)
        count = len({c.namespace for c in made.chunks})
        log.info("the snapshot begins (collections: %d, chunks: %d)", count, len(made.chunks))
        self._names = names
        return made

    def _present(self) -> ChangePosition:
        """Return the current position, which the records of a snapshot show if it does not begin a query."""
        return ChangePosition(operation_time(self._connect())) if self._reads_streams else self._majority.newest()

    @property
    def table_count(self) -> int:
        return len(self._names)

    def count(self) -> Mapping[Namespace, int]:
        client = self._connect()
        return {name: client[name[0]][name[1]].count_documents({}) for name in self._names}

    def advance(self, since: MongoOffset, max_rows: int | None, *, everything: bool) -> SnapshotProgress:
        assert since.snapshot is not None
        total = len(since.snapshot.plan.chunks)
        return replace(
            since.snapshot, done=min(total, since.snapshot.done + (total if everything else 3 * self._parallelism))
        )

    def tasks(self, since: MongoOffset, until: MongoOffset) -> list[Task]:
        """Return the tasks for the chunks between the two offsets."""
        before, progress = since.snapshot, until.snapshot
        if progress is None:
            return []
        first = before.done if before is not None and before.number == progress.number else 0
        address = Address.of(self._config)
        plan, done, last = progress.plan, progress.done, -1
        chunks = [(chunk, plan.filter(chunk.namespace)) for chunk in plan.chunks]
        after = self._majority.after([chunk.namespace for chunk, _ in chunks], progress.at, until.log)
        if progress.is_complete and chunks:
            # a chunk that became empty since the snapshot was planned cannot give the snapshot's last document
            last = snapshot.last_filled(self._connect(), plan, first, after)
            done = last + 1
        return [
            snapshot.SnapshotTask(
                address,
                replace(chunks[number][0], last=number == last),
                chunks[number][1],
                progress.at,
                number,
                self._config["snapshot.fetch.size"],
                self._shape(),
                after,
                tuple(chunks[:number]) if number == last else (),
                asked=bool(since.progress.blocking or since.progress.reading),
            )
            for number in range(first, done)
        ]


def _number(since: MongoOffset) -> int:
    """Return the number of the next snapshot."""
    return 1 if since.snapshot is None else since.snapshot.number + 1


class CollectionNotifications(PendingNotifications[Namespace, SnapshotProgress]):
    """PendingNotifications of one query, about collections and their documents."""

    def chunks(self, before: SnapshotProgress, after: SnapshotProgress, *, asked: bool) -> None:
        if not self.are_wanted:
            return
        plan = after.plan
        names: Sequence[Namespace] = list(self._rows) or list(dict.fromkeys(c.namespace for c in plan.chunks))
        for chunk in plan.chunks[before.done : after.done]:
            if not chunk.lower:
                self._add(self._initial.begun(names, chunk.namespace))
            if not chunk.upper:
                self._add(self._initial.scanned(names, chunk.namespace, self._rows.get(chunk.namespace, 0)))
        if after.done >= len(plan.chunks):
            self._add(self._initial.of("COMPLETED"))
