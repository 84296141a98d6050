"""BinlogFeed: reads the log like a replica, over a lasting session. Planner.

The methods run on the reader's thread, except for the last section.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.log import faults
from tailrace.connectors.binlog.log.dump import Dump, ServerRefused
from tailrace.connectors.binlog.log.gtids import MysqlGtids
from tailrace.connectors.binlog.log.identity import ServerIdentity
from tailrace.connectors.binlog.log.indexed_run import Rows
from tailrace.connectors.binlog.log.indexing import IndexedStep, Indexer
from tailrace.connectors.binlog.log.position import BinlogPosition, Committed, number_of
from tailrace.errors import TailraceError
from tailrace.log import contracts
from tailrace.log.contracts import Setback
from tailrace.log.spool import limits
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = logging.getLogger("tailrace")

# The spool's limits in bytes, unless max.queue.size.in.bytes is set.
MEMORY_LIMIT = 128 << 20
DISK_LIMIT = 512 << 20
# The most bytes that are read for a run, and the least waiting bytes that count as a backlog.
RUN_BYTES = 4 << 20
BACKLOG_BYTES = 1 << 20
PATIENCE = 0.25


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The reader's settings.

    - `server_id` is the replica's id; `memory_limit` and `disk_limit` are the spool's limits in bytes.
    - `heartbeat` is the number of seconds between heartbeats of an idle server.
    - `max_retries` is the most retries of a lost session in a row (-1: for ever), with pauses of up to `retry_delay`
      seconds.
    - `ignores_gtids`: resume by file and position only.
    """

    server_id: int = field(default_factory=lambda: random.randrange(1 << 24, 1 << 31))
    memory_limit: int = MEMORY_LIMIT
    disk_limit: int = DISK_LIMIT
    heartbeat: float = 10.0
    max_retries: int = -1
    retry_delay: float = 10.0
    ignores_gtids: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ReaderSettings:
        """Return the settings of a configuration."""
        queue = config["max.queue.size.in.bytes"]
        sizes: dict[str, Any] = {}
        if queue:
            sizes["memory_limit"], sizes["disk_limit"] = limits(queue)
        if config["database.server.id"]:
            sizes["server_id"] = config["database.server.id"]
        return cls(
            heartbeat=min(10.0, 0.8 * config["connect.keep.alive.interval.ms"] / 1000),
            max_retries=config["errors.max.retries"],
            retry_delay=config["retriable.restart.connector.wait.ms"] / 1000,
            ignores_gtids=config["gtid.ignore.on.recovery"],
            **sizes,
        )


@dataclass(frozen=True, slots=True)
class Sessions:
    """Functions for sessions: `connect` opens a session for a dump, `identify` returns the identity of its server."""

    connect: Callable[[], Connection[Any]]
    identify: Callable[[Connection[Any]], ServerIdentity]


class BinlogFeed(contracts.LogFeed[BinlogPosition, Committed, Rows]):
    """The log after the position of `indexer`. Implements tailrace.log.contracts.LogFeed."""

    def __init__(
        self,
        settings: ReaderSettings,
        sessions: Sessions,
        indexer: Indexer,
        runtime: Runtime = THREADS,
        replayed: BinlogPosition | None = None,
    ) -> None:
        """`replayed` is the end of a batch that was planned before a restart and is read again."""
        self.settings = settings
        self.start = indexer.position
        self.runtime = runtime
        self.indexer = indexer
        self._sessions = sessions
        self._replayed = replayed
        self._bell = runtime.bell()
        self._dump: Dump | None = None
        self.server = self.start.server
        # the newest known place of the server's log, and the place up to which all events have been kept
        self.head = self._read = (self.start.epoch, number_of(self.start.file), self.start.end)
        self.epoch = self.start.epoch
        # the end of the log at the first session with the current server
        self.first_head = self.start
        self._sent = 0
        self._is_behind = False
        self._pending = self._read

    # --- sessions ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        connection = self._sessions.connect()
        try:
            identity = self._sessions.identify(connection)
            dump = Dump(connection, self._bell, self.settings.heartbeat, self.runtime)
            self._begin(dump, identity, self.indexer.position)
        except BaseException:
            connection._force_close()
            raise
        self._dump = dump
        place = self.epoch, number_of(identity.file), identity.end
        self.head = max(self.head, place)

    def _begin(self, dump: Dump, identity: ServerIdentity, position: BinlogPosition) -> None:
        """Request the log after `position`: by file if the server is the same as before, else by transaction ids.

        Raises PositionLost if the server does not have the log from there on, or has another log.
        """
        is_same = not position.server or position.server == identity.uuid
        has_ids = identity.has_gtids and bool(position.gtids) and not self.settings.ignores_gtids
        if identity.has_gtids and position.gtids:
            faults.demand_executed(identity, position, is_same)
        by_id = not is_same and has_ids
        replayed = self._replayed
        if by_id and replayed is not None and position.is_before(replayed) and replayed.epoch == position.epoch:
            # the end of the replayed batch has no position on this server
            raise faults.planned_elsewhere(replayed)
        if not is_same and not by_id:
            raise faults.other_server(position, identity)
        origin = position.resumes
        dump.prepare(identity.is_mariadb)
        epoch = position.epoch + by_id
        # set before `server`: other threads use it as their target once they see the new server
        if self.first_head is self.start or self.first_head.epoch != epoch:
            self.first_head = replace(identity.position(), epoch=epoch)
        self.server = identity.uuid
        self.indexer.reset(position, by_id, identity.uuid)
        self.epoch = epoch
        if not by_id:
            dump.begin(self.settings.server_id, origin.file, origin.start)
        elif identity.is_mariadb:
            dump.begin_after(self.settings.server_id, origin.gtids)
        else:
            dump.begin_behind(self.settings.server_id, MysqlGtids(origin.gtids))
        if by_id:
            log.info("reading goes on from another server, behind the transactions %s", origin.gtids)

    def read(self, is_asked: bool, is_hurried: Callable[[], bool]) -> IndexedStep | None:
        dump = self._dump
        assert dump is not None
        if self.indexer.waiting < RUN_BYTES:
            patience = 0.0 if is_asked else PATIENCE
            if not dump.wait(patience, is_hurried) and not dump.available:
                # nothing has arrived, so threads that wait for progress are not woken
                self._is_behind = False
                return self._stepped()
            while dump.available < RUN_BYTES and dump.wait(0.0, is_hurried):
                pass
            self._is_behind = dump.available >= BACKLOG_BYTES
            buffer, spans = dump.take()
            self.indexer.add(buffer, spans)
        self._sent += 1
        return self._stepped()

    def _stepped(self) -> IndexedStep | None:
        """Return the next complete run; without one, update the place up to which the log has been read."""
        step = self.indexer.step()
        file, at = self.indexer.read_to
        reached = self.epoch, number_of(file), at
        # the log counts as read up to the beginning of an open transaction: a full spool may keep it open
        begun = self.indexer.begun
        read = reached if begun is None else (self.epoch, number_of(begun[0]), begun[1])
        if step is None:
            self._read = max(self._read, read)
        else:
            self._pending = read
        self.head = max(self.head, reached)
        return step

    def keep(self, step: contracts.Step[BinlogPosition, Rows]) -> None:
        assert isinstance(step, IndexedStep)
        self.indexer.keep(step)
        self._read = max(self._read, self._pending)

    def close(self) -> None:
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()

    def setback(self, error: BaseException) -> Setback:
        if not isinstance(error, Exception):
            return Setback.last(TailraceError(f"Reading the log has ended: {type(error).__name__}"))
        if isinstance(error, ServerRefused) and not self.indexer.has_begun and faults.is_amiss(error):
            return Setback.last(self.indexer.replaced())
        lasting = faults.lasting(error)
        if lasting is not None:
            return Setback.last(lasting)
        text = f"reading the log failed ({faults.words(error)})"
        of = self.settings
        return Setback("session", text, of.max_retries, 0.2, of.retry_delay, faults.exhausted(error))

    # --- by other threads, too -----------------------------------------------------------------------------------

    @property
    def progress(self) -> int:
        return self._sent

    @property
    def is_behind(self) -> bool:
        return self._is_behind

    @property
    def is_prompt(self) -> bool:
        return not self._is_behind

    @property
    def read_place(self) -> tuple[int, int, int]:
        """The epoch, the file's number and the position up to which the log has been kept."""
        return self._read

    def hurry(self) -> None:
        self._bell.ring()

    def has_read(self, target: BinlogPosition) -> bool:
        # the position of a target is the end of the log of this server
        read = self._read
        return read >= (target.epoch, number_of(target.file), target.end)

    def has_passed(self, position: BinlogPosition) -> bool:
        epoch, number, start, _ = position.key
        return self._read > (epoch, number, start)

    def reached(self, start: BinlogPosition) -> BinlogPosition:
        found = self.indexer.position
        return found if start.is_before(found) and found.consumed is None else start

    def acknowledge(self, position: Committed) -> BinlogPosition:
        # nothing to report: the server expires its log by its settings, not by what replicas have read
        return position

    def end(self) -> None:
        """Release the bell, after the last session."""
        self._bell.close()
