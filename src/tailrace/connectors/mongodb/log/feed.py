"""MongoFeed: adapts an oplog or a change stream to the planner's reader. Planner, the reader's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, IndexedRun
from tailrace.connectors.mongodb.log.position import ChangePosition, Committed, Read
from tailrace.connectors.mongodb.server.connection import retries
from tailrace.connectors.mongodb.server.faults import explained_error, is_passing, is_refused_login
from tailrace.errors import ConnectionFailed, SpoolFailed
from tailrace.log import contracts
from tailrace.log.contracts import Setback
from tailrace.log.spool import limits

# The spool's limits in bytes, unless max.queue.size.in.bytes is set.
MEMORY_LIMIT = 128 << 20
DISK_LIMIT = 512 << 20
_BACKLOG_ANSWER = 1 << 20


class ChangeSource(Protocol):
    """A source of captured changes, used by one thread. Its methods raise PyMongo's errors and TailraceError."""

    caught_up_at: int
    """The BSON timestamp, in 64 bits, up to which the server's answers prove that it has sent every change."""

    answered_at: int
    """The server's operation time in its latest answer, which may be ahead of what it has sent."""

    def open(self, position: ChangePosition) -> None:
        """Prepare to read the changes after `position`; also called to start again after an error."""
        ...

    def read(self) -> IndexedRun | None:
        """Return the next run; None if there is nothing new for a while."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The spool's limits in bytes, and the retries of a lost connection in a row (-1: for ever).

    Pauses double from `first_delay` to `retry_delay` seconds. `asks_password` is True if each login runs a program for
    its password: a refused login is then tried again.
    """

    memory_limit: int = MEMORY_LIMIT
    disk_limit: int = DISK_LIMIT
    max_retries: int = -1
    first_delay: float = 0.1
    retry_delay: float = 10.0
    asks_password: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ReaderSettings:
        """Return the settings of a configuration."""
        given = config["max.queue.size.in.bytes"]
        asks = bool(config.get("mongodb.password.command"))
        memory, disk = limits(given) if given else (MEMORY_LIMIT, DISK_LIMIT)
        return cls(memory, disk, *retries(config), asks_password=asks)


class MongoFeed(contracts.LogFeed[ChangePosition, Committed, ChangeArrays]):
    """The changes of `source` after `start`.

    The server answers when something has changed, or after a while; a request cannot be cut short. Its cursors stay
    open without further calls.
    """

    is_behind = False
    # the number of answers
    progress = 0

    def __init__(
        self, source: ChangeSource, start: ChangePosition, settings: ReaderSettings = ReaderSettings()
    ) -> None:
        self.start = start
        self.settings = settings
        self._source = source
        self.reached_position = Read(start)
        # the source's caught_up_at when the latest run was kept
        self._read_to = 0
        # the bytes of the log in the answers
        self.read_bytes = 0

    def open(self) -> None:
        self._source.open(self.reached_position)
        # runs that were read but not kept are read again
        self._source.caught_up_at = self._read_to

    def read(
        self, is_asked: bool, is_hurried: Callable[[], bool]
    ) -> contracts.Step[ChangePosition, ChangeArrays] | None:
        run = self._source.read()
        self.progress += 1
        if run is not None:
            return contracts.Step(run, len(run) > 0)
        self._read_to = self._source.caught_up_at
        self.is_behind = False
        return None

    def keep(self, step: contracts.Step[ChangePosition, ChangeArrays]) -> None:
        run = step.run
        assert isinstance(run, IndexedRun)
        self.reached_position = run.reached
        self._read_to = self._source.caught_up_at
        self.read_bytes += run.read_bytes
        # after a large answer more changes are waiting
        self.is_behind = run.read_bytes >= _BACKLOG_ANSWER

    def close(self) -> None:
        self._source.close()

    def setback(self, error: BaseException) -> Setback:
        end = explained_error(error)
        # a program that fails to print a password may succeed later
        is_password = self.settings.asks_password and (is_refused_login(error) or isinstance(error, ConnectionFailed))
        passes = is_passing(error) or is_password or isinstance(error, SpoolFailed)
        if not isinstance(error, Exception) or not passes:
            return Setback.last(end)
        text = f"reading the log is interrupted ({type(error).__name__})"
        of = self.settings
        return Setback("session", text, of.max_retries, of.first_delay, of.retry_delay, end)

    def has_read(self, target: ChangePosition) -> bool:
        # the first answer proves that this is the log which the checkpoint refers to
        return self.progress > 0 and (self._read_to >= target.time or self.reached_position.time > target.time)

    def has_passed(self, position: ChangePosition) -> bool:
        return not self.reached_position.is_before(position) or self._read_to > position.time

    def reached(self, start: ChangePosition) -> ChangePosition:
        reached = self.reached_position
        # a token may advance while the known time does not
        advanced = start.is_before(reached) or (start.key == reached.key and start.token != reached.token)
        return reached if advanced else start

    def head(self) -> ChangePosition:
        """Return the end of the server's log, as far as it is known, while a backlog is read; the zero position
        otherwise."""
        return ChangePosition(self._source.answered_at if self.is_behind else 0)
