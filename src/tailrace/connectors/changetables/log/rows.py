"""From rows of a change table to ChangeBatches: updates put together, numbers given, times found. Worker.

All of it works on whole columns: neither a row nor a value becomes a Python object.
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
    """The same rows, cut so that the two rows of an update are never apart.

    `pairs` as in Dialect: there a DELETE may be the first half of an update too.
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


def together(cuts: Iterator[ChangeRows], key: Sequence[int]) -> Iterator[ChangeRows]:
    """The same rows, as `whole` gives them, cut so that no transaction is apart from where on it changes keys.

    `key` are the places of the key's columns. What is held is one transaction at most.
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
        if not _changes_keys(rest, key):
            yield rows
            continue
        if last:
            yield _slice(rows, 0, last)
        kept = [rest]
    if kept:
        yield _all(kept)


def _changes_keys(rows: ChangeRows, key: Sequence[int]) -> bool:
    """Whether an update of one transaction's rows, or what may be one, changes a key."""
    updates = np.isin(rows.operation[:-1], (BEFORE, DELETE)) & np.isin(rows.operation[1:], (AFTER, INSERT))
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
    """The operations of change rows that `skipped.operations` leaves out before events are numbered.

    SQL Server's connector never asks for such rows, so that no event counts them and no update of a key that
    message.key.columns makes becomes a delete and a create. Where updates may be `pairs`, a DELETE may be half of one:
    there nothing is left out before the events.
    """
    if pairs:
        return ()
    operations = {"c": (INSERT,), "u": (BEFORE, AFTER), "d": (DELETE,)}
    return tuple(sorted(code for letter in letters for code in operations.get(letter, ())))


@dataclass(slots=True)
class Times:
    """Commit times by position; a commit that the server has no time of gets that of the one before it.

    `fallback_us` is what is taken where the server knows no time at all; `missing` counts such commits.
    """

    positions: npt.NDArray[Any]
    at_us: Int64s
    fallback_us: int
    missing: int = 0

    @classmethod
    def of(cls, times: CommitTimes, fallback_us: int) -> Times:
        return cls(fixed(times.positions), times.at_us, fallback_us)

    @classmethod
    def none(cls) -> Times:
        """Where nobody asks for times."""
        return cls(np.zeros(0, "S1"), np.zeros(0, np.int64), 0)

    def find(self, commits: pa.Array) -> Int64s:
        """The time of each of `commits`, in µs since 1970."""
        wanted = fixed(commits)
        if not len(self.positions):
            self.missing += len(wanted)
            return np.full(len(wanted), self.fallback_us, np.int64)
        # behind the last position that is not greater than the wanted one
        place = np.searchsorted(self.positions, wanted, side="right")
        found = self.at_us[np.maximum(place - 1, 0)]
        self.missing += int((self.positions[np.maximum(place - 1, 0)] != wanted).sum())
        return found


def fixed(positions: pa.Array) -> npt.NDArray[Any]:
    """Positions of one width as numpy's fixed bytes, whose order is that of the positions."""
    if not len(positions):
        return np.zeros(0, "S1")
    # the buffer, not a list of objects; an array may begin in the middle of it
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
class Assembly:
    """Makes ChangeBatches of one table's rows, in order; remembers what the next rows need to know of the last ones.

    `serial` counts the rows of one commit and change position from 1, an update's two rows being two (Debezium:
    `event_serial_no`); the ordinal is one less. `skipped` are operations whose rows are left out before anything is
    numbered, an update's two rows together. `unsent` names the types whose null, in either row of an update, counts as
    a value that the log did not carry: events show the placeholder, as Debezium 3 does, which takes a null for one.
    With `exact` a null that an update has set is one, and no old row has a null in place of a large value.
    """

    table: TableSchema
    times: Times
    pairs: bool
    skipped: tuple[int, ...] = ()
    unsent: frozenset[str] = frozenset()
    exact: bool = False
    _commit: bytes = b""
    _change: bytes = b""
    _serial: int = 0

    def batch(self, rows: ChangeRows) -> ChangeBatch | None:
        """The changes of `rows`, as `whole` cuts them; None when there is none."""
        if self.skipped:
            rows = _without(rows, self.skipped)
        count = len(rows)
        if not count:
            return None
        if ((rows.operation < DELETE) | (rows.operation > AFTER)).any():
            raise DecodeError(f"A change row of {self.table.id} has an operation that is not known.")
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
        """Mark the nulls of changes that stand for a value that the log did not carry.

        A new row's is one where the update has not set the column; what an old row has is never known of a null of an
        unsent type. With `exact` the old rows of deletes count too, and of other large columns those of updates that
        have not set them.
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
        """A DELETE directly before an INSERT of the same transaction is the first half of an update."""
        first = np.zeros(len(operation), np.bool_)
        first[:-1] = (operation[:-1] == DELETE) & (operation[1:] == INSERT) & ~new_commit[1:]
        paired = operation.copy()
        paired[first] = BEFORE
        paired[np.flatnonzero(first) + 1] = AFTER
        return paired


def _flag(image: Image, place: int, absent: Flags) -> None:
    """Mark those nulls of a column that are `absent` values."""
    if image.columns[place].null_count:
        image.unavailable[place] = image.columns[place].is_null().to_numpy(zero_copy_only=False) & absent


def _differs(positions: pa.Array, before: bytes) -> Flags:
    """Which positions are not the one in front of them; `before` is what precedes the first."""
    count = len(positions)
    differs = np.ones(count, np.bool_)
    differs[0] = positions[0].as_py() != before
    if count > 1:
        differs[1:] = pc.not_equal(positions.slice(1), positions.slice(0, count - 1)).to_numpy(zero_copy_only=False)
    return differs


def _running(begins: Flags, last: int) -> Int64s:
    """1, 2, 3… from each beginning on; `last` goes on where the first row is none."""
    places = np.arange(len(begins), dtype=np.int64)
    since = np.maximum.accumulate(np.where(begins, places, -1))
    return np.where(since < 0, places + 1 + last, places - since + 1)


def _taken(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _image(columns: list[pa.Array], present: Flags, rows: npt.NDArray[Any]) -> Image:
    """The image whose row i is row `rows[i]`, where it is present."""
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
    """Rows of a table as changes `r`, all with `marker`, at the commit `position`.

    `change` is the position of the change that they follow, which is the only one of its number; None where they
    follow none.
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
