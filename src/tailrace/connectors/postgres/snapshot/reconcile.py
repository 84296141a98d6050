"""Reconciliation of a window's rows with the log: a row that a change supersedes is left out.

The planner collects the changed keys or rows of a batch, and a task drops them from the rows that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import ChangeBatch, Flags, Image
from tailrace.columns.table import TableSchema

Row = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class SupersededRows:
    """Rows of one table that the changes of a batch supersede.

    `keys` are the keys with changes, in the form of `key_texts`. A table without a key has `rows` instead: the values
    of `columns` in the rows that were changed or deleted after the snapshot, each with the number of equal rows. With
    `everything` all rows are superseded: the table was truncated, and the log has all later rows.
    """

    keys: pa.Array | None = None
    rows: tuple[tuple[Row, int], ...] = ()
    columns: tuple[str, ...] = ()
    everything: bool = False

    def without(self, table: TableSchema, identity: tuple[str, ...], columns: list[pa.Array]) -> list[pa.Array]:
        """Return the rows `columns` of `table`, identified by the columns `identity`, that are not superseded."""
        if self.everything:
            return [column.slice(0, 0) for column in columns]
        if self.keys is not None:
            texts = key_texts(table, identity, columns)
            found = pc.is_in(texts, value_set=self.keys)
            if not pc.any(found).as_py():
                # most chunks end here; copying the rows would take a tenth of the time of reading them
                return columns
            keep = pc.invert(found)
            return [column.filter(keep) for column in columns]
        if self.rows:
            left = Counter(dict(self.rows))
            kept = np.ones(len(columns[0]), np.bool_)
            named = [columns[table.index(name)].to_pylist() for name in self.columns]
            for place, row in enumerate(zip(*named, strict=True)):
                if left[row] > 0:
                    left[row] -= 1
                    kept[place] = False
            return [column.filter(pa.array(kept)) for column in columns]
        return columns


NOTHING = SupersededRows()


class NotComparable(Exception):
    """Changes cannot be compared with rows: the table's columns have changed, or a change lacks its key."""


def superseded(
    table: TableSchema,
    identity: tuple[str, ...],
    changes: Iterable[ChangeBatch],
    is_shown: Callable[[ChangeBatch], Flags],
) -> SupersededRows:
    """Return the rows that `changes` of `table` supersede; the columns `identity`, if any, identify a row.

    `is_shown` returns a mask of the changes that the snapshot shows. Raises NotComparable.
    """
    keys: list[pa.Array] = []
    rows: Counter[Row] = Counter()
    # the log does not carry generated columns, which are computed from the others
    logged = {column.name: column.type_oid for column in table.columns if not column.generated}
    for batch in changes:
        if (batch.op == ord("t")).any():
            return SupersededRows(everything=True)
        if identity:
            keys += _changed_keys(batch, identity)
        elif batch.before is not None:
            # the log also carries columns that the options leave out of the rows
            if not logged.items() <= {column.name: column.type_oid for column in batch.table.columns}.items():
                raise NotComparable
            gone = ~is_shown(batch)
            if batch.before.present is not None:
                gone &= batch.before.present
            named = [batch.before.columns[batch.table.index(name)] for name in logged]
            rows.update(zip(*(column.filter(pa.array(gone)).to_pylist() for column in named), strict=True))
    if identity:
        return SupersededRows(pa.concat_arrays(keys).unique()) if keys else NOTHING
    return SupersededRows(rows=tuple(rows.items()), columns=tuple(logged))


def _changed_keys(batch: ChangeBatch, identity: tuple[str, ...]) -> list[pa.Array]:
    """Return the keys in both images of the changes. Raises NotComparable if a change has none."""
    names = [column.name for column in batch.table.columns]
    if any(name not in names for name in identity):
        raise NotComparable
    found = []
    known = np.zeros(len(batch), np.bool_)
    for image in (batch.before, batch.after):
        if image is None:
            continue
        texts = key_texts(batch.table, identity, image.columns)
        carried = _carried(batch, image, identity)
        found.append(texts.filter(pa.array(carried)).drop_null())
        known |= carried & texts.is_valid().to_numpy(zero_copy_only=False)
    if not known.all():
        raise NotComparable
    return found


def _carried(batch: ChangeBatch, image: Image, identity: tuple[str, ...]) -> Flags:
    """Return a mask of the changes that have this image with the whole key in it."""
    carried = np.ones(len(batch), np.bool_) if image.present is None else image.present.copy()
    for name in identity:
        unavailable = image.unavailable[batch.table.index(name)]
        if unavailable is not None:
            carried &= ~unavailable
    return carried


def key_texts(table: TableSchema, identity: tuple[str, ...], columns: Sequence[pa.Array]) -> pa.Array:
    """Return the key of each row as one binary value; null if a part of the key is null."""
    parts = [columns[table.index(name)].cast(pa.binary()) for name in identity]
    # PostgreSQL's texts never hold a zero byte
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b"\0", pa.binary()))
