"""Scans of raw messages, to cut them into segments: kinds, tables, hashes of keys. Planner.

All functions take many messages at once: message i is `data[offsets[i]:offsets[i + 1]]`, of protocol version 1 (no
transaction id after the kind byte). DecodeError has the offset into `data`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.connectors.postgres.protocol.pgoutput import Delete, Insert, Update, check_widths, parse
from tailrace.errors import DecodeError
from tailrace.kernels.compiled import kernel
from tailrace.log.rows.frames import check_indexes, check_offsets, frozen, gather

UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]

_RELATION, _INSERT, _UPDATE, _DELETE = ord("R"), ord("I"), ord("U"), ord("D")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")

# The 64-bit FNV-1a parameters, and the two multipliers of MurmurHash3's finaliser, which spreads FNV's weak low bits.
_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_MIX_SHIFT = np.uint64(33)


def scan(data: Bytes, offsets: Int64s) -> tuple[Bytes, UInt32s]:
    """Return each message's kind byte and, for Relation, Insert, Update and Delete, its relation id (0 for the others).

    Raises DecodeError for a message that is empty or ends within its relation id.
    """
    data, offsets = frozen(data, np.uint8), frozen(offsets, np.int64)
    check_offsets(data, offsets, len(offsets) - 1)
    kinds = np.empty(len(offsets) - 1, dtype=np.uint8)
    relations = np.zeros(len(offsets) - 1, dtype=np.uint32)
    good = _scan(data, offsets, kinds, relations)
    if good < len(kinds):
        start, end = offsets[good : good + 2].tolist()
        if start == end:
            raise DecodeError("The message is empty.", start)
        raise DecodeError("The message ends within its relation id.", start + 1)
    return kinds, relations


def key_hashes(data: Bytes, offsets: Int64s, rows: Int64s, key_indexes: Int32s, columns: int) -> tuple[UInt64s, Flags]:
    """Return a hash of each row's key, and a mask `moved` of the messages that move a row from one key to another.

    `rows` are the indexes of Insert, Update and Delete messages of one table with `columns` columns; `key_indexes` are
    the positions of its key columns. The hash covers the key's values in the new tuple (Delete: in the old one). It is
    the same in every process and on every machine, and differs between null and the empty string.

    `moved` is True if an Update has a K tuple, or an O tuple with other key values. It is also True if the key is not
    wholly known, because of an unavailable value, or of a null in a Delete's K tuple (a key column outside the replica
    identity).

    Raises DecodeError for a message of another kind or width. Only the bytes up to the key's last column are checked;
    the decoder checks the rest. Raises IndexError for rows or key indexes that do not exist.
    """
    data, offsets = frozen(data, np.uint8), frozen(offsets, np.int64)
    rows, key_indexes = frozen(rows, np.int64), frozen(key_indexes, np.int32)
    check_offsets(data, offsets, len(offsets) - 1)
    check_indexes(rows, len(offsets) - 1, "message")
    check_indexes(key_indexes, columns, "key column")
    hashes = np.empty(len(rows), dtype=np.uint64)
    moved = np.zeros(len(rows), dtype=np.bool_)
    good = _key_hashes(data, offsets, rows, key_indexes, columns, hashes, moved)
    if good < len(rows):
        start, end = offsets[rows[good] : rows[good] + 2].tolist()
        _explain(data[start:end].tobytes(), start, columns)
    return hashes, moved


def unchanged(data: Bytes, offsets: Int64s, rows: Int64s, compared: Int32s, columns: int) -> Flags:
    """Return a mask of the Updates that carry the whole old row and change none of the columns `compared`.

    `rows` are the indexes of Update messages of one table with `columns` columns. A value that the log leaves out as
    unchanged counts as unchanged. Raises DecodeError for a message of another kind or width, IndexError for rows or
    columns that do not exist.
    """
    data, offsets = frozen(data, np.uint8), frozen(offsets, np.int64)
    rows, compared = frozen(rows, np.int64), frozen(compared, np.int32)
    check_offsets(data, offsets, len(offsets) - 1)
    check_indexes(rows, len(offsets) - 1, "message")
    check_indexes(compared, columns, "column")
    same = np.zeros(len(rows), dtype=np.bool_)
    good = _unchanged(data, offsets, rows, compared, columns, same)
    if good < len(rows):
        start, end = offsets[rows[good] : rows[good] + 2].tolist()
        _explain(data[start:end].tobytes(), start, columns)
    return same


def _explain(message: bytes, start: int, columns: int) -> None:
    """Raise the DecodeError for a message whose key could not be read."""
    try:
        parsed = parse(message)
        if not isinstance(parsed, Insert | Update | Delete):
            raise DecodeError(f"A {type(parsed).__name__} message has no key.", 0)
        check_widths(parsed, columns, f"relation {parsed.relation_id}")
    except DecodeError as error:
        raise DecodeError(error.message, start + error.offset) from None
    raise DecodeError("The message is not understood.", start)


# np.int64 below, because in numba a shifted int(byte) is unsigned, and its sum with a position a float.


@kernel(leaf=True, inlined=True)
def uint16(data: Bytes, at: int) -> int:
    """Return the big-endian number in the two bytes at `at`; the caller checks that they exist."""
    return int((np.int64(data[at]) << 8) | np.int64(data[at + 1]))


@kernel(leaf=True, inlined=True)
def uint32(data: Bytes, at: int) -> int:
    """Return the big-endian number in the four bytes at `at`; the caller checks that they exist."""
    high = (np.int64(data[at]) << 24) | (np.int64(data[at + 1]) << 16)
    return int(high | (np.int64(data[at + 2]) << 8) | np.int64(data[at + 3]))


@kernel
def _scan(data: Bytes, offsets: Int64s, kinds: Bytes, relations: UInt32s) -> int:
    """Fill `kinds` and `relations`; return the number of messages before the first one that is too short."""
    for row in range(len(kinds)):
        start, end = offsets[row], offsets[row + 1]
        if start == end:
            return row
        kind = data[start]
        kinds[row] = kind
        if kind in (_RELATION, _INSERT, _UPDATE, _DELETE):
            if end - start < 5:
                return row
            relations[row] = uint32(data, start + 1)
    return len(kinds)


@kernel
def _key_hashes(
    data: Bytes, offsets: Int64s, rows: Int64s, key_indexes: Int32s, columns: int, hashes: UInt64s, moved: Flags
) -> int:
    """Fill `hashes` and `moved`; return the number of rows before the first that cannot be read."""
    width = 0
    for index in key_indexes:
        width = max(width, index + 1)
    starts = np.zeros(columns, dtype=np.int64)
    lengths = np.zeros(columns, dtype=np.int64)
    old_starts = np.zeros(columns, dtype=np.int64)
    old_lengths = np.zeros(columns, dtype=np.int64)
    for row in range(len(rows)):
        at, end = offsets[rows[row]], offsets[rows[row] + 1]
        if end - at < 6:
            return row
        kind, tag = data[at], data[at + 5]
        at += 6
        if kind == _INSERT or (kind == _UPDATE and tag == _NEW):
            if tag != _NEW or located(data, at, end, columns, width, starts, lengths) < 0:
                return row
        elif kind == _DELETE and tag in (_KEY, _OLD):
            if located(data, at, end, columns, width, starts, lengths) < 0:
                return row
            if tag == _KEY:
                for index in key_indexes:
                    moved[row] |= lengths[index] == -1
        elif kind == _UPDATE and tag in (_KEY, _OLD):
            at = located(data, at, end, columns, columns, old_starts, old_lengths)
            if at < 0 or at >= end or data[at] != _NEW:
                return row
            if located(data, at + 1, end, columns, width, starts, lengths) < 0:
                return row
            moved[row] = tag == _KEY
            for index in key_indexes:
                moved[row] |= not equal(data, starts[index], lengths[index], old_starts[index], old_lengths[index])
        else:
            return row
        for index in key_indexes:
            moved[row] |= lengths[index] == -2
        hashes[row] = key_hash(data, key_indexes, starts, lengths)
    return len(rows)


@kernel(leaf=True, inlined=True)
def key_hash(data: Bytes, key_indexes: Int32s, starts: Int64s, lengths: Int64s) -> np.uint64:
    """Return the hash of a key whose values lie at `starts`, as `located` has set them."""
    hashed = _FNV_BASIS
    for index in key_indexes:
        length = lengths[index]
        # The length goes in first, so that ("a", "bc") is not ("ab", "c"); null and unavailable have lengths of
        # their own.
        hashed = (hashed ^ np.uint64(length)) * _FNV_PRIME
        for place in range(starts[index], starts[index] + max(length, 0)):
            hashed = (hashed ^ np.uint64(data[place])) * _FNV_PRIME
    hashed = (hashed ^ (hashed >> _MIX_SHIFT)) * _MIX_1
    hashed = (hashed ^ (hashed >> _MIX_SHIFT)) * _MIX_2
    return np.uint64(hashed ^ (hashed >> _MIX_SHIFT))


@kernel
def _unchanged(data: Bytes, offsets: Int64s, rows: Int64s, compared: Int32s, columns: int, same: Flags) -> int:
    """Fill `same`; return the number of rows before the first that cannot be read."""
    starts = np.zeros(columns, dtype=np.int64)
    lengths = np.zeros(columns, dtype=np.int64)
    old_starts = np.zeros(columns, dtype=np.int64)
    old_lengths = np.zeros(columns, dtype=np.int64)
    for row in range(len(rows)):
        at, end = offsets[rows[row]], offsets[rows[row] + 1]
        if end - at < 6 or data[at] != _UPDATE:
            return row
        if data[at + 5] != _OLD:
            continue
        at = located(data, at + 6, end, columns, columns, old_starts, old_lengths)
        if at < 0 or at >= end or data[at] != _NEW:
            return row
        if located(data, at + 1, end, columns, columns, starts, lengths) < 0:
            return row
        same[row] = True
        for index in compared:
            kept = lengths[index] == -2 or equal(
                data, starts[index], lengths[index], old_starts[index], old_lengths[index]
            )
            if not kept:
                same[row] = False
                break
    return len(rows)


@kernel(leaf=True, inlined=True)
def located(data: Bytes, at: int, end: int, columns: int, width: int, starts: Int64s, lengths: Int64s) -> int:
    """Set `starts` and `lengths` of the first `width` columns of the tuple at `at`; length -1 is null, -2 unavailable.

    Return the position after the last of these values; -1 if the tuple is malformed or does not have `columns` columns.
    """
    if end - at < 2 or uint16(data, at) != columns:
        return -1
    at += 2
    for column in range(width):
        if at >= end:
            return -1
        kind = data[at]
        at += 1
        starts[column] = at
        if kind == _TEXT:
            if end - at < 4:
                return -1
            length = uint32(data, at)
            at += 4
            if length > end - at:
                return -1
            starts[column] = at
            lengths[column] = length
            at += length
        elif kind == _NULL:
            lengths[column] = -1
        elif kind == _UNCHANGED:
            lengths[column] = -2
        else:
            return -1
    return at


@kernel(leaf=True, inlined=True)
def equal(data: Bytes, start: int, length: int, other_start: int, other_length: int) -> bool:
    """Return True if two values, each of which may be null or unavailable, are equal."""
    if length != other_length:
        return False
    for index in range(max(length, 0)):  # noqa: SIM110  (numba has no generators in all())
        if data[start + index] != data[other_start + index]:
            return False
    return True


def load() -> None:
    """Load the kernels, or compile them if they are not cached, so that the first real call does not wait."""
    data, offsets, none = np.frombuffer(b"O", np.uint8), np.array([0, 1], np.int64), np.empty(0, np.int64)
    scan(data, offsets)
    gather(data, offsets, none)
    key_hashes(data, offsets, none, np.empty(0, np.int32), 0)
    unchanged(data, offsets, none, np.empty(0, np.int32), 0)
