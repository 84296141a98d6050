"""Tasks that read tables as they were at one position, while others write. Worker.

Sessions of these databases cannot share a snapshot. A task therefore reads its rows at any time after the position,
writes a row to the signal table, and waits until that row is captured. The change tables then have every change that
the task may have seen, and the task undoes the changes after the position.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any

from tailrace.columns.batch import Marker
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod
from tailrace.connectors.changetables.dialect import Key, KeyRange, Position, Session
from tailrace.connectors.changetables.log.past_rows import PastRows, PastRowsBuilder
from tailrace.connectors.changetables.log.sessions import borrowed, changes
from tailrace.connectors.changetables.log.tasks import TaskSource
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.log.spool import spool_failed
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.signals import WINDOW_CLOSE

if TYPE_CHECKING:
    import pyarrow as pa

# The longest wait for a row of the signal table to be captured, and the pause between two polls, in s.
CAPTURED_SECONDS, LOOK = 180.0, 0.05
_NUMBERS = frozenset(("tinyint", "smallint", "int", "integer", "bigint", "decimal", "numeric"))
_DATES = frozenset(("date",))
_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True)
class SignalTable:
    """The signal table, its change table, and whether rows are deleted after use."""

    table: TableId
    era: CapturePeriod
    deletes: bool

    def mark(self, session: Session, after: Position, runtime: Runtime = THREADS) -> Position:
        """Write a row, and return its commit position once it is captured. All earlier commits are then captured, too.

        Raises PrerequisiteError if this takes too long.
        """
        number = f"tailrace-read-{secrets.token_hex(8)}"
        session.write_signal(self.table, number, WINDOW_CLOSE, None)
        try:
            return self._captured(session, number, after, runtime)
        finally:
            if self.deletes:
                session.delete_signal(self.table, number)

    def _captured(self, session: Session, number: str, after: Position, runtime: Runtime) -> Position:
        """Wait for the row."""
        deadline = runtime.monotonic() + CAPTURED_SECONDS
        while runtime.monotonic() < deadline:
            newest = session.newest()
            if newest is not None and newest > after:
                found = self._find(session, number, after, newest)
                if found is not None:
                    return found
                after = newest
            runtime.sleep(LOOK)
        raise PrerequisiteError(
            f"A row that was written to {self.table} was not captured within {CAPTURED_SECONDS:.0f} s.",
            "Check that the capture process is running, and read again.",
        )

    def _find(self, session: Session, number: str, after: Position, upto: Position) -> Position | None:
        first = replace(self.era.table, columns=self.era.table.columns[:1], key=())
        for rows in session.changes(self.era.capture, first, after, upto):
            for row, text in enumerate(rows.columns[0].to_pylist()):
                if text is not None and text.decode("utf-8", "replace").strip() == number:
                    found: Position = rows.commit[row].as_py()
                    return found
        return None


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A range of the keys of a table: `table` has the columns to read, `number` makes its ordinals unique."""

    table: TableSchema
    era: CapturePeriod
    rows: KeyRange
    number: int


@dataclass(frozen=True, slots=True)
class HeldTask:
    """The rows of some parts at `position`.

    Lost connections are retried. Raises PositionLost if changes after the position are gone or a table was altered
    meanwhile, and the errors of sessions.
    """

    source: TaskSource
    database: str
    parts: tuple[HeldPart, ...]
    signals: SignalTable
    position: Position

    def __repr__(self) -> str:
        return f"HeldTask({len(self.parts)} parts)"

    def read(self) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            kept = [(part, stack.enter_context(self._kept(part))) for part in self.parts]
            upto = self._run(lambda session: self.signals.mark(session, self.position))
            self._demand()
            pasts: dict[TableId, PastRows] = {}
            for part, file in kept:
                # the parts of a table follow one another
                if part.table.id not in pasts:
                    pasts = {part.table.id: self._past(part, upto)}
                yield from self._rows(part, file, pasts[part.table.id])

    def _run(self, work: Any) -> Any:
        """Return the result of `work` with a session. Retries after lost connections."""

        def once() -> Any:
            with borrowed(self.source.dialect, self.database) as session:
                return work(session)

        return self.source.retries.run(once, lambda: True)

    def _kept(self, part: HeldPart) -> IO[bytes]:
        """Return the rows of a part as read, in memory or an unnamed file."""
        import pyarrow as pa

        def read(session: Session) -> IO[bytes]:
            file: IO[bytes] = tempfile.SpooledTemporaryFile(_MEMORY)  # noqa: SIM115
            schema = pa.schema([(str(place), pa.binary()) for place in range(len(part.table.columns))])
            try:
                with pa.ipc.new_stream(file, schema) as writer:
                    for columns in session.rows(part.table, part.rows):
                        writer.write_batch(pa.record_batch(columns, schema=schema))
                file.seek(0)
            except BaseException as error:
                file.close()
                if isinstance(error, OSError):
                    raise spool_failed(error, what=f"The rows of {part.table.id}") from None
                raise
            return file

        found: IO[bytes] = self._run(read)
        return found

    def _demand(self) -> None:
        """Raise PositionLost if a table was altered after the position."""
        eras = {part.table.id: part.era for part in self.parts}
        described = self._run(lambda session: session.describe([era.capture for era in eras.values()]))
        for one, era in zip(described, eras.values(), strict=True):
            if replace(one.table, version=era.table.version) != era.table:
                raise _altered(era.table.id)

    def _past(self, part: HeldPart, upto: Position) -> PastRows:
        dialect, retries = self.source.dialect, self.source.retries
        undoing = PastRowsBuilder(part.table, part.era.table.key, dialect.unsent)
        spans = CaptureHistory((part.era,)).spans(self.position, upto)
        if not spans or spans[0].upto < upto:
            raise _altered(part.table.id)
        return undoing.past(changes(dialect, self.database, spans[0], part.table, retries, masked=True))

    def _rows(self, part: HeldPart, file: IO[bytes], past: PastRows) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from tailrace.connectors.changetables.log.rows import read_batch
        from tailrace.events.record_assembly import to_rows

        ordinal = part.number << 40

        def found() -> Iterator[list[pa.Array]]:
            for batch in pa.ipc.open_stream(file):
                yield past.unchanged(batch.columns)
            yield past.rows(lambda key: is_within(part.table, part.rows, key))

        for columns in found():
            batch = read_batch(part.table, columns, Marker.TRUE, self.position, self.source.at_us, ordinal)
            ordinal += len(batch)
            if len(batch):
                yield from to_rows(batch, self.source.settings, self.source.form)


def _altered(table: TableId) -> PositionLost:
    return PositionLost(f"The table {table} was altered while it was read.", "Load again: that reads a new moment.")


def is_ordered(table: TableSchema, key: Sequence[str]) -> bool:
    """Return True if Python compares keys as the database does, so that a table can be read in parts."""
    return all(table.columns[table.index(name)].type_name.lower() in _NUMBERS | _DATES for name in key)


def is_within(table: TableSchema, rows: KeyRange, key: Key) -> bool:
    """Return True if a row with this key is in the range."""
    if rows.after is None and rows.upto is None:
        return True
    names = [table.columns[table.index(name)].type_name.lower() for name in rows.key]

    def place(one: Key) -> tuple[Any, ...]:
        return tuple(Decimal(text) if name in _NUMBERS else text for name, text in zip(names, one, strict=True))

    return (rows.after is None or place(rows.after) < place(key)) and (
        rows.upto is None or place(key) <= place(rows.upto)
    )
