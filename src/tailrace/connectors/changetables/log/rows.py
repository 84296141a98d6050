"""From rows of a change table to ChangeBatches: pair updates, number changes, find times. Worker.

Everything works on whole columns: neither a row nor a value becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import CapturedTransactions, ChangeBatch, Image, Int64s, Marker
from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT, ChangeRows, CommitTimes
from tailrace.errors import DecodeError

Flags = npt.NDArray[np.bool_]
_OPS = np.zeros(8, np.uint8)
_OPS[[DELETE, INSERT, AFTER]] = [ord("d"), ord("c"), ord("u")]


def whole(fetches: Iterator[ChangeRows], pairs: bool) -> Iterator[ChangeRows]:
    """Yield the same rows, cut so that the two rows of an update stay together.

    With `pairs`, as in Dialect, a DELETE may also be the first half of an update.
    """
    kept: ChangeRows | None = None
    for fetch in fetches:
        rows = fetch if kept is None else _all([kept, fetch])
        kept = None
        if not len(rows):
            continue
        last = int(rows.operation[-1])
        if last == BEFORE or (pairs and last == DELETE):
            kept = _slice(rows, len(rows) - 1, len(rows))
            rows = _slice(rows, 0, len(rows) - 1)
        if len(rows):
            yield rows
    if kept is not None:
        yield kept


def together(cuts: Iterator[ChangeRows], key: Sequence[int], *, pairs: bool = True) -> Iterator[ChangeRows]:
    """Yield the same rows, cut so that a transaction stays together from its first change of a key on.

    The input is that of `whole` with the same `pairs`; `key` are the indexes of the key's columns. At most one
    transaction is held in memory.
    """
    kept: list[ChangeRows] = []
    for given in cuts:
        rows, last = given, int(np.flatnonzero(_differs(given.commit, b""))[-1])
        if kept and rows.commit[0] != kept[-1].commit[0]:
            yield _all(kept)
            kept = []
        if kept and not last:
            kept.append(rows)
            continue
        if kept:
            yield _all([*kept, _slice(rows, 0, last)])
            rows, last, kept = _slice(rows, last, len(rows)), 0, []
        rest = _slice(rows, last, len(rows))
        if not _changes_keys(rest, key, pairs):
            yield rows
            continue
        if last:
            yield _slice(rows, 0, last)
        kept = [rest]
    if kept:
        yield _all(kept)


def _changes_keys(rows: ChangeRows, key: Sequence[int], pairs: bool) -> bool:
    """Return True if an update, or with `pairs` a possible update, among one transaction's rows changes a key."""
    old, new = ((BEFORE, DELETE), (AFTER, INSERT)) if pairs else ((BEFORE,), (AFTER,))
    updates = np.isin(rows.operation[:-1], old) & np.isin(rows.operation[1:], new)
    places = pa.array(np.flatnonzero(updates))
    return any(
        pc.any(pc.not_equal(rows.columns[place].take(places), rows.columns[place].slice(1).take(places))).as_py()
        for place in key
    )


def _all(parts: Sequence[ChangeRows]) -> ChangeRows:
    return ChangeRows(
        pa.concat_arrays([part.commit for part in parts]),
        pa.concat_arrays([part.change for part in parts]),
        np.concatenate([part.operation for part in parts]),
        [pa.concat_arrays(columns) for columns in zip(*(part.columns for part in parts), strict=True)],
        None if parts[0].command is None else np.concatenate([part.command for part in parts]),
        {place: np.concatenate([part.touched[place] for part in parts]) for place in parts[0].touched},
    )


def _slice(rows: ChangeRows, low: int, high: int) -> ChangeRows:
    return ChangeRows(
        rows.commit.slice(low, high - low),
        rows.change.slice(low, high - low),
        rows.operation[low:high],
        [column.slice(low, high - low) for column in rows.columns],
        None if rows.command is None else rows.command[low:high],
        {place: flags[low:high] for place, flags in rows.touched.items()},
    )


def _without(rows: ChangeRows, skipped: tuple[int, ...]) -> ChangeRows:
    kept = ~np.isin(rows.operation, skipped)
    if kept.all():
        return rows
    mask = pa.array(kept)
    return ChangeRows(
        rows.commit.filter(mask),
        rows.change.filter(mask),
        rows.operation[kept],
        [column.filter(mask) for column in rows.columns],
        None if rows.command is None else rows.command[kept],
        {place: flags[kept] for place, flags in rows.touched.items()},
    )


def skipped_rows(letters: frozenset[str], pairs: bool) -> tuple[int, ...]:
    """Return the operations of change rows that `skipped.operations` drops before events are numbered.

    SQL Server's connector never reads such rows: no event counts them, and an update that changes a key of
    message.key.columns does not become a delete and a create. If updates may be `pairs`, a DELETE may be half of one,
    so nothing is dropped at this point.
    """
    if pairs:
        return ()
    operations = {"c": (INSERT,), "u": (BEFORE, AFTER), "d": (DELETE,)}
    return tuple(sorted(code for letter in letters for code in operations.get(letter, ())))


@dataclass(slots=True)
class TimesByPosition:
    """Commit times by position. A commit whose time the server does not have gets the time of the previous commit.

    `fallback_us` is used if the server has no time at all; `missing` counts commits without a time of their own.
    """

    positions: npt.NDArray[Any]
    at_us: Int64s
    fallback_us: int
    missing: int = 0

    @classmethod
    def of(cls, times: CommitTimes, fallback_us: int) -> TimesByPosition:
        return cls(fixed(times.positions), times.at_us, fallback_us)

    @classmethod
    def none(cls) -> TimesByPosition:
        """Return an object for callers that do not need times."""
        return cls(np.zeros(0, "S1"), np.zeros(0, np.int64), 0)

    def find(self, commits: pa.Array) -> Int64s:
        """Return the time of each of `commits`, in µs since 1970."""
        wanted = fixed(commits)
        if not len(self.positions):
            self.missing += len(wanted)
            return np.full(len(wanted), self.fallback_us, np.int64)
        # index after the last position that is not greater than the wanted one
        place = np.searchsorted(self.positions, wanted, side="right")
        found = self.at_us[np.maximum(place - 1, 0)]
        self.missing += int((self.positions[np.maximum(place - 1, 0)] != wanted).sum())
        return found


def fixed(positions: pa.Array) -> npt.NDArray[Any]:
    """Return positions of one width as numpy's fixed bytes, which have the same order."""
    if not len(positions):
        return np.zeros(0, "S1")
    # a view of the buffer, in which an array may begin at an offset
    if pa.types.is_fixed_size_binary(positions.type):
        width = positions.type.byte_width
        low, high = positions.offset * width, (positions.offset + len(positions)) * width
        return np.frombuffer(positions.buffers()[1], np.uint8)[low:high].view(f"S{width}")
    _, offsets, data = positions.buffers()
    bounds = np.frombuffer(offsets, np.int32)[positions.offset : positions.offset + len(positions) + 1]
    sizes = bounds[1:] - bounds[:-1]
    if positions.null_count or (sizes != sizes[0]).any() or not sizes[0]:
        raise DecodeError("The positions of a log are not of one width.")
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].view(f"S{sizes[0]}")


@dataclass(slots=True)
class RowAssembly:
    """Builds ChangeBatches from one table's rows, in order, and keeps the state that later rows need.

    `serial` counts the rows of one commit and change position from 1; the two rows of an update count as two (Debezium:
    `event_serial_no`). The ordinal is one less. `skipped` are operations whose rows are dropped before numbering, both
    rows of an update together. `unsent` names the types whose null, in either row of an update, counts as a value that
    the log did not carry: events show the placeholder, as in Debezium 3, which mistakes a real null for one. With
    `exact` a null that an update has set is a null, and null old values of large columns are marked as missing.
    """

    table: TableSchema
    times: TimesByPosition
    pairs: bool
    skipped: tuple[int, ...] = ()
    unsent: frozenset[str] = frozenset()
    exact: bool = False
    _commit: bytes = b""
    _change: bytes = b""
    _serial: int = 0

    def batch(self, rows: ChangeRows) -> ChangeBatch | None:
        """Return the changes of `rows`, as cut by `whole`; None if there are none."""
        if self.skipped:
            rows = _without(rows, self.skipped)
        count = len(rows)
        if not count:
            return None
        if ((rows.operation < DELETE) | (rows.operation > AFTER)).any():
            raise DecodeError(f"A change row of {self.table.id} has an unknown operation.")
        new_commit = _differs(rows.commit, self._commit)
        new_change = new_commit | _differs(rows.change, self._change)
        serial = _running(new_change, self._serial)
        self._commit, self._change = rows.commit[count - 1].as_py(), rows.change[count - 1].as_py()
        self._serial = int(serial[-1])
        operation = self._paired(rows.operation, new_commit) if self.pairs else rows.operation
        after_before = np.zeros(count, np.bool_)
        after_before[1:] = (operation[1:] == AFTER) & (operation[:-1] == BEFORE) & ~new_commit[1:]
        kept = np.flatnonzero(operation != BEFORE)
        if not len(kept):
            return None
        code = operation[kept]
        has_after = code != DELETE
        has_before = (code == DELETE) | after_before[kept]
        old = np.where(code == DELETE, kept, kept - 1)
        starts = np.flatnonzero(new_commit)
        if not len(starts) or starts[0] != 0:
            starts = np.concatenate([np.zeros(1, np.int64), starts])
        commits = rows.commit.take(pa.array(starts))
        transaction = (np.searchsorted(starts, kept, side="right") - 1).astype(np.int32)
        before = _image(rows.columns, has_before, old) if has_before.any() else None
        after = _image(rows.columns, has_after, kept) if has_after.any() else None
        touched = {place: flags[kept] for place, flags in rows.touched.items()} if self.exact else {}
        self._mark((before, after), code, touched)
        return ChangeBatch(
            table=self.table,
            op=_OPS[code],
            lsn=_taken(rows.change, kept),
            transaction=transaction,
            ordinal=serial[kept] - 1,
            transactions=CapturedTransactions(commits, self.times.find(commits)),
            before=before,
            after=after,
            serial=pa.array(serial[kept]),
            command=None if rows.command is None else rows.command[kept],
        )

    def _mark(
        self, images: tuple[Image | None, Image | None], code: npt.NDArray[Any], touched: Mapping[int, Flags]
    ) -> None:
        """Mark nulls as unavailable if they may stand for a value that the log did not carry.

        In a new row this is a null of an unsent type that the update has not set; in an old row any null of an unsent
        type. With `exact` this includes the old rows of deletes, and other large columns of updates that have not set
        them.
        """
        before, after = images
        updates = code == AFTER
        lacking = updates | (code == DELETE) if self.exact else updates
        if not lacking.any():
            return
        for place, column in enumerate(self.table.columns):
            is_unsent, own = column.type_name in self.unsent, touched.get(place)
            if is_unsent and after is not None:
                _flag(after, place, updates if own is None else updates & ~own)
            if is_unsent and before is not None:
                _flag(before, place, lacking)
            elif own is not None and before is not None:
                _flag(before, place, updates & ~own)

    @staticmethod
    def _paired(operation: npt.NDArray[Any], new_commit: Flags) -> npt.NDArray[Any]:
        """Pair each DELETE directly before an INSERT of the same transaction as an update."""
        first = np.zeros(len(operation), np.bool_)
        first[:-1] = (operation[:-1] == DELETE) & (operation[1:] == INSERT) & ~new_commit[1:]
        paired = operation.copy()
        paired[first] = BEFORE
        paired[np.flatnonzero(first) + 1] = AFTER
        return paired


def _flag(image: Image, place: int, absent: Flags) -> None:
    """Mark the nulls of a column in the rows `absent`."""
    if image.columns[place].null_count:
        image.unavailable[place] = image.columns[place].is_null().to_numpy(zero_copy_only=False) & absent


def _differs(positions: pa.Array, before: bytes) -> Flags:
    """Return a mask of the positions that differ from the previous one; `before` precedes the first."""
    count = len(positions)
    differs = np.ones(count, np.bool_)
    differs[0] = positions[0].as_py() != before
    if count > 1:
        differs[1:] = pc.not_equal(positions.slice(1), positions.slice(0, count - 1)).to_numpy(zero_copy_only=False)
    return differs


def _running(begins: Flags, last: int) -> Int64s:
    """Return 1, 2, 3… from each beginning; rows before the first beginning continue after `last`."""
    places = np.arange(len(begins), dtype=np.int64)
    since = np.maximum.accumulate(np.where(begins, places, -1))
    return np.where(since < 0, places + 1 + last, places - since + 1)


def _taken(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _image(columns: list[pa.Array], present: Flags, rows: npt.NDArray[Any]) -> Image:
    """Return the image whose row i is row `rows[i]` if it is present."""
    if present.all():
        taken = [_taken(column, rows) if len(rows) != len(column) else _ordered(column, rows) for column in columns]
        return Image(None, taken, [None] * len(columns))
    indices = pa.array(rows, mask=~present)
    return Image(present, [column.take(indices) for column in columns], [None] * len(columns))


def _ordered(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    return column if rows[0] == 0 and rows[-1] == len(rows) - 1 else column.take(pa.array(rows))


def read_batch(
    table: TableSchema,
    columns: list[pa.Array],
    marker: Marker,
    position: bytes,
    at_us: int,
    ordinal: int,
    change: bytes | None = None,
) -> ChangeBatch:
    """Return rows of a table as changes `r`, all with `marker`, at the commit `position`.

    `change` is the position of the change after which they are shown, with serial 1; None without such a change.
    """
    count = len(columns[0]) if columns else 0
    return ChangeBatch(
        table=table,
        op=np.full(count, ord("r"), np.uint8),
        lsn=pa.repeat(pa.scalar(change, pa.binary()), count),
        transaction=np.zeros(count, np.int32),
        ordinal=np.arange(ordinal, ordinal + count, dtype=np.int64),
        transactions=CapturedTransactions(pa.array([position], pa.binary()), np.full(1, at_us, np.int64)),
        before=None,
        after=Image(None, columns, [None] * len(columns)),
        marker=np.full(count, marker, np.uint8),
        serial=None if change is None else pa.array(np.ones(count, np.int64)),
    )
