"""Settings of the log reader: sizes and times, start, selection of changes, and connections. Planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.identity import ServerId
from tailrace.connectors.postgres.log.visibility import VisibleTransactions
from tailrace.connectors.postgres.options import stream_parameters
from tailrace.connectors.postgres.protocol.position import LogPosition, TargetLsn
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address, Connect, connect, has_no_encoding
from tailrace.log.spool import limits
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    import psycopg

# The server decodes a whole slice before it sends any of it, and keeps in temporary files what exceeds its memory.
_SLICE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Settings of the reader; sizes are in bytes and times in seconds.

    The catch-up gear reads a backlog of more than `catch_up_above` bytes of WAL, until less than `stream_below` is
    left. A slice has `slice_bytes` or more. The first slice has `first_slice_bytes`, so that the first batch starts
    early. With `gathers` it has `slice_bytes`, too, because batches wait for the whole backlog. A lost session is
    retried `max_retries` times in a row (-1: for ever), and a slot in use by another client `slot_retries` times, with
    growing pauses up to the delays. At most `in_progress_limit` bytes of transactions are accepted before their commit.
    `parameters` are additional parameters of pgoutput.
    """

    slot: str
    publication: str
    parameters: tuple[tuple[str, str], ...] = ()
    status_interval: float = 10.0
    memory_limit: int = 128 << 20
    disk_limit: int = 512 << 20
    in_progress_limit: int = 512 << 20
    catch_up_above: int = 32 << 20
    stream_below: int = 4 << 20
    first_slice_bytes: int = 16 << 20
    gathers: bool = False
    slice_bytes: int = _SLICE_BYTES
    max_retries: int = -1
    retry_delay: float = 10.0
    slot_retries: int = 6
    slot_retry_delay: float = 10.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ReaderSettings:
        """Return the settings of a configuration."""
        queue_bytes = config["max.queue.size.in.bytes"]
        sizes: dict[str, Any] = {}
        if queue_bytes:
            memory, disk = limits(queue_bytes)
            sizes = {"memory_limit": memory, "disk_limit": disk, "in_progress_limit": queue_bytes}
        return cls(
            slot=config["slot.name"],
            publication=config["publication.name"],
            parameters=stream_parameters(config["slot.stream.params"]),
            status_interval=config["status.update.interval.ms"] / 1000,
            max_retries=config["errors.max.retries"],
            retry_delay=config["retriable.restart.connector.wait.ms"] / 1000,
            slot_retries=config["slot.max.retries"],
            slot_retry_delay=config["slot.retry.delay.ms"] / 1000,
            gathers=bool(config.get("row.blocks")),
            slice_bytes=min(max(config["max.batch.size.in.bytes"], 1 << 20), _SLICE_BYTES),
            **sizes,
        )

    def size_of_slice(self, before: int, is_first: bool = False) -> int:
        """Return the bytes of WAL for the next slice. For each slice the server also reads `before` earlier bytes."""
        least = self.first_slice_bytes if is_first and not self.gathers else self.slice_bytes
        return max(least, min(before // 2, _SLICE_BYTES))


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Start of reading: after the position `log`.

    `server` is the server whose log was read before, up to `reached_lsn`. The log of another server is refused; if
    `server` is None, any log is accepted.
    """

    log: LogPosition
    server: ServerId | None = None
    reached_lsn: int = 0


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Selection of what is read from the log.

    `visible` are the transactions whose changes a snapshot has shown already. With `target_lsn` reading ends there:
    later commits are not read. With `numbered_without` events are numbered within their transactions; the operations
    that it names give no events. `takes(prefix)` returns True for the logical messages to capture; None: no message.
    `shows(table)` names the columns whose change makes an update an event; None: every update is delivered.
    """

    visible: VisibleTransactions | None = None
    target_lsn: TargetLsn | None = None
    numbered_without: frozenset[str] | None = None
    takes: Callable[[str], bool] | None = None
    shows: Callable[[TableSchema], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The planner's outside world: functions that open sessions with a server, and the runtime with its clock.

    `watches` is True if a thread monitors the slot (`slot_watch`).
    """

    connect: Connect = connect
    arrow: Callable[[Address], ArrowConnection] = ArrowConnection
    runtime: Runtime = THREADS
    watches: bool = False


OUTSIDE = Environment(watches=True)


@dataclass(frozen=True, slots=True)
class Connections:
    """Functions that open each kind of connection. The reader's thread calls them; a helper thread calls `arrow`,
    too."""

    control: Callable[[], psycopg.Connection[Any]]
    replication: Callable[[], psycopg.Connection[Any]]
    arrow: Callable[[], ArrowConnection]

    @classmethod
    def of(cls, config: Mapping[str, Any], connection: psycopg.Connection[Any], outside: Environment) -> Connections:
        """Return the connections of a configuration, to the server of `connection`."""
        address, any_bytes = Address.of(config, connection), has_no_encoding(connection)
        return cls(
            control=lambda: outside.connect(config, limited=False),
            replication=lambda: outside.connect(config, replication=True, any_bytes=any_bytes),
            arrow=lambda: outside.arrow(address),
        )
