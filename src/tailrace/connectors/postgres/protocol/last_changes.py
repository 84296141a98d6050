"""Reduction of a table's changes to the last ones of each key, for sinks that need only these. Planner.

The input are raw messages, as for `scan`: message i is `data[offsets[i]:offsets[i + 1]]`, of protocol version 1.
Superfluous messages are neither copied nor decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.connectors.postgres.protocol import scan
from tailrace.kernels.compiled import kernel
from tailrace.log.rows.frames import check_offsets, frozen

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_LENGTH_BYTES = 4
_KEY_BYTES = 16
# Initial number of keys: their hash table fits into the processor's caches. A log has many changes of few keys.
_FIRST_KEYS = 1 << 15
_FULL, _OTHER, _PART, _WHOLE = -1, -2, 0, 1


class _Keys(NamedTuple):
    """The keys seen so far: a hash table with open addressing over their texts, which are contiguous in `texts`.

    Key i is `texts[starts[i] : starts[i + 1]]`, and `hashes[i]` its hash. `covered[i]` is True if a change of the key
    was seen that makes all earlier ones superfluous. `known` has one element, the number of keys.
    """

    slots: Int64s
    starts: Int64s
    hashes: npt.NDArray[np.uint64]
    covered: Flags
    texts: Bytes
    known: Int64s

    @classmethod
    def of(cls, keys: int, text_bytes: int) -> _Keys:
        """Return an empty table with room for `keys` keys and `text_bytes` bytes of their texts."""
        slots = np.full(1 << (2 * keys - 1).bit_length(), -1, np.int64)
        starts, hashes, covered = np.zeros(keys + 1, np.int64), np.zeros(keys, np.uint64), np.zeros(keys, np.bool_)
        return cls(slots, starts, hashes, covered, np.empty(text_bytes, np.uint8), np.zeros(1, np.int64))

    def grown(self, further: int) -> _Keys:
        """Return a copy with twice the room, and `further` more bytes for texts."""
        known = int(self.known[0])
        larger = _Keys.of(2 * len(self.covered), 2 * len(self.texts) + further)
        for own, other in ((self.starts, larger.starts), (self.hashes, larger.hashes), (self.covered, larger.covered)):
            other[: len(own)] = own
        used = int(self.starts[known])
        larger.texts[:used] = self.texts[:used]
        larger.known[0] = known
        _fill(larger)
        return larger


class _Values(NamedTuple):
    """The places of the values of a message's new row and of its old row, as `scan.located` finds them."""

    starts: Int64s
    lengths: Int64s
    old_starts: Int64s
    old_lengths: Int64s


def standing(
    parts: Sequence[tuple[Bytes, Int64s, Int64s]], key_indexes: Int32s, columns: int, most: int = 0
) -> list[Flags] | None:
    """Return masks of the changes that determine the last rows, one mask per part; None if all changes are needed.

    `parts` are data, offsets and the indexes of Insert, Update and Delete messages of a table with that many `columns`,
    in log order; `key_indexes` are the positions of its key columns. A change is superfluous if a later one of its key
    determines the row: a delete, or a new row without unavailable values. Keys are equal if their texts are equal. A
    message of more than `most` bytes (0: no limit), or with a null in its key, stays and makes no other message
    superfluous.

    The result is None in three cases: a message moves a row from one key to another (see `scan.key_hashes`), a key is
    not wholly known, or a message is malformed (the decoder raises the error). Raises DecodeError for offsets that do
    not fit the data.
    """
    first = max(min(sum(len(rows) for _, _, rows in parts), _FIRST_KEYS), 1)
    keys = _Keys.of(first, _KEY_BYTES * first)
    key_indexes = frozen(key_indexes, np.int32)
    values = _Values(*(np.zeros(columns, np.int64) for _ in range(4)))
    found: list[Flags] = []
    for given in reversed(parts):
        data, offsets, rows = frozen(given[0], np.uint8), frozen(given[1], np.int64), frozen(given[2], np.int64)
        check_offsets(data, offsets, len(offsets) - 1)
        stays = np.ones(len(rows), np.bool_)
        left = len(rows)
        while left:
            left, state = _standing(data, offsets, rows[:left], key_indexes, most, keys, values, stays)
            if state == _OTHER:
                return None
            if state == _FULL:
                keys = keys.grown(int(offsets[rows[left - 1] + 1] - offsets[rows[left - 1]]) + _LENGTH_BYTES * columns)
        found.append(stays)
    return found[::-1]


@kernel(leaf=True)
def _standing(
    data: Bytes, offsets: Int64s, rows: Int64s, key_indexes: Int32s, most: int, keys: _Keys, values: _Values,
    stays: Flags,
) -> tuple[int, int]:  # fmt: skip
    """Process the rows from the last to the first; return the number of rows left, and `_FULL` or `_OTHER` if it
    stops."""
    for row in range(len(rows) - 1, -1, -1):
        at, end = offsets[rows[row]], offsets[rows[row] + 1]
        if most and end - at > most:
            continue
        state = _read(data, at, end, key_indexes, values)
        size, has_null = 0, False
        for index in key_indexes:
            length = values.lengths[index]
            if length == -2:
                state = _OTHER
            has_null |= length == -1
            size += _LENGTH_BYTES + max(length, 0)
        if state == _OTHER:
            return row + 1, _OTHER
        if has_null:
            continue
        known = keys.known[0]
        if known == len(keys.covered) or keys.starts[known] + size > len(keys.texts):
            return row + 1, _FULL
        key = _key(data, key_indexes, values, keys)
        if keys.covered[key]:
            stays[row] = False
        elif state == _WHOLE:
            keys.covered[key] = True
    return 0, 0


@kernel(leaf=True, inlined=True)
def _read(data: Bytes, at: int, end: int, key_indexes: Int32s, values: _Values) -> int:
    """Locate the values of a message, and return the message's state.

    The state is `_WHOLE` for a delete, or if all values of the new row are available; `_PART` if a value is
    unavailable; `_OTHER` if the message moves a row to another key or is malformed.
    """
    if end - at < 6:
        return _OTHER
    kind, tag = data[at], data[at + 5]
    at += 6
    columns = len(values.starts)
    if kind == _DELETE and tag in (_OLD, _KEY):
        at = scan.located(data, at, end, columns, columns, values.starts, values.lengths)
        if tag == _KEY:
            for index in key_indexes:
                if values.lengths[index] == -1:
                    return _OTHER
        return _WHOLE if at == end else _OTHER
    if kind == _UPDATE and tag == _OLD:
        at = scan.located(data, at, end, columns, columns, values.old_starts, values.old_lengths)
        if at < 0 or at >= end or data[at] != _NEW:
            return _OTHER
        at += 1
    elif kind not in (_INSERT, _UPDATE) or tag != _NEW:
        return _OTHER
    if scan.located(data, at, end, columns, columns, values.starts, values.lengths) != end:
        return _OTHER
    if tag == _OLD:
        for index in key_indexes:
            start, length = values.starts[index], values.lengths[index]
            if not scan.equal(data, start, length, values.old_starts[index], values.old_lengths[index]):
                return _OTHER
    for length in values.lengths:
        if length == -2:
            return _PART
    return _WHOLE


@kernel(leaf=True, inlined=True)
def _key(data: Bytes, key_indexes: Int32s, values: _Values, keys: _Keys) -> int:
    """Return the number of a message's key, added to `keys` if it is new; the caller makes room for its text."""
    first = keys.starts[keys.known[0]]
    # the text is written after the known texts; if the key is new, it stays there
    to = first
    for index in key_indexes:
        start, length = values.starts[index], values.lengths[index]
        for byte in range(_LENGTH_BYTES):
            keys.texts[np.uintp(to + byte)] = np.uint8((length >> (8 * byte)) & 255)
        to += _LENGTH_BYTES
        for byte in range(length):
            keys.texts[np.uintp(to + byte)] = data[np.uintp(start + byte)]
        to += length
    mask = np.uint64(len(keys.slots) - 1)
    hashed = scan.key_hash(data, key_indexes, values.starts, values.lengths)
    slot = hashed & mask
    while keys.slots[slot] >= 0:
        key = keys.slots[slot]
        if keys.hashes[key] == hashed and _is_at(keys, keys.starts[key], keys.starts[key + 1], first, to):
            return int(key)
        slot = (slot + np.uint64(1)) & mask
    key = keys.known[0]
    keys.slots[slot] = key
    keys.starts[key + 1] = to
    keys.hashes[key] = hashed
    keys.covered[key] = False
    keys.known[0] = key + 1
    return int(key)


@kernel(leaf=True)
def _fill(keys: _Keys) -> None:
    """Enter all known keys into the empty `slots`."""
    mask = np.uint64(len(keys.slots) - 1)
    for key in range(keys.known[0]):
        slot = keys.hashes[key] & mask
        while keys.slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        keys.slots[slot] = key


@kernel(leaf=True, inlined=True)
def _is_at(keys: _Keys, low: int, high: int, first: int, last: int) -> bool:
    """Return True if two texts are equal."""
    if high - low != last - first:
        return False
    for byte in range(high - low):  # noqa: SIM110  (numba has no generators in all())
        if keys.texts[np.uintp(low + byte)] != keys.texts[np.uintp(first + byte)]:
            return False
    return True


def load() -> None:
    """Load the kernel, or compile it the first time."""
    insert = np.frombuffer(b"I\0\0\0\1N\0\1t\0\0\0\0011", np.uint8)
    offsets, one = np.array([0, len(insert)], np.int64), np.zeros(1, np.int64)
    standing([(insert, offsets, one)], np.zeros(1, np.int32), 1)
    _Keys.of(1, 1).grown(0)
