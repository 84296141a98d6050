"""Tasks of snapshots: chunks to read, by pages or by keys, and sequences of tasks. Worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, cast

from tailrace.columns.batch import ChangeBatch
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.connectors.postgres.server.causes import deliberate
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.postgres.snapshot.rights import is_forbidden, refusal
from tailrace.connectors.postgres.snapshot.rows import read_chunk
from tailrace.connectors.postgres.snapshot.session import SnapshotOrigin, override_error
from tailrace.errors import ConnectionFailed, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.plan import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.connectors.postgres.snapshot.windows import ChunkRead
    from tailrace.log.contracts import Task


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A chunk to read under the exported snapshot `snapshot`, with the connection `address` (holds the password).

    With `overridden` the statement is SQL of the user, with `asked` SQL of a signal. With `once` the task does not
    belong to a query that can be restarted.

    Raises ConnectionFailed if the server cannot be reached, or if the snapshot is gone because the planner's session
    has ended: a restart of the query reads the remaining chunks under a new snapshot. Raises ConfigError if the user's
    statement fails. A failure of a signal's statement is logged, and ends the rows.
    """

    address: Address
    snapshot: str
    table: TableSchema
    chunk: Chunk
    statement: str
    origin: SnapshotOrigin
    settings: EventSettings
    form: str
    overridden: bool = False
    asked: bool = False
    once: bool = False

    def __repr__(self) -> str:
        return f"SnapshotTask({self.table.id}, chunk {self.chunk.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        return Consecutive((self,)).read()

    def batches(self) -> Iterator[ChangeBatch]:
        """Yield the rows as changes."""
        import adbc_driver_manager

        try:
            connection = KeptConnection.take(self.address)
            own, asked = self.overridden, self.asked
            yield from read_chunk(
                connection, self.snapshot, self.table, self.chunk, self.statement, self.origin, self.form, own, asked
            )
        except (adbc_driver_manager.Error, ConnectionFailed) as error:
            if getattr(error, "remedy", "") and not self.once:
                raise
            if self.overridden and not self.asked:
                # the server's text may hold values that the statement computed
                state = getattr(error, "sqlstate", None)
                raise override_error(self.table.id, f"fails with SQLSTATE {state}" if state else _HALF_WAY) from None
            raise _failure(self.table, error, self.once) from None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Chunks of an incremental snapshot, read one after another with the connection `address` (holds the password).

    Raises ConnectionFailed if the server cannot be reached or the snapshot is gone. A table that was altered since the
    snapshot gives no rows: the planner has its chunk read again. A failure of a signal's condition is logged, and ends
    the chunk's rows.
    """

    address: Address
    reads: tuple[ChunkRead, ...]
    settings: EventSettings

    def __repr__(self) -> str:
        return f"ReadTask({len(self.reads)} chunks)"

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_manager

        from tailrace.connectors.postgres.log.form import FORM
        from tailrace.connectors.postgres.snapshot.key_chunks import read_rows
        from tailrace.events.record_assembly import to_rows

        for part in self.reads:
            try:
                connection = KeptConnection.take(self.address)
                rows = read_rows(connection, part.snapshot, part.table, part.chunk, part.origin, part.superseded)
                for batch in rows:
                    yield from to_rows(batch, self.settings, FORM)
            except (adbc_driver_manager.Error, ConnectionFailed) as error:
                if getattr(error, "remedy", ""):
                    raise
                raise _failure(part.table.table, error) from None


@dataclass(frozen=True, slots=True)
class Consecutive:
    """Tasks that one worker runs one after another: another Spark task costs more than a small task takes."""

    tasks: tuple[Task, ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.log.form import FORM
        from tailrace.log.rows.small_tables import records_of_reads

        for found, tasks in groupby(self.tasks, _read_by):
            if found is None:
                for task in tasks:
                    yield from task.read()
            else:
                reads = cast(Iterator[SnapshotTask], tasks)
                yield from records_of_reads(chain.from_iterable(task.batches() for task in reads), found[0], FORM)


def _read_by(task: Task) -> tuple[EventSettings, SnapshotOrigin] | None:
    """Return a key that is equal for tasks whose rows are converted together; None for tasks of other kinds."""
    return (task.settings, task.origin) if isinstance(task, SnapshotTask) else None


def with_settings(task: Task, settings: EventSettings) -> Task:
    """Return a copy of a snapshot's task with these settings."""
    if isinstance(task, Consecutive):
        return Consecutive(tuple(with_settings(one, settings) for one in task.tasks))
    assert isinstance(task, SnapshotTask)
    return task if task.settings is settings else replace(task, settings=settings)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Runs `task` without yielding records, so that its worker loads the code that a snapshot's first window needs.

    A small stream keeps one worker busy. The other workers would take most of a second to load the compiled kernels,
    while the stream waits for the window's rows.
    """

    task: Task

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_postgresql  # noqa: F401

        from tailrace.connectors.postgres.values import texts

        texts.load()
        for _ in self.task.read():
            pass
        yield from ()


# The driver gives no SQLSTATE for a query that ends half-way.
_HALF_WAY = "has ended half-way (see the server's log)"


def _failure(table: TableSchema, error: Exception, once: bool = False) -> TailraceError:
    if (found := deliberate(error)) is not None:
        return found
    if is_forbidden(error):
        return refusal(table, [column.name for column in table.columns])
    text = str(error).strip().splitlines()[0].rstrip(".")
    if "invalid snapshot identifier" in text:
        text = "the snapshot is no longer kept"
    return ConnectionFailed(
        f"Reading {table.id} for the snapshot failed: {text}.",
        "Load again: that takes a new snapshot. A snapshot that no task reads is kept for read.hold.ms."
        if once
        else "Start again with the same checkpoint: the chunks that are done are not read again.",
    )
