"""Tasks of snapshots: chunks that are read through the relay. Worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import Marker
from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.dialect import DIALECTS
from tailrace.connectors.binlog.snapshot.point import RowOrigin
from tailrace.connectors.binlog.snapshot.relay import ALTERED, LOST, Route, TaskQuery, alone, reached, rows_of
from tailrace.connectors.binlog.snapshot.result import ServerError
from tailrace.connectors.binlog.snapshot.rows import as_reads, forms
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.plan import Chunk, markers

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.connectors.binlog.log.position import BinlogBatch

log = logging.getLogger("tailrace")

_TRIES = 5
_STOPPED, _CUT = (1317, 1927, 1053, 2006, LOST), (1969, 3024)
_CHANGED = (ALTERED, 1054, 1146, 1049, 1051)
_FORBIDDEN = (1044, 1142, 1143, 1370)
_AGAIN = "Start again with the same checkpoint: the chunks that are done are not read again."


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A chunk, read by `query` through the relay at `route`, or in a new session.

    A relay can be reached only on the planner's host. On other hosts a task reads the current rows, and changes from
    the log make the result consistent; `config` (holds the password) has the server's address.

    With `overridden` the query contains a statement of the configuration, with `asked` a statement of a signal. With
    `once` no query can continue after a failure of the task. `read` raises ConnectionFailed if the relay or its session
    has ended, or the table was altered; ConfigError if the configuration's statement fails. If a signal's statement
    fails, this is logged, and the rest of its rows is left out.
    """

    route: Route
    table: TableSchema
    chunk: Chunk
    query: TaskQuery
    origin: RowOrigin
    settings: EventSettings
    config: Config = field(repr=False)
    most_rows: int | None = None
    overridden: bool = False
    asked: bool = False
    once: bool = False

    def __repr__(self) -> str:
        return f"SnapshotTask({self.table.id}, chunk {self.chunk.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        return Consecutive((self,)).read()

    def batches(self) -> Iterator[BinlogBatch]:
        """Yield the rows as changes."""
        exact = is_exact(self.settings)
        for attempt in range(_TRIES):
            is_begun = False
            try:
                with self._reading(forms(self.table.columns, exact=exact)) as found:
                    for batch in self._marked(found):
                        is_begun = True
                        yield batch
                return
            except ServerError as error:
                if self.overridden and error.code not in _STOPPED:
                    if not self.asked:
                        raise override_error(self.table.id, f"fails with error {error.code}") from None
                    log.warning(
                        "the statement of a signal for %s fails (error %d): its other rows are left out",
                        self.table.id,
                        error.code,
                    )
                    return
                # if a session is lost before the first row, another one is tried
                if is_begun or error.code not in _STOPPED or attempt == _TRIES - 1:
                    raise failure(self.table.id, error, once=self.once) from None

    @contextmanager
    def _reading(self, wanted: Sequence[int]) -> Iterator[Iterator[list[pa.Array]]]:
        """Run the query, and yield an iterator over its rows."""
        try:
            client = reached(self.route)
        except ConnectionFailed:
            if self.query.is_exact:
                raise
            with alone(self.config, self.query, wanted) as found:
                yield found
            return
        with client:
            yield rows_of(client, self.route, self.query, wanted, self.most_rows)

    def _marked(self, found: Iterator[list[pa.Array]]) -> Iterator[BinlogBatch]:
        opened, ordinal = True, 0
        pending = next(found, None)
        while pending is not None:
            following = next(found, None)
            count = len(pending[0])
            marker = np.full(count, Marker.TRUE, np.uint8)
            for row, kind in markers(self.chunk, count, opened, following is None):
                marker[row] = kind
            # an ordinal of chunk number and row is unique within the snapshot
            yield as_reads(self.table, pending, (self.chunk.number << 40) + ordinal, marker, self.origin)
            opened, ordinal, pending = False, ordinal + count, following


@dataclass(frozen=True, slots=True)
class WindowTask:
    """The rows of a window that the planner has read. `rows` is an Arrow IPC stream with the columns of `table`."""

    table: TableSchema
    rows: bytes
    ordinal: int
    origin: RowOrigin
    settings: EventSettings

    @classmethod
    def of(
        cls, table: TableSchema, columns: list[pa.Array], ordinal: int, origin: RowOrigin, settings: EventSettings
    ) -> WindowTask:
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return cls(table, sink.getvalue().to_pybytes(), ordinal, origin, settings)

    def __repr__(self) -> str:
        return f"WindowTask({self.table.id})"

    def read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from tailrace.connectors.binlog.log.form import form_of
        from tailrace.events.record_assembly import to_rows

        with pa.ipc.open_stream(self.rows) as reader:
            columns = list(reader.read_next_batch().columns)
        marker = np.full(len(columns[0]), Marker.INCREMENTAL, np.uint8)
        form = form_of(DIALECTS[self.settings.connector])
        yield from to_rows(as_reads(self.table, columns, self.ordinal, marker, self.origin), self.settings, form)


@dataclass(frozen=True, slots=True)
class Consecutive:
    """Small tasks that one Spark task runs one after another, since a Spark task costs more than a small task takes."""

    tasks: tuple[SnapshotTask, ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.binlog.log.form import form_of
        from tailrace.log.rows.small_tables import records_of_reads

        for (settings, _), tasks in groupby(self.tasks, lambda task: (task.settings, task.origin)):
            form = form_of(DIALECTS[settings.connector])
            yield from records_of_reads(chain.from_iterable(task.batches() for task in tasks), settings, form)


def is_exact(settings: EventSettings) -> bool:
    """Return True if rows go into copies or typed rows, which keep exact values; other events show what the server
    prints."""
    return bool(settings.copies) or settings.typed is not None


def override_error(table: TableId, what: str) -> ConfigError:
    return ConfigError(
        f"The statement of snapshot.select.statement.overrides for {table} {what}.",
        "Correct it: it has to give every captured column of the table by its name.",
    )


def failure(table: TableId, error: ServerError, *, once: bool = False) -> TailraceError:
    """Return the error for the failure of a query of a chunk."""
    again = "Read again: that takes a new moment." if once else _AGAIN
    if error.code in _CHANGED:
        return ConnectionFailed(f"The table {table} was altered while it was read for the snapshot.", again)
    if error.code in _FORBIDDEN:
        return PrerequisiteError(
            f"The user may not read {table}: error {error.code} of the server.",
            f"grant select on {table} to the user; or leave columns out with column.exclude.list.",
        )
    if error.code in _CUT:
        return PrerequisiteError(
            f"The server has cancelled the read of {table} (error {error.code}).",
            "Let the user's statements take their time: see max_execution_time and max_statement_time.",
        )
    if error.code in _STOPPED:
        return ConnectionFailed(
            f"The read of {table} for the snapshot was stopped (error {error.code}): the session was ended, or another "
            "one waited to alter the table.",
            again,
        )
    return ConnectionFailed(f"Reading {table} for the snapshot failed: error {error.code} of the server.", again)
