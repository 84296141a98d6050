"""How the log is read, from where, what of it, and by which connections. Planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.identity import ServerId
from tailrace.connectors.postgres.log.visible import Visible
from tailrace.connectors.postgres.options import stream_parameters
from tailrace.connectors.postgres.protocol.position import LogPosition, TargetLsn
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address, Connect, connect, has_no_encoding
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    import psycopg

# The server has a slice whole before it sends any of it, in temporary files what its memory does not hold.
_SLICE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What the reader needs to know, all sizes in bytes and times in seconds.

    A backlog of more than `catch_up_above` bytes of WAL is read by the catch-up gear in slices of `slice_bytes` or more
    (the first one of `first_slice_bytes`, so that the first batch starts early, unless `gathers` says that batches wait
    for what there is to read), down to `stream_below`. A lost session is tried again `max_retries` times in a row (-1:
    for ever), a slot that another client holds `slot_retries` times, with growing pauses of at most the delays. Up to
    `in_progress_limit` bytes of transactions are taken before their commit. `parameters` are further ones of pgoutput.
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
        """Those of a configuration."""
        queue_bytes = config["max.queue.size.in.bytes"]
        sizes: dict[str, Any] = (
            {"memory_limit": queue_bytes, "disk_limit": 0, "in_progress_limit": queue_bytes} if queue_bytes else {}
        )
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
        """Bytes of WAL in the next slice, for which the server reads `before` bytes as well: it does so for each."""
        least = self.first_slice_bytes if is_first and not self.gathers else self.slice_bytes
        return max(least, min(before // 2, _SLICE_BYTES))


@dataclass(frozen=True, slots=True)
class Since:
    """Where reading begins: behind `log`.

    `server` is whose log was read before, up to `reached_lsn`: the log of another one is refused; None: any is taken.
    """

    log: LogPosition
    server: ServerId | None = None
    reached_lsn: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of the log is wanted.

    `visible` is what a snapshot has shown of it already. With `target_lsn` nothing that commits after it is wanted,
    and reading ends there. With `numbered_without` events are numbered within their transactions, but for operations
    that give none. `takes(prefix)` says which logical messages are captured, None: none. `shows(table)` names the
    columns that an update must change to be delivered; None: every update is.
    """

    visible: Visible | None = None
    target_lsn: TargetLsn | None = None
    numbered_without: frozenset[str] | None = None
    takes: Callable[[str], bool] | None = None
    shows: Callable[[TableSchema], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """All that a planner has of the world: how it opens sessions with a server, and how time passes meanwhile."""

    connect: Connect = connect
    arrow: Callable[[Address], ArrowConnection] = ArrowConnection
    runtime: Runtime = THREADS


OUTSIDE = Environment()


@dataclass(frozen=True, slots=True)
class Connections:
    """How to open each kind of connection; called by the reader's thread, `arrow` by another one beside it as well."""

    control: Callable[[], psycopg.Connection[Any]]
    replication: Callable[[], psycopg.Connection[Any]]
    arrow: Callable[[], ArrowConnection]

    @classmethod
    def of(cls, config: Mapping[str, Any], connection: psycopg.Connection[Any], outside: Environment) -> Connections:
        """Those of a configuration, to the server that `connection` has been made to."""
        address, any_bytes = Address.of(config, connection), has_no_encoding(connection)
        return cls(
            control=lambda: outside.connect(config, limited=False),
            replication=lambda: outside.connect(config, replication=True, any_bytes=any_bytes),
            arrow=lambda: outside.arrow(address),
        )
