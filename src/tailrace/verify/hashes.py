"""Row hashes of Arrow columns, equal to those of Spark's `xxhash64`. Kernels; worker.

The source's rows are hashed by the workers that read them, so they do not pass through the JVM. A table's rows are
hashed in the JVM, which reads them. `hashing.row_hash` defines the input of the hash; a property test compares both.
The function is the 64-bit xxHash with the seed 42; each column's hash is the seed of the next column's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.buffers import Bytes, Offsets, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.verify.hashing import CHUNKS

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

_SEED = np.uint64(42)
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4, _P5 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)
_LONG_DIGITS = 18
_ZEROS = pa.array(["0.0", "-0.0"])


def is_hashed(kind: pa.DataType) -> bool:
    """Return True if this module can hash values of the type; other types are hashed in the JVM."""
    kinds = pa.types
    return bool(
        kinds.is_signed_integer(kind) or kinds.is_boolean(kind) or kinds.is_date32(kind) or kinds.is_timestamp(kind)
        or kinds.is_float32(kind) or kinds.is_float64(kind) or kinds.is_string(kind) or kinds.is_binary(kind)
        or kinds.is_decimal128(kind)
    )  # fmt: skip


def row_hashes(columns: list[pa.Array]) -> Hashes:
    """Return the hash of each row, equal to that of `hashing.row_hash`."""
    found = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        valid = _valid(column)
        _flags(found, valid)
        _column(found, column, valid)
        if pa.types.is_floating(column.type):
            _zeros(found, column)
    return found


def chunks_of(keys: list[pa.Array]) -> npt.NDArray[np.int64]:
    """Return the chunk number of each row, equal to that of `hashing.chunk_of`."""
    found = np.full(len(keys[0]), _SEED, np.uint64)
    for key in keys:
        _column(found, key, _valid(key))
    return (found & np.uint64(CHUNKS - 1)).astype(np.int64)


class Summary:
    """Checksums of all chunks. `counts` has three rows: number of rows, XOR of hashes, sum of hashes' low 32 bits."""

    def __init__(self, counts: Counts | None = None) -> None:
        self.counts: Counts = np.zeros((3, CHUNKS), np.int64) if counts is None else counts

    def add(self, chunks: npt.NDArray[np.int64], hashes: Hashes) -> None:
        """Add rows, given as chunk numbers and hashes."""
        _summed(chunks, hashes, self.counts[0], self.counts[1].view(np.uint64), self.counts[2])

    def join(self, counts: Counts) -> None:
        """Add the counts of another summary."""
        self.counts[0] += counts[0]
        self.counts[1] ^= counts[1]
        self.counts[2] += counts[2]

    def differing(self, other: Summary) -> list[int]:
        """Return the numbers of the chunks that differ from `other`."""
        found: list[int] = np.flatnonzero((self.counts != other.counts).any(axis=0)).tolist()
        return found

    def written(self) -> bytes:
        """Return the counts as bytes, for `read`."""
        return self.counts.tobytes()

    @staticmethod
    def read(data: bytes) -> Counts:
        """Return the counts from the bytes of `written`."""
        return np.frombuffer(data, np.int64).reshape(3, CHUNKS)


def _valid(column: pa.Array) -> Bytes:
    """Return 1 for each value that is not null, 0 for null; empty if there are no nulls."""
    found = valid_flags(column)
    return readonly(np.zeros(0, np.uint8) if found is None else found.astype(np.uint8))


def _column(found: Hashes, column: pa.Array, valid: Bytes) -> None:
    """Hash the non-null values of a column into `found`."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _texts(found, *text_buffers(column), valid)
    elif pa.types.is_decimal(kind):
        words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :]
        if kind.precision <= _LONG_DIGITS:
            _longs(found, readonly(np.ascontiguousarray(words[: 2 * len(column) : 2])), valid)
        else:
            _decimals(found, readonly(words[: 2 * len(column)]), valid)
    elif pa.types.is_floating(kind):
        wide = pa.types.is_float64(kind)
        # as Spark: -0.0 as 0.0, and every NaN as one
        values = _filled(column) + (np.float64(0) if wide else np.float32(0))
        values[np.isnan(values)] = np.nan
        _numbers(found, values.view(np.int64 if wide else np.int32), valid)
    elif pa.types.is_boolean(kind):
        _numbers(found, _filled(column.cast(pa.int32())), valid)
    elif pa.types.is_timestamp(kind):
        _numbers(found, _filled(column.cast(pa.int64())), valid)
    elif pa.types.is_date32(kind):
        _numbers(found, _filled(column.cast(pa.int32())), valid)
    else:
        _numbers(found, _filled(column), valid)


def _filled(column: pa.Array) -> npt.NDArray[Any]:
    zero = pa.scalar(0, column.type)
    found: npt.NDArray[Any] = (column.fill_null(zero) if column.null_count else column).to_numpy(zero_copy_only=False)
    return found


def _numbers(found: Hashes, values: npt.NDArray[Any], valid: Bytes) -> None:
    if values.dtype == np.int64:
        _longs(found, readonly(np.ascontiguousarray(values)), valid)
    else:
        _ints(found, readonly(values.astype(np.int32)), valid)


def _zeros(found: Hashes, column: pa.Array) -> None:
    """Hash the sign of each zero into `found`."""
    values = _filled(column)
    zero = np.asarray(pc.equal(column, pa.scalar(0, column.type)).fill_null(False))
    if zero.any():
        texts = _ZEROS.take(pa.array(np.signbit(values).astype(np.int8), mask=~zero))
        _texts(found, *text_buffers(texts), _valid(texts))


@kernel(leaf=True)
def _left(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel(leaf=True)
def _mixed(found: np.uint64) -> np.uint64:
    found ^= found >> np.uint64(33)
    found *= _P2
    found ^= found >> np.uint64(29)
    found *= _P3
    return found ^ (found >> np.uint64(32))


@kernel(leaf=True)
def _int(value: np.uint64, seed: np.uint64) -> np.uint64:
    """Return the hash of the low 32 bits."""
    found = seed + _P5 + np.uint64(4)
    found ^= (value & _LOW) * _P1
    return _mixed(_left(found, 23) * _P2 + _P3)


@kernel(leaf=True)
def _long(value: np.uint64, seed: np.uint64) -> np.uint64:
    found = seed + _P5 + np.uint64(8)
    found ^= _left(value * _P2, 31) * _P1
    return _mixed(_left(found, 27) * _P1 + _P4)


@kernel(leaf=True)
def _word(data: Bytes, at: int) -> np.uint64:
    """Return eight bytes as a little-endian number."""
    found = np.uint64(0)
    for place in range(8):
        found |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return found


@kernel(leaf=True)
def _round(state: np.uint64, word: np.uint64) -> np.uint64:
    return _left(state + word * _P2, 31) * _P1


@kernel(leaf=True)
def _merged(found: np.uint64, state: np.uint64) -> np.uint64:
    return (found ^ _round(np.uint64(0), state)) * _P1 + _P4


@kernel(leaf=True)
def _bytes(data: Bytes, at: int, end: int, seed: np.uint64) -> np.uint64:
    """Return the hash of the bytes from `at` to `end`."""
    size = np.uint64(end - at)
    if end - at >= 32:
        v1, v2, v3, v4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at <= end - 32:
            v1, v2 = _round(v1, _word(data, at)), _round(v2, _word(data, at + 8))
            v3, v4 = _round(v3, _word(data, at + 16)), _round(v4, _word(data, at + 24))
            at += 32
        found = _left(v1, 1) + _left(v2, 7) + _left(v3, 12) + _left(v4, 18)
        found = _merged(_merged(_merged(_merged(found, v1), v2), v3), v4)
    else:
        found = seed + _P5
    found += size
    while at <= end - 8:
        found = _left(found ^ _round(np.uint64(0), _word(data, at)), 27) * _P1 + _P4
        at += 8
    if at <= end - 4:
        word = np.uint64(0)
        for place in range(4):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
        found = _left(found ^ word * _P1, 23) * _P2 + _P3
        at += 4
    while at < end:
        found = _left(found ^ np.uint64(data[at]) * _P5, 11) * _P1
        at += 1
    return _mixed(found)


@kernel(leaf=True)
def _flags(found: Hashes, valid: Bytes) -> None:
    """Hash 1 for each null and 0 for each other value into `found`."""
    for row in range(len(found)):
        is_null = len(valid) > 0 and not valid[row]
        found[row] = _int(np.uint64(1) if is_null else np.uint64(0), found[row])


@kernel(leaf=True)
def _ints(found: Hashes, values: Any, valid: Bytes) -> None:
    for row in range(len(found)):
        if len(valid) == 0 or valid[row]:
            found[row] = _int(np.uint64(values[row]), found[row])


@kernel(leaf=True)
def _longs(found: Hashes, values: Any, valid: Bytes) -> None:
    for row in range(len(found)):
        if len(valid) == 0 or valid[row]:
            found[row] = _long(np.uint64(values[row]), found[row])


@kernel(leaf=True)
def _texts(found: Hashes, data: Bytes, offsets: Offsets, valid: Bytes) -> None:
    for row in range(len(found)):
        if len(valid) == 0 or valid[row]:
            found[row] = _bytes(data, offsets[row], offsets[row + 1], found[row])


@kernel
def _decimals(found: Hashes, words: Any, valid: Bytes) -> None:
    """Hash each number as its shortest two's complement in big-endian bytes."""
    shown = np.zeros(16, np.uint8)
    for row in range(len(found)):
        if len(valid) > 0 and not valid[row]:
            continue
        for place in range(16):
            word = np.uint64(words[2 * row + (0 if place < 8 else 1)])
            shown[15 - place] = np.uint8((word >> np.uint64(8 * (place % 8))) & np.uint64(255))
        first = 0
        sign = np.uint8(255) if shown[0] >= 128 else np.uint8(0)
        while first < 15 and shown[first] == sign and (shown[first + 1] >= 128) == (sign == 255):
            first += 1
        found[row] = _bytes(shown, first, 16, found[row])


@kernel(leaf=True)
def _summed(chunks: Any, hashes: Hashes, count: Any, xor: Hashes, total: Any) -> None:
    for row in range(len(chunks)):
        chunk = chunks[row]
        count[chunk] += 1
        xor[chunk] ^= hashes[row]
        total[chunk] += np.int64(hashes[row] & _LOW)
