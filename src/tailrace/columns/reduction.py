"""Reduction: finds the last change of each key, and the source of values that the log did not carry. Pure."""

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
    """Return a number for each row, equal for rows whose values are equal in all columns, as Spark compares them."""
    assert columns
    found: Int64s = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        compared = _flat(column)
        codes = pc.dictionary_encode(compared, null_encoding="encode")
        values = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found = np.unique(found * (len(codes.dictionary) + 1) + values, return_inverse=True)[1].astype(np.int64)
    return found


def _flat(values: pa.Array) -> pa.Array:
    """Return values of a type that one pass can compare: structs and maps as numbers, lists as bytes of numbers."""
    kind = values.type
    if pa.types.is_map(kind):
        return _flat(values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_floating(kind):
        # the two zeros are one key
        return pc.add(values, pa.scalar(0, kind))
    if pa.types.is_struct(kind):
        parts = [values.is_valid(), *(values.field(place) for place in range(kind.num_fields))]
        return pa.array(groups(parts))
    if pa.types.is_list(kind):
        parts = pa.array(groups([values.flatten()]) if len(values.flatten()) else np.zeros(0, np.int64))
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy().astype(np.int64)
        ends = np.append(0, np.cumsum(lengths)) * 8
        # a null list differs from an empty one
        whole = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(values), [None, pa.py_buffer(ends), parts.buffers()[1]]
        )
        return pc.if_else(values.is_valid(), whole, pa.scalar(None, whole.type))
    return values


def before(group: Int64s) -> Int64s:
    """Return the previous row of the same group for each row, NONE for the first; rows are in order."""
    order = np.argsort(group, kind="stable")
    found: Int64s = np.full(len(group), NONE, np.int64)
    same = group[order[1:]] == group[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def lasts(group: Int64s) -> Int64s:
    """Return the last row of each group, ascending."""
    order = np.argsort(group, kind="stable")
    ends = np.append(group[order[1:]] != group[order[:-1]], True) if len(order) else np.zeros(0, np.bool_)
    return np.sort(order[ends])


def sources(previous: Int64s, has: Flags) -> Int64s:
    """Return, for each row, the nearest row that has the value: itself or an earlier one by `previous`; NONE without
    one."""
    count = len(previous)
    jump = np.where(has, np.arange(count), previous)
    # NONE becomes a place after the last row that leads to itself
    jump = np.append(np.where(jump == NONE, count, jump), count)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    found: Int64s = np.where(jump[:-1] == count, NONE, jump[:-1])
    return found


def flagged(lists: pa.Array, count: int) -> Flags:
    """Return a row of flags for each of `count` columns: True for rows whose list has the column's index."""
    found: Flags = np.zeros((count, len(lists)), np.bool_)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    found[lists.flatten().to_numpy(zero_copy_only=False), np.repeat(np.arange(len(lists)), lengths)] = True
    return found


def listed(flags: Flags) -> pa.Array:
    """Return the lists of flagged indexes; null for a row without any."""
    columns = np.nonzero(flags.T)[1].astype(np.int32)
    counts = flags.sum(axis=0)
    ends = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32), mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(ends, pa.array(columns), pa.list_(pa.field("element", pa.int32())))


def roots(previous: Int64s) -> Int64s:
    """Return, for each row, the first of the rows to which `previous` leads."""
    return sources(previous, previous == NONE)


def running(weight: Int64s, group: Int64s) -> Int64s:
    """Return, for each row, 1 plus the weights of the earlier rows of its group."""
    order = np.argsort(group, kind="stable")
    before_it = np.cumsum(weight[order]) - weight[order]
    inner = group[order]
    starts = np.flatnonzero(np.diff(inner, prepend=inner[:1] - 1))
    base = np.repeat(before_it[starts], np.diff(starts, append=len(group)))
    found: Int64s = np.empty(len(group), np.int64)
    found[order] = before_it - base + 1
    return found
