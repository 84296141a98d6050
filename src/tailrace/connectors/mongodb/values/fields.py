"""Fields in raw BSON, located without decoding: compiled walks over the top level of many documents.

The format is that of bsonspec.org, version 1.1: a document is its length as an int32, elements, and a zero byte; an
element is its type, its name ending with a zero byte, and its value. A place is the index of a value's first byte in
the buffer. Walks check lengths before they read, so wrong lengths are detected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly
from tailrace.kernels.compiled import kernel

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED, OBJECT_ID, BOOLEAN, DATE, NULL, REGEX = range(1, 12)
DB_POINTER, CODE, SYMBOL, SCOPED_CODE, INT32, TIMESTAMP, INT64, DECIMAL = range(12, 20)
MIN_KEY, MAX_KEY = 255, 127
ABSENT = 0
"""The type that `locate` reports for a field that a document does not have."""

# The size of each type's values, or -1 for a length prefix, -2 for two zero-terminated texts, -3 for an unknown type.
_SIZES = np.full(256, -3, np.int64)
for _type, _size in (
    (DOUBLE, 8), (UNDEFINED, 0), (OBJECT_ID, 12), (BOOLEAN, 1), (DATE, 8), (NULL, 0), (INT32, 4), (TIMESTAMP, 8),
    (INT64, 8), (DECIMAL, 16), (MIN_KEY, 0), (MAX_KEY, 0), (REGEX, -2),
    (STRING, -1), (DOCUMENT, -1), (ARRAY, -1), (BINARY, -1), (DB_POINTER, -1), (CODE, -1), (SYMBOL, -1),
    (SCOPED_CODE, -1),
):  # fmt: skip
    _SIZES[_type] = _size
# The bytes to add to the length prefix if it does not count itself or parts that follow.
_EXTRA = np.zeros(256, np.int64)
for _type, _size in ((STRING, 4), (BINARY, 5), (DB_POINTER, 16), (CODE, 4), (SYMBOL, 4)):
    _EXTRA[_type] = _size
# The least length prefix: a text has a zero byte, a document its own length and a zero byte.
_LEAST = np.zeros(256, np.int64)
for _type, _size in (
    (STRING, 1), (CODE, 1), (SYMBOL, 1), (DB_POINTER, 1), (DOCUMENT, 5), (ARRAY, 5), (SCOPED_CODE, 14),
):  # fmt: skip
    _LEAST[_type] = _size


@kernel(leaf=True, inlined=True)
def load(data: Bytes, at: int) -> int:
    """Return the int32 at `at`."""
    value = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
    value |= np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)
    return int(np.int64(np.int32(value)))


@kernel(leaf=True)
def value_size(data: Bytes, kind: int, at: int, end: int) -> int:
    """Return the size in bytes of the value of type `kind` at `at`; -1 if it goes beyond `end`."""
    size = int(_SIZES[kind])
    if size == -1:
        if at + 4 > end:
            return -1
        size = load(data, at)
        if size < _LEAST[kind]:
            return -1
        size += int(_EXTRA[kind])
    elif size == -2:
        position = at
        for _ in range(2):
            while position < end and data[position] != 0:
                position += 1
            position += 1
        size = position - at
    elif size == -3:
        return -1
    return size if at + size <= end else -1


@kernel
def _find(data: Bytes, starts: Int64s, names: Bytes, bounds: Int64s, places: Int64s, kinds: Bytes) -> int:
    """Fill `places` and `kinds`. Return the first malformed document, or -1."""
    count = len(bounds) - 1
    limit = len(data)
    for row in range(len(starts)):
        start = starts[row]
        if start < 0:
            continue
        if start + 5 > limit:
            return row
        end = start + load(data, start)
        if end > limit or end < start + 5 or data[end - 1] != 0:
            return row
        at = start + 4
        while at < end - 1:
            kind = data[at]
            at += 1
            name = at
            while at < end and data[at] != 0:
                at += 1
            length = at - name
            at += 1
            if at >= end:
                return row
            size = value_size(data, kind, at, end - 1)
            if size < 0:
                return row
            for number in range(count):
                first = bounds[number]
                if bounds[number + 1] - first == length:
                    same = True
                    for byte in range(length):
                        if data[name + byte] != names[first + byte]:
                            same = False
                            break
                    if same:
                        places[number, row] = at
                        kinds[number, row] = kind
                        break
            at += size
    return -1


@lru_cache(maxsize=256)
def _encoded(names: tuple[str, ...]) -> tuple[Bytes, Int64s]:
    """Return the names one after another, and their bounds."""
    encoded = [name.encode() for name in names]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return readonly(np.frombuffer(b"".join(encoded) + b"\0", np.uint8)), bounds


def locate(data: Bytes, starts: Int64s, names: tuple[str, ...]) -> tuple[Int64s, Bytes]:
    """Locate the fields `names` in the documents at `starts`. Return places and types, a row for each name.

    If a document has no such field, or its start is -1, the place is -1 and the type ABSENT. Of fields with the same
    name the last counts, as in decoders. Raises DecodeError for a malformed document.
    """
    text, bounds = _encoded(names)
    places = np.full((len(names), len(starts)), -1, np.int64)
    kinds = np.zeros((len(names), len(starts)), np.uint8)
    wrong = _find(data, np.ascontiguousarray(starts, np.int64), text, bounds, places, kinds)
    if wrong >= 0:
        raise DecodeError("A document of the log does not follow the BSON format.", int(starts[wrong]))
    return places, kinds


@kernel
def _elements(data: Bytes, start: int, places: Int64s, kinds: Bytes) -> int:
    end = start + load(data, start)
    if end > len(data) or end < start + 5 or data[end - 1] != 0:
        return -1
    at = start + 4
    count = 0
    while at < end - 1:
        kind = data[at]
        at += 1
        while at < end and data[at] != 0:
            at += 1
        at += 1
        size = value_size(data, kind, at, end - 1) if at < end else -1
        if size < 0:
            return -1
        if count < len(places):
            places[count] = at
            kinds[count] = kind
        count += 1
        at += size
    return count


def elements(data: Bytes, start: int) -> tuple[Int64s, Bytes]:
    """Return the places and types of the elements of the document or array at `start`. Raises DecodeError."""
    if start < 0 or start + 5 > len(data):
        raise DecodeError("An array of the log does not follow the BSON format.", start)
    size = int(load(data, start))
    # an element has at least a type, an empty name and no value
    room = max(min(size // 2, 4096), 1)
    while True:
        places, kinds = np.empty(room, np.int64), np.empty(room, np.uint8)
        count = int(_elements(data, start, places, kinds))
        if count < 0:
            raise DecodeError("An array of the log does not follow the BSON format.", start)
        if count <= room:
            return places[:count], kinds[:count]
        room = count


@kernel
def _int64s(data: Bytes, places: Int64s, kinds: Bytes, out: Int64s) -> None:
    for row in range(len(places)):
        kind = kinds[row]
        at = places[row]
        if at < 0:
            out[row] = 0
        elif kind == INT32:
            out[row] = load(data, at)
        elif kind in (INT64, TIMESTAMP, DATE):
            out[row] = (load(data, at) & 0xFFFFFFFF) | (load(data, at + 4) << 32)
        else:
            out[row] = 0


def int64s(data: Bytes, places: Int64s, kinds: Bytes) -> Int64s:
    """Return the numbers at `places`: int32, int64, date (ms) and timestamp (seconds in the upper half); 0 for other
    types."""
    out = np.empty(len(places), np.int64)
    _int64s(data, places, kinds, out)
    return out


def text(data: Bytes, place: int) -> str:
    """Return the text at a `place` that `locate` returned, with U+FFFD for bytes that are not UTF-8."""
    return data[place + 4 : place + 3 + int(load(data, place))].tobytes().decode("utf-8", "replace")


@kernel
def sizes_of(data: Bytes, starts: Int64s) -> Int64s:
    """Return the sizes in bytes of the documents at `starts`; 0 for a start of -1."""
    sizes = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        if starts[row] >= 0:
            sizes[row] = load(data, starts[row])
    return sizes


@kernel
def _gather(data: Bytes, starts: Int64s, offsets: Int64s, out: Bytes) -> None:
    for row in range(len(starts)):
        size = offsets[row + 1] - offsets[row]
        out[offsets[row] : offsets[row + 1]] = data[starts[row] : starts[row] + size]


def gathered(data: Bytes, starts: Int64s) -> tuple[Bytes, Int64s]:
    """Return the documents at `starts` one after another in a new buffer, and their bounds in it."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes_of(data, starts), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    _gather(data, np.ascontiguousarray(starts, np.int64), offsets, out)
    return out, offsets


@kernel
def _hashes(data: Bytes, offsets: Int32s, out: Int64s) -> None:
    for row in range(len(out)):
        value = np.uint64(14695981039346656037)
        for byte in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[byte])) * np.uint64(1099511628211)
        out[row] = np.int64(value >> np.uint64(1))


def hashes(data: Bytes, offsets: Int32s) -> Int64s:
    """Return a hash (FNV-1a) of each of the texts in `data`, never negative."""
    out = np.empty(len(offsets) - 1, np.int64)
    _hashes(data, offsets, out)
    return out


def load_kernels() -> None:
    """Compile or load the planner's kernels, so that its first batch does not wait for them."""
    document = readonly(np.frombuffer(bytes.fromhex("0f0000000274730002000000690000"), np.uint8))
    places, kinds = locate(document, np.zeros(1, np.int64), ("ts",))
    int64s(document, places[0], kinds[0])
    elements(document, 0)
    data, _ = gathered(document, np.zeros(1, np.int64))
    distinct(data, np.zeros(1, np.int64), np.ones(1, np.int64))


@kernel
def _distinct(data: Bytes, places: Int64s, sizes: Int64s, codes: Int64s, first: Int64s) -> int:
    """Number the byte strings at `places` by first appearance. Return the count of numbers; -1 if `first` is too
    short."""
    count = 0
    for row in range(len(places)):
        size = sizes[row]
        found = -1
        # neighbours are mostly equal: compare with the latest first
        for candidate in range(count - 1, -1, -1):
            other = first[candidate]
            if sizes[other] == size:
                same = True
                for byte in range(size):
                    if data[places[row] + byte] != data[places[other] + byte]:
                        same = False
                        break
                if same:
                    found = candidate
                    break
        if found < 0:
            if count == len(first):
                return -1
            first[count] = row
            found = count
            count += 1
        codes[row] = found
    return count


def distinct(data: Bytes, places: Int64s, sizes: Int64s) -> tuple[Int64s, list[bytes]]:
    """Return the distinct byte strings at `places`, after an index into them for each place."""
    codes = np.empty(len(places), np.int64)
    room = 64
    while True:
        first = np.empty(room, np.int64)
        count = int(_distinct(data, places, sizes, codes, first))
        if count >= 0:
            break
        room *= 8
    found = [data[places[row] : places[row] + sizes[row]].tobytes() for row in first[:count].tolist()]
    return codes, found
