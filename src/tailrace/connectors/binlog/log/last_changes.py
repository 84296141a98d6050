"""Reduction of a table's changes to the last changes of each key, for readers that need no others. Planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.connectors.binlog.log.forms import BinlogTable
from tailrace.connectors.binlog.log.position import BinlogTransactions, RowPlaces
from tailrace.connectors.binlog.log.row_kernels import LACKING, NO_IMAGE, NULL, UInt64s, ValuePlaces, hash_keys
from tailrace.errors import DecodeError
from tailrace.kernels.compiled import kernel
from tailrace.log.rows import frames
from tailrace.log.rows.segment import RowRun
from tailrace.values.texts import Int

_LENGTH_BYTES = 4


class _Keys(NamedTuple):
    """Keys with a change that makes earlier changes superfluous, in an open hash table over their bytes.

    Key i is `texts[starts[i] : starts[i + 1]]`, and `hashes[i]` its hash. `known` has one element, the number of keys.
    """

    slots: Int64s
    starts: Int64s
    hashes: UInt64s
    texts: Bytes
    known: Int64s

    @classmethod
    def of(cls, keys: int, text_bytes: int) -> _Keys:
        slots = np.full(1 << (2 * max(keys, 1) - 1).bit_length(), -1, np.int64)
        starts, hashes = np.zeros(keys + 1, np.int64), np.zeros(keys, np.uint64)
        return cls(slots, starts, hashes, np.empty(text_bytes, np.uint8), np.zeros(1, np.int64))

    def with_room(self, keys: int, text_bytes: int) -> _Keys:
        """Return the keys with room for `keys` and `text_bytes` more."""
        known = int(self.known[0])
        used = int(self.starts[known])
        if known + keys <= len(self.hashes) and used + text_bytes <= len(self.texts):
            return self
        larger = _Keys.of(max(known + keys, 2 * len(self.hashes)), max(used + text_bytes, 2 * len(self.texts)))
        larger.starts[: known + 1], larger.hashes[:known] = self.starts[: known + 1], self.hashes[:known]
        larger.texts[:used] = self.texts[:used]
        larger.known[0] = known
        _fill(larger)
        return larger


def standing(
    parts: Sequence[tuple[RowRun[RowPlaces, BinlogTransactions], Int64s]], table: BinlogTable, most: int = 0
) -> list[Flags] | None:
    """Return masks of the changes that a reader of the last rows needs, one mask for each part; None if it needs all.

    `parts` are runs with the places of the table's rows, in log order, without truncates. A change is superfluous if a
    later change of its key determines the row: a delete, or a new row with all its values. Keys are equal if their
    bytes are equal. A row of more than `most` bytes (0: no limit), or with a null in its key, is needed, and makes no
    other superfluous.

    Returns None if a row moves from one key to another, or if a part of a key is missing. Also returns None for a
    malformed row: the decoder raises the error. Raises DecodeError for offsets that do not fit the data.
    """
    from tailrace.connectors.binlog.log.decoder import located

    keys = _Keys.of(0, 0)
    indexes = frames.frozen(np.array([table.index(name) for name in table.key], np.int32), np.int32)
    found: list[Flags] = []
    for run, rows in reversed(parts):
        data, offsets = frames.gather(run.data, run.offsets, run.rows[rows])
        by_row, count = run.by_row.part(rows), len(rows)
        try:
            places = located(data, offsets, table.form, by_row.image, by_row.images)
        except DecodeError:
            return None
        hashes, moved = np.empty(count, np.uint64), np.zeros(count, np.bool_)
        data = frames.frozen(data, np.uint8)
        hash_keys(data, indexes, count, places, hashes, moved)
        if moved.any():
            return None
        of_keys = [side.reshape(-1, count)[indexes] for side in (places.old_lengths, places.lengths) if len(side)]
        text_bytes = sum(int(np.maximum(side, 0).sum(dtype=np.int64)) for side in of_keys)
        keys = keys.with_room(count, text_bytes + _LENGTH_BYTES * len(indexes) * count)
        stays = np.ones(count, np.bool_)
        _mark(data, np.diff(offsets), indexes, places, hashes, most, keys, stays)
        found.append(stays)
    return found[::-1]


@kernel
def _mark(
    data: Bytes,
    sizes: Int64s,
    indexes: Int32s,
    places: ValuePlaces,
    hashes: UInt64s,
    most: Int,
    keys: _Keys,
    stays: Flags,
) -> None:
    """Clear the flags of changes that a later change makes superfluous, from the last row to the first."""
    rows = len(sizes)
    old_starts, old_lengths = places.old_starts, places.old_lengths
    starts, lengths = places.starts, places.lengths
    has_old, has_new = len(old_lengths) > 0, len(lengths) > 0
    columns = (len(lengths) if has_new else len(old_lengths)) // max(rows, 1)
    mask = np.uint64(len(keys.slots) - 1)
    for row in range(rows - 1, -1, -1):
        if most and sizes[row] > most:
            continue
        is_new = has_new and lengths[row] != NO_IMAGE
        is_old = has_old and old_lengths[row] != NO_IMAGE
        known = keys.known[0]
        first = keys.starts[known]
        to = first
        has_null = False
        for index in indexes:
            place = index * rows + row
            length, start = np.int64(LACKING), np.int64(0)
            if is_new:
                length, start = np.int64(lengths[place]), np.int64(starts[place])
            if length == LACKING and is_old:
                length, start = np.int64(old_lengths[place]), np.int64(old_starts[place])
            if length == NULL:
                has_null = True
                break
            for byte in range(_LENGTH_BYTES):
                keys.texts[to + byte] = np.uint8((length >> (8 * byte)) & 255)
            to += _LENGTH_BYTES
            for byte in range(length):
                keys.texts[to + byte] = data[start + byte]
            to += length
        if has_null:
            continue
        hashed = hashes[row]
        slot = hashed & mask
        is_known = False
        while keys.slots[slot] >= 0:
            key = keys.slots[slot]
            if keys.hashes[key] == hashed and _is_at(keys, keys.starts[key], keys.starts[key + 1], first, to):
                is_known = True
                break
            slot = (slot + np.uint64(1)) & mask
        if is_known:
            stays[row] = False
            continue
        is_whole = True
        if is_new:
            for column in range(columns):
                place = column * rows + row
                if lengths[place] == LACKING and not (is_old and old_lengths[place] != LACKING):
                    is_whole = False
                    break
        if is_whole:
            keys.slots[slot] = known
            keys.starts[known + 1] = to
            keys.hashes[known] = hashed
            keys.known[0] = known + 1


@kernel(leaf=True)
def _fill(keys: _Keys) -> None:
    """Assign a slot to each known key of an empty table."""
    mask = np.uint64(len(keys.slots) - 1)
    for key in range(keys.known[0]):
        slot = keys.hashes[key] & mask
        while keys.slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        keys.slots[slot] = key


@kernel(leaf=True, inlined=True)
def _is_at(keys: _Keys, low: Int, high: Int, first: Int, last: Int) -> bool:
    """Return True if two texts are equal."""
    if high - low != last - first:
        return False
    for byte in range(high - low):  # noqa: SIM110  (numba has no generators in all())
        if keys.texts[low + byte] != keys.texts[first + byte]:
            return False
    return True
