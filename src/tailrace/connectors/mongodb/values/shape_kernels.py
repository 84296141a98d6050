"""The compiled walk that writes the shapes of BSON values: the fields and types of a document. Worker.

A shape is a byte string that begins with the type of the value. For a document, all its elements follow, and a zero
byte at the end. Each element is its type, its name, a zero byte and the rest of its shape. For an array the distinct
shapes of its elements follow or, if arrays are shown as documents, the shapes of all elements, without names. A leaf is
a value that is not a document, or an array as a whole. Leaves are numbered in order, except within arrays of distinct
shapes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s, load, value_size
from tailrace.connectors.mongodb.values.json_forms import MOST_LEVELS
from tailrace.connectors.mongodb.values.value_kernels import LEFT, character_of
from tailrace.kernels.compiled import kernel

_STRING, _DOCUMENT, _ARRAY, _BINARY = fields.STRING, fields.DOCUMENT, fields.ARRAY, fields.BINARY
_BOOLEAN, _REGEX, _POINTER = fields.BOOLEAN, fields.REGEX, fields.DB_POINTER
_CODE, _SYMBOL, _SCOPED, _INT32, _INT64 = (
    fields.CODE, fields.SYMBOL, fields.SCOPED_CODE, fields.INT32, fields.INT64,
)  # fmt: skip
_DOLLAR = 36
_MOST_MARKS = 4096
_NAMED, _SET, _ALL = 0, 1, 2
WHOLE = 254
"""Written instead of a type for a document that is not searched."""


class WalkRules(NamedTuple):
    """The rules of a walk.

    `narrow`: an int64 that fits into an int32 counts as an int32, as in texts without type wrappers. `spread`: arrays
    are shown as documents. `checked`: documents that begin with a name of extended JSON, and pointers, are left to the
    code in plain Python; with `bare` except the outermost document. `drops`: texts with control characters are left,
    too, as old keys drop these. A document in the top-level field `whole` is a leaf of the type WHOLE.
    """

    narrow: bool
    spread: bool
    checked: bool
    bare: bool
    drops: bool
    whole: Bytes


class _Levels(NamedTuple):
    """The open documents and arrays: end, kind, beginning of the current element's shape, and first mark of each."""

    ends: Int64s
    sorts: Int64s
    elements: Int64s
    marks: Int64s


class _Marks(NamedTuple):
    """The distinct shapes of the elements of open arrays: beginning and end of each."""

    begins: Int64s
    ends: Int64s


@kernel(leaf=True)
def _is_text(data: Bytes, begin: int, end: int, drops: bool) -> bool:
    """Return True if data[begin:end] is UTF-8, with `drops` also without control characters."""
    position = begin
    while position < end:
        byte = data[np.uintp(position)]
        if byte >= 128:
            _, size = character_of(data, position, end)
            if size == 0:
                return False
            position += size
        else:
            if drops and byte < 32:
                return False
            position += 1
    return True


@kernel(leaf=True)
def _is_ascii(data: Bytes, place: int, size: int) -> bool:
    """Return True if the options of a regular expression are ASCII. Others are sorted in plain Python."""
    position = place
    while data[np.uintp(position)] != 0:
        position += 1
    while position < place + size and data[np.uintp(position)] < 128:
        position += 1
    return bool(position == place + size)


@kernel(leaf=True)
def _is_sound(data: Bytes, kind: int, place: int, size: int, drops: bool, checked: bool) -> bool:
    """Return True if the columns can show a value, neither document nor array, from its bytes."""
    if kind in (_STRING, _CODE, _SYMBOL):
        if size < 5 or data[np.uintp(place + size - 1)] != 0:
            return False
        return bool(_is_text(data, place + 4, place + size - 1, drops))
    if kind == _REGEX:
        return bool(_is_text(data, place, place + size, False) and (not checked or _is_ascii(data, place, size)))
    if kind == _BOOLEAN:
        return bool(data[np.uintp(place)] <= 1)
    if kind == _BINARY and data[np.uintp(place + 4)] == 2:
        return bool(size >= 9 and load(data, place + 5) == size - 9)
    return True


@kernel(leaf=True)
def _is_small(data: Bytes, place: int) -> bool:
    """Return True if the int64 at `place` fits into an int32."""
    high, low = load(data, place + 4), load(data, place)
    return bool((high == 0 and low >= 0) or (high == -1 and low < 0))


@kernel(leaf=True)
def _has_wrapper(data: Bytes, first: int) -> bool:
    """Return True if the first name of the elements at `first` may be a name of extended JSON."""
    name = first + 1
    if data[np.uintp(first)] == 0 or data[np.uintp(name)] != _DOLLAR:
        return False
    # {"$ref": …, "$id": …} is a document
    is_ref = data[np.uintp(name + 1)] == 114 and data[np.uintp(name + 2)] == 101 and data[np.uintp(name + 3)] == 102
    return not (is_ref and data[np.uintp(name + 4)] == 0)


@kernel(leaf=True)
def _is_known(out: Bytes, begin: int, end: int, marks: _Marks, low: int, high: int) -> bool:
    """Return True if the shape out[begin:end] equals one of the marks `[low, high)`."""
    for number in range(low, high):
        other = marks.begins[np.uintp(number)]
        if marks.ends[np.uintp(number)] - other == end - begin:
            same = True
            for at in range(end - begin):
                if out[np.uintp(other + at)] != out[np.uintp(begin + at)]:
                    same = False
                    break
            if same:
                return True
    return False


@kernel(leaf=True)
def _scope_of(data: Bytes, place: int, size: int) -> int:
    """Return the beginning of the scope of code; LEFT if the value is not sound."""
    length = load(data, place + 4) if size >= 14 else -1
    scope = place + 8 + length
    if length <= 0 or scope + 5 > place + size or data[np.uintp(scope - 1)] != 0:
        return LEFT
    if scope + load(data, scope) != place + size or not _is_text(data, place + 8, scope - 1, False):
        return LEFT
    return scope


@kernel(leaf=True, inlined=True)
def _opened(data: Bytes, kind: int, position: int, size: int, reading: WalkRules, depth: int) -> tuple[int, int]:
    """Return the beginning of a document's or array's elements, and its kind; LEFT if it is left to plain Python."""
    inner, sort = position, _NAMED
    if kind == _SCOPED:
        inner = _scope_of(data, position, size)
        if inner == LEFT:
            return LEFT, sort
    elif kind == _ARRAY:
        sort = _ALL if reading.spread else _SET
    if depth >= MOST_LEVELS or data[np.uintp(position + size - 1)] != 0:
        return LEFT, sort
    outermost = depth == 0 and reading.bare
    if sort == _NAMED and reading.checked and not outermost and _has_wrapper(data, inner + 4):
        return LEFT, sort
    return inner + 4, sort


@kernel(leaf=True, inlined=True)
def _finished(
    position: int, opened: bool, depth: int, top: int, levels: _Levels, marks: _Marks, out: Bytes, at: int
) -> tuple[int, int, int, int]:
    """Close all levels that end at a position, and drop shapes that their arrays already have.

    Return the next position, the depth, the number of marks, and the end of the shape. `opened` is True if a level has
    just been opened.
    """
    while True:
        if not opened and depth > 0 and levels.sorts[depth - 1] == _SET:
            element, low = levels.elements[depth - 1], levels.marks[depth - 1]
            if _is_known(out, element, at, marks, low, top):
                at = element
            elif top < _MOST_MARKS:
                marks.begins[top], marks.ends[top] = element, at
                top += 1
        if depth == 0 or position != levels.ends[depth - 1]:
            return position, depth, top, at
        depth -= 1
        out[np.uintp(at)] = 0
        at += 1
        position += 1
        top = levels.marks[depth]
        opened = False


@kernel(leaf=True, inlined=True)
def _put_name(data: Bytes, name: int, end: int, out: Bytes, at: int) -> int:
    """Write a name and a zero byte; LEFT if it is not UTF-8."""
    if not _is_text(data, name, end, False):
        return LEFT
    for byte in range(name, end):
        out[np.uintp(at)] = data[np.uintp(byte)]
        at += 1
    out[np.uintp(at)] = 0
    return at + 1


@kernel(leaf=True, inlined=True)
def _is_whole(data: Bytes, kind: int, name: int, end: int, depth: int, reading: WalkRules) -> bool:
    """Return True if the element is the document that counts as a leaf."""
    if depth != 1 or kind != _DOCUMENT or len(reading.whole) == 0 or end - name != len(reading.whole):
        return False
    position = 0
    while position < len(reading.whole) and data[np.uintp(name + position)] == reading.whole[np.uintp(position)]:
        position += 1
    return bool(position == len(reading.whole))


@kernel(leaf=True)
def _walk(
    data: Bytes, kind: int, position: int, reading: WalkRules, levels: _Levels, marks: _Marks, out: Bytes, at: int,
    leaves: Int64s, leaf: int,
) -> tuple[int, int]:  # fmt: skip
    """Write the shape of a value. Return its end, or LEFT, and the number of leaves so far."""
    limit, depth, top, begin, whole = len(data), 0, 0, at, False
    # no value at this depth or deeper counts as a leaf
    silent = MOST_LEVELS + 1
    at += 1
    while True:
        size = value_size(data, kind, position, limit)
        if size < 0 or (kind == _POINTER and reading.checked):
            return LEFT, leaf
        opened = kind in (_DOCUMENT, _ARRAY, _SCOPED) and not whole
        if opened:
            inner, sort = _opened(data, kind, position, size, reading, depth)
            if inner == LEFT:
                return LEFT, leaf
            out[np.uintp(begin)] = kind
            counts = kind == _SCOPED or sort == _SET
            levels.ends[depth], levels.sorts[depth], levels.marks[depth] = position + size - 1, sort, top
        else:
            if not _is_sound(data, kind, position, size, reading.drops, reading.checked):
                return LEFT, leaf
            inner, sort, counts = position + size, _NAMED, True
            shown = _INT32 if kind == _INT64 and reading.narrow and _is_small(data, position) else kind
            out[np.uintp(begin)] = WHOLE if whole else shown
        if counts and depth < silent:
            leaves[np.uintp(leaf)] = position
            leaf += 1
        if sort == _SET:
            silent = min(silent, depth + 1)
        depth += 1 if opened else 0
        position, depth, top, at = _finished(inner, opened, depth, top, levels, marks, out, at)
        silent = silent if depth >= silent else MOST_LEVELS + 1
        if depth == 0:
            return at, leaf
        # the next element
        limit = levels.ends[depth - 1]
        kind = data[np.uintp(position)]
        name = position + 1
        position = name
        while position < limit and data[np.uintp(position)] != 0:
            position += 1
        whole = _is_whole(data, kind, name, position, depth, reading)
        begin = at
        levels.elements[depth - 1] = at
        at = _put_name(data, name, position, out, at + 1) if levels.sorts[depth - 1] == _NAMED else at + 1
        position += 1
        if at == LEFT or position > limit:
            return LEFT, leaf


@kernel
def tell(
    data: Bytes, places: Int64s, kinds: Bytes, reading: WalkRules, out: Bytes, offsets: npt.NDArray[np.int32],
    leaves: Int64s, starts: Int64s, left: Bytes,
) -> int:  # fmt: skip
    """Write the shapes of values and return the number of leaves.

    The shape of row r ends at offsets[r + 1], and its first leaf is leaves[starts[r]]. Rows of kind ABSENT have no
    shape. `left` becomes 1 for rows that are left to plain Python. `out` and `leaves` must have room for all rows.
    """
    levels = _Levels(
        np.empty(MOST_LEVELS + 1, np.int64), np.empty(MOST_LEVELS + 1, np.int64),
        np.empty(MOST_LEVELS + 1, np.int64), np.empty(MOST_LEVELS + 1, np.int64),
    )  # fmt: skip
    marks = _Marks(np.empty(_MOST_MARKS, np.int64), np.empty(_MOST_MARKS, np.int64))
    at, leaf = 0, 0
    for row in range(len(places)):
        starts[row] = leaf
        if kinds[row] != fields.ABSENT:
            found, after = _walk(data, kinds[row], places[row], reading, levels, marks, out, at, leaves, leaf)
            if found == LEFT:
                left[row] = 1
            else:
                at, leaf = found, after
        offsets[row + 1] = at
    return leaf


@kernel
def element_places(
    data: Bytes, places: Int64s, offsets: npt.NDArray[np.int32], found: Int64s, kinds: Bytes, narrow: bool
) -> int:
    """Write the places and types of the elements of the arrays at `places`, and return their number.

    The elements of row r end at offsets[r + 1]. With an empty `found` the elements are only counted. The arrays must be
    sound. `narrow` is as in WalkRules.
    """
    count = 0
    for row in range(len(places)):
        if places[row] >= 0:
            end = places[row] + load(data, places[row]) - 1
            at = places[row] + 4
            while at < end:
                kind = data[at]
                at += 1
                while data[at] != 0:
                    at += 1
                at += 1
                if len(found) > 0:
                    found[count] = at
                    kinds[count] = _INT32 if kind == _INT64 and narrow and _is_small(data, at) else kind
                count += 1
                at += value_size(data, kind, at, end)
        offsets[row + 1] = count
    return count
