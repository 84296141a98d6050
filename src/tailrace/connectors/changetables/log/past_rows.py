"""Rows of a table as they were before the changes of a range of the log, by their keys. Worker.

A change table has the old row of every update and delete. The first transaction that changes a key usually shows if the
key had a row before: it had one if an old row comes first, or if the key has more old rows than new ones.

If a new row comes first and the numbers are equal, the transaction does not show it. An update that moves many keys may
insert a key's new row before it deletes the old one; other statements may create a row only for a moment. Then a later
transaction decides. If none does, the key had a row before exactly if the table has one now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, ChangeRows, Key
from tailrace.connectors.changetables.log.reconcile import one_text
from tailrace.errors import PositionLost, PrerequisiteError

_NONE = -1
"""Marks a key without an old row."""


@dataclass(slots=True)
class _OldRow:
    """An old row.

    `is_there` is True if it existed before, None if only the table can decide. `lacking` are the columns, by index,
    whose values are still in the table, because no change has set them. `unknown` is a column whose old value is lost.
    """

    is_there: bool | None = None
    lacking: Sequence[int] = ()
    unknown: int | None = None


@dataclass(slots=True)
class _Changed:
    """A changed key.

    `commit` is the transaction being read. `begins_old` is True if an old row came first in it, and `taken` is the
    number of its old rows minus its new rows. `first` is the first transaction that changed the key.
    """

    commit: bytes
    begins_old: bool
    first: bytes
    taken: int = 0
    old: int = _NONE
    is_there: bool | None = None

    def turn(self, commit: bytes, begins_old: bool) -> None:
        """Begin another transaction.

        If the previous transaction decides `is_there` for its own beginning, this is also the answer for the first one:
        transactions in between did not decide it, and so left the row as it was.
        """
        if self.is_there is None and (self.taken or self.begins_old):
            self.is_there = self.taken > 0 or self.begins_old
        self.commit, self.begins_old, self.taken = commit, begins_old, 0


class PastRows:
    """The rows of the changed keys as they were before the changes; see PastRowsBuilder."""

    def __init__(
        self,
        table: TableSchema,
        identity: tuple[str, ...],
        columns: list[pa.Array],
        old: list[_OldRow],
        place: dict[bytes, int],
        values: dict[tuple[int, int], bytes | None],
    ) -> None:
        self._table = table
        self._identity = identity
        self._columns = columns
        self._old = old
        self._place = place
        self._values = values
        self._changed = pa.array(list(place), pa.binary())
        parts = [columns[table.index(name)].to_pylist() for name in identity]
        self._keys: list[Key] = [tuple(text.decode() for text in one) for one in zip(*parts, strict=True)]

    def unchanged(self, columns: list[pa.Array]) -> list[pa.Array]:
        """Return the table's rows without those of changed keys. The latter complete the old rows of their keys."""
        if not self._place or not len(columns[0]):
            return columns
        keys = one_text([columns[self._table.index(name)] for name in self._identity])
        changed = pc.is_in(keys, value_set=self._changed)
        for row in np.flatnonzero(changed.to_numpy(zero_copy_only=False)).tolist():
            number = self._place[keys[row].as_py()]
            if number != _NONE:
                old = self._old[number]
                old.is_there = old.is_there is not False
                for column in old.lacking:
                    self._values[number, column] = columns[column][row].as_py()
                old.lacking = ()
        kept = pc.invert(changed)
        return [column.filter(kept) for column in columns]

    def rows(self, is_wanted: Callable[[Key], bool]) -> list[pa.Array]:
        """Return the old rows of the wanted keys. Call it after `unchanged` has processed all rows of these keys.

        Raises PositionLost if an old value is lost.
        """
        own = [number for number, key in enumerate(self._keys) if self._old[number].is_there and is_wanted(key)]
        for number in own:
            old = self._old[number]
            if old.unknown is not None or old.lacking:
                raise _unknown(self._table, old.lacking[0] if old.unknown is None else old.unknown)
        columns = [column.take(pa.array(own, pa.int64())) for column in self._columns]
        for column in {column for _, column in self._values}:
            listed = columns[column].to_pylist()
            found = [self._values.get((number, column), listed[row]) for row, number in enumerate(own)]
            columns[column] = pa.array(found, pa.binary())
        return columns


class PastRowsBuilder:
    """Builds a PastRows from change rows in the order of the log.

    `unlogged` are types whose old values the log may lack even if a change has set them.
    """

    def __init__(self, table: TableSchema, identity: tuple[str, ...], unlogged: frozenset[str]) -> None:
        self._table = table
        self._identity = identity
        self._unlogged = {place for place, one in enumerate(table.columns) if one.type_name in unlogged}
        self._keys: dict[bytes, _Changed] = {}
        self._old: list[_OldRow] = []
        self._columns: list[list[pa.Array]] = []
        self._values: dict[tuple[int, int], bytes | None] = {}
        # the latest row was an update's old row, so its new row comes next
        self._is_halved = False

    def past(self, fetches: Iterator[ChangeRows]) -> PastRows:
        """Return the rows before the changes of `fetches`. Raises PrerequisiteError."""
        for rows in fetches:
            self._take(rows)
        place = {}
        for key, one in self._keys.items():
            one.turn(b"", False)
            place[key] = one.old
            if one.old != _NONE:
                self._old[one.old].is_there = one.is_there
        none = [pa.array([], pa.binary())]
        count = range(len(self._table.columns))
        columns = [pa.concat_arrays([part[column] for part in self._columns] or none) for column in count]
        return PastRows(self._table, self._identity, columns, self._old, place, self._values)

    def _take(self, rows: ChangeRows) -> None:
        keys = one_text([rows.columns[self._table.index(name)] for name in self._identity]).to_pylist()
        taken: list[int] = []
        changes = zip(keys, rows.commit.to_pylist(), rows.operation.tolist(), strict=True)
        for row, (key, commit, operation) in enumerate(changes):
            one, is_old = self._keys.get(key), operation in (DELETE, BEFORE)
            if one is None:
                one = self._keys[key] = _Changed(commit, is_old, commit)
            elif one.commit != commit:
                one.turn(commit, is_old)
            if is_old:
                one.taken += 1
                if one.old != _NONE:
                    self._complete(one.old, rows, row)
                elif one.first == commit:
                    one.old = len(self._old)
                    self._old.append(self._begun(rows, row))
                    taken.append(row)
            else:
                one.taken -= 1
                if operation == AFTER and not self._is_halved:
                    raise PrerequisiteError(
                        f"The change table of {self._table.id} has no old rows of updates.",
                        "Register the table with CHG_UPD_TO_DEL_INS = 'Y', or with before images.",
                    )
            self._is_halved = operation == BEFORE
        if taken:
            which = pa.array(taken, pa.int64())
            self._columns.append([column.take(which) for column in rows.columns])

    def _begun(self, rows: ChangeRows, row: int) -> _OldRow:
        """Return a key's first old row, with the columns whose values are missing."""
        nulls = [place for place in {*rows.touched, *self._unlogged} if not rows.columns[place][row].is_valid]
        lacking = [place for place in nulls if not _is_set(rows, row, place)]
        unknown = next((place for place in nulls if place in self._unlogged and place not in lacking), None)
        return _OldRow(None, lacking, unknown)

    def _complete(self, number: int, rows: ChangeRows, row: int) -> None:
        """Take missing values of an old row from the old row of a later change."""
        old, left = self._old[number], []
        for place in old.lacking:
            if rows.columns[place][row].is_valid:
                self._values[number, place] = rows.columns[place][row].as_py()
            elif not _is_set(rows, row, place):
                left.append(place)
            elif place in self._unlogged:
                old.unknown = place
        old.lacking = left


def _is_set(rows: ChangeRows, row: int, place: int) -> bool:
    """Return True if a change has set the column with this index."""
    touched: npt.NDArray[np.bool_] | None = rows.touched.get(place)
    return int(rows.operation[row]) == DELETE or touched is None or bool(touched[row])


def _unknown(table: TableSchema, place: int) -> PositionLost:
    return PositionLost(
        f"A row of {table.id} was changed while it was read, and its change table does not have the old value of "
        f"{table.columns[place].name}.",
        "Load again, when the table is changed less; or leave the column out by column.exclude.list.",
    )
