"""Reduction: which change of each key is the last, and where values that the log did not carry come from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NONE = -1


def groups(columns: Sequence[pa.Array]) -> Int64s:
    """A number for each row, the same for rows whose values are equal in all columns, as Spark compares them."""
    assert columns
    found: Int64s = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        # the two zeros are one key
        floats = pa.types.is_floating(column.type)
        compared = pc.add(column, pa.scalar(0, column.type)) if floats else column
        codes = pc.dictionary_encode(compared, null_encoding="encode")
        values = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found = np.unique(found * (len(codes.dictionary) + 1) + values, return_inverse=True)[1].astype(np.int64)
    return found


def before(group: Int64s) -> Int64s:
    """Of each row the one of its group before it, NONE for the first; rows are in order."""
    order = np.argsort(group, kind="stable")
    found: Int64s = np.full(len(group), NONE, np.int64)
    same = group[order[1:]] == group[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def lasts(group: Int64s) -> Int64s:
    """The last row of each group, ascending."""
    order = np.argsort(group, kind="stable")
    ends = np.append(group[order[1:]] != group[order[:-1]], True) if len(order) else np.zeros(0, np.bool_)
    return np.sort(order[ends])


def sources(previous: Int64s, has: Flags) -> Int64s:
    """Of each row the nearest of itself and those before it, by `previous`, that has the value; NONE where none has."""
    count = len(previous)
    jump = np.where(has, np.arange(count), previous)
    # what nobody has stands behind the last row, and leads to itself
    jump = np.append(np.where(jump == NONE, count, jump), count)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    found: Int64s = np.where(jump[:-1] == count, NONE, jump[:-1])
    return found


def roots(previous: Int64s) -> Int64s:
    """Of each row the first of those that `previous` leads to."""
    return sources(previous, previous == NONE)
