"""Reselects values of changes from their table, as ReselectColumnsPostProcessor asks for. Worker.

The log may not carry a value, and a null may exist only in the log. Such values are read from the table as it is now,
so an event may show a newer value than its change. The rows of many changes are read at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, Image, TableSchema
from tailrace.columns.logical import ABSENT
from tailrace.config.processors import RESELECT, Reselection
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.quarantine import refused_error
from tailrace.events.table_plan import table_plan
from tailrace.kernels.buffers import text_buffers
from tailrace.values.conversion import ColumnPlan
from tailrace.values.json_text import dumps

log = logging.getLogger("tailrace")

Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Key = tuple[str, ...]
Found = tuple[Sequence[int], list[pa.Array]]
"""Rows of a table: the index of each row's key among the requested keys, and the texts by column."""

NAME = RESELECT.rpartition(".")[2]
# Rows of the first query. Later queries ask for some 16 MB of rows, at most `_MOST_ROWS`.
_FIRST, _MOST_ROWS, _WANTED_BYTES = 256, 4096, 16 << 20
# If the rows together have more bytes, they are read again, fewer at a time.
_HELD_BYTES = 256 << 20
# If the values of changes together have more bytes, the events are made in several parts.
_MOST_BYTES = 48 << 20
_REMEDY = "Set reselect.error.handling.mode to warn to have the event as the log has it, and a count of such events."
_told: set[tuple[str, str]] = set()


class UnreadableRows(Exception):
    """The rows of a table that is gone or has been replaced, or a query that fails. `reason` is the rest of a sentence
    without its end, and contains no value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RereadRows(Protocol):
    """Reads rows again, in a task. Picklable."""

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[Key], columns: Sequence[str]
    ) -> Iterator[Found]:
        """Yield the rows of `table` whose columns `key` have these texts, with the texts of `columns` as the log has
        them.

        The texts are `binary`, null for NULL. If several rows have one key, the first one counts. Raises
        UnreadableRows, and ConnectionFailed for an unreachable server.
        """
        ...


@dataclass(frozen=True, slots=True)
class RereadColumn:
    """A column to reselect: if the log did not carry its value (`unavailable`), if the value is null (`nulls`)."""

    plan: ColumnPlan
    unavailable: bool
    nulls: bool


@dataclass(frozen=True, slots=True)
class Reread:
    """The post-processors, applied in turn, and the reader of rows. `repr` hides `rows`, which may hold a password."""

    processors: tuple[Reselection, ...]
    rows: RereadRows

    def __repr__(self) -> str:
        return "Reread"

    def concerns(self, table: TableSchema, settings: EventSettings, form: SourceForm) -> bool:
        """Return True if a column of the table is reselected."""
        return any(columns_of(table, settings, form, processor) for processor in self.processors)

    def completed(
        self, batch: ChangeBatch, settings: EventSettings, form: SourceForm
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """Yield the changes of `batch` with the reselected values, in parts, each with the number of its first change.

        Raises TransformError if a row is gone or unreadable and the options say `fail`, ConnectionFailed for an
        unreachable server.
        """
        parts: Iterator[tuple[int, ChangeBatch]] = iter([(0, batch)])
        for processor in self.processors:
            columns = columns_of(batch.table, settings, form, processor)
            if columns:
                parts = _Work(processor, self.rows, columns, settings, form).on(parts)
        yield from parts


@lru_cache(maxsize=4096)
def columns_of(
    table: TableSchema, settings: EventSettings, form: SourceForm, processor: Reselection
) -> tuple[RereadColumn, ...]:
    """Return the columns to reselect. Masked and hashed columns are not among them: no event shows their values."""
    found = []
    for plan in table_plan(table, settings, form).columns:
        if plan.source_name in table.key or not processor.concerns(str(table.id), plan.source_name):
            # a key that is newer than its change may belong to another record
            continue
        placeholder = plan.conversion.unavailable
        shown = plan.shape is None or plan.unavailable == dumps(placeholder).encode()
        # where events show a default or a mask instead of null, a null is not reselected
        covered = plan.schema.default not in (ABSENT, None) or (
            plan.shape is not None and plan.shape.null() is not None
        )
        column = RereadColumn(plan, processor.unavailable and shown, processor.nulls and not covered)
        if column.unavailable or column.nulls:
            found.append(column)
    return tuple(found)


@dataclass(slots=True)
class _Work:
    """A post-processor applied to the changes of one table version."""

    processor: Reselection
    rows: RereadRows
    columns: tuple[RereadColumn, ...]
    settings: EventSettings
    form: SourceForm
    count: int = field(default=_FIRST)

    def on(self, parts: Iterator[tuple[int, ChangeBatch]]) -> Iterator[tuple[int, ChangeBatch]]:
        for first, batch in parts:
            for low, part in self._part(batch):
                yield first + low, part

    def _part(self, batch: ChangeBatch) -> Iterator[tuple[int, ChangeBatch]]:
        needed = self._needed(batch)
        changes = np.flatnonzero(np.any(needed, axis=0)) if needed else np.zeros(0, np.int64)
        key = self._key(batch.table) if len(changes) else ()
        if not key:
            yield 0, batch
            return
        low = 0
        while low < len(batch):
            those, rest = changes[: self.count], changes[self.count :]
            high = int(rest[0]) if len(rest) else len(batch)
            piece, need = batch.part(low, high), [flags[low:high] for flags in needed]
            found = self._found(piece, those - low, key)
            if found is None:
                self.count = max(len(those) // 8, 1)
                continue
            changes = rest
            for start, part in self._filled(piece, need, found):
                yield low + start, part
            low = high

    def _key(self, table: TableSchema) -> tuple[str, ...]:
        """Return the columns by which rows are found; none if events have no key, or the table has none of its own."""
        key = table.key if self.processor.by_event_key or table.own is None else table.own
        if table.key and not key:
            _tell(
                str(table.id), "key",
                f"{NAME} reselects nothing of {table.id}: the table has no key of its own. Set reselect.use.event.key "
                "to look for rows by the event's key.",
            )  # fmt: skip
        return key if table.key else ()

    def _needed(self, batch: ChangeBatch) -> list[Flags]:
        """Return, for each column, a mask of the changes whose value is reselected; empty if there is none."""
        image = batch.after
        if image is None:
            return []
        skipped = [ord(letter) for letter in self.settings.skipped_operations]
        shown = np.isin(batch.op, (ord("c"), ord("u"))) & ~np.isin(batch.op, skipped)
        if image.present is not None:
            shown &= image.present
        found = []
        for column in self.columns:
            flags, index = image.unavailable[column.plan.index], column.plan.index
            wanted: Flags = np.zeros(len(batch), np.bool_)
            if column.nulls and image.columns[index].null_count:
                wanted |= np.asarray(image.columns[index].is_null())
                if flags is not None and not column.unavailable and column.plan.conversion.unavailable is not None:
                    # the placeholder is shown, which is not null
                    wanted &= ~flags
            if column.unavailable and flags is not None:
                wanted |= flags
            found.append(wanted & shown)
        return found

    # --- reading -------------------------------------------------------------------------------------------------

    def _found(self, batch: ChangeBatch, changes: npt.NDArray[np.int64], key: tuple[str, ...]) -> _Fetched | None:
        """Return the rows of the changes; None if they are too large together. Raises TransformError."""
        places, keys = _keys(batch, changes, key)
        failure, count, size = "", 0, 0
        at = np.full(len(keys) + 1, -1, np.int64)
        tables: list[list[pa.Array]] = []
        try:
            names = [column.plan.source_name for column in self.columns]
            for numbers, columns in self.rows.of_keys(batch.table, key, keys, names) if keys else ():
                for row, number in enumerate(numbers, count):
                    at[number] = row if at[number] < 0 else at[number]
                count += len(numbers)
                tables.append(columns)
                size += sum(column.nbytes for column in columns)
                if size > _HELD_BYTES and len(keys) > 1:
                    return None
        except UnreadableRows as fault:
            failure, at[:], tables, size = fault.reason, -1, [], 0
        # a change whose key is unknown has the last place, where there is no row
        row_of = np.full(len(batch), -1, np.int64)
        row_of[changes] = at[places]
        missing = changes[row_of[changes] < 0]
        if len(missing):
            self._missing(batch, int(missing[0]), failure)
        columns = [pa.concat_arrays(parts) for parts in zip(*tables, strict=True)]
        self._pace(len(keys), size)
        return _Fetched(changes, row_of, columns)

    def _pace(self, count: int, size: int) -> None:
        if count:
            wanted = _WANTED_BYTES * count // max(size, 1)
            self.count = max(min(wanted, 2 * self.count, _MOST_ROWS), 1)

    def _missing(self, batch: ChangeBatch, change: int, failure: str) -> None:
        """Report that a row is gone, or, with `failure`, that no row can be read."""
        table = batch.table.id
        reason = failure or f"finds no row with the key of a change of {table}: it was deleted, or its key has changed"
        if self.processor.fails:
            raise refused_error(batch, change, f"{NAME} {reason}", self.form, _REMEDY)
        message = f"{NAME} {reason}. The events of such changes are as the log has them."
        batch.warnings.append(message)
        _tell(str(table), failure and "failure", message)

    # --- filling in ----------------------------------------------------------------------------------------------

    def _filled(self, batch: ChangeBatch, needed: list[Flags], found: _Fetched) -> Iterator[tuple[int, ChangeBatch]]:
        """Yield the changes with the values that were found, in several parts if these are large."""
        ends = np.cumsum(found.sizes(needed))
        low = 0
        while low < len(batch):
            given = int(ends[low - 1]) if low else 0
            high = max(int(np.searchsorted(ends, given + _MOST_BYTES, side="right")), low + 1)
            part = batch.part(low, high)
            image = part.after
            assert image is not None
            columns, flags = list(image.columns), list(image.unavailable)
            read = np.zeros(len(part), np.int32)
            rows = found.row_of[low:high]
            for place, (column, need) in enumerate(zip(self.columns, needed, strict=True)):
                index, those = column.plan.index, need[low:high] & (rows >= 0)
                if not those.any():
                    continue
                read += those
                values = found.columns[place].take(pa.array(rows, mask=~those))
                columns[index] = pc.coalesce(columns[index], values)
                unavailable = flags[index]
                if unavailable is not None:
                    flags[index] = unavailable & ~those
            wanted = np.any([need[low:high] for need in needed], axis=0)
            counts = np.where(wanted, read, -1).astype(np.int32)
            part.after = Image(image.present, columns, flags)
            part.reselected = counts if part.reselected is None else _added(part.reselected, counts)
            yield low, part
            low = high


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Rows that were read for `changes`. `row_of` is the row of each change of the batch, -1 for none; `columns` has
    the rows' texts."""

    changes: npt.NDArray[np.int64]
    row_of: npt.NDArray[np.int64]
    columns: list[pa.Array]

    def sizes(self, needed: list[Flags]) -> npt.NDArray[np.int64]:
        """Return the bytes that each change receives."""
        sizes = np.zeros(len(self.row_of), np.int64)
        for column, need in zip(self.columns, needed, strict=False):
            if len(column):
                widths = np.diff(text_buffers(column)[1]).astype(np.int64)
                those = need & (self.row_of >= 0)
                sizes[those] += widths[self.row_of[those]]
        return sizes


def _keys(
    batch: ChangeBatch, changes: npt.NDArray[np.int64], key: tuple[str, ...]
) -> tuple[npt.NDArray[np.int64], list[Key]]:
    """Return the place of each change's key, and the different keys. A change without a complete key gets place -1."""
    assert batch.after is not None
    order = pa.array(changes)
    columns = [batch.after.columns[batch.table.index(name)].take(order).to_pylist() for name in key]
    numbers: dict[Key, int] = {}
    places = np.full(len(changes), -1, np.int64)
    for row, values in enumerate(zip(*columns, strict=True)):
        try:
            texts = tuple(value.decode() for value in values)
        except (AttributeError, UnicodeDecodeError):
            # null, or not text: nothing to look for
            continue
        places[row] = numbers.setdefault(texts, len(numbers))
    return places, list(numbers)


def _added(before: Int32s, counts: Int32s) -> Int32s:
    """Add the counts of two post-processors; -1 means none."""
    return np.where(before < 0, counts, np.where(counts < 0, before, before + counts)).astype(np.int32)


def _tell(table: str, what: str, message: str) -> None:
    """Log a warning once per process, table and kind of failure."""
    if (table, what) not in _told:
        _told.add((table, what))
        log.warning(message)
