"""The compiled walk that tells the shapes of BSON values: which fields and types a document has. Worker.

A shape is bytes: the type of the value, and of a document all of its elements, each as its type, its name, a zero byte,
and what is in it, up to another zero byte. An array has the shapes of its elements, each different one once, or, where
arrays are shown as documents, all of them, without names.

What stands at a leaf (a value that is no document, or an array as a whole) is found by its number: leaves are counted
as they come, without those within arrays that have different shapes alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.compiled import kernel
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s, load, value_size
from tailrace.connectors.mongodb.values.json_forms import MOST_LEVELS
from tailrace.connectors.mongodb.values.value_kernels import LEFT, character_of

_STRING, _DOCUMENT, _ARRAY, _BINARY = fields.STRING, fields.DOCUMENT, fields.ARRAY, fields.BINARY
_BOOLEAN, _REGEX, _POINTER = fields.BOOLEAN, fields.REGEX, fields.DB_POINTER
_CODE, _SYMBOL, _SCOPED, _INT32, _INT64 = (
    fields.CODE, fields.SYMBOL, fields.SCOPED_CODE, fields.INT32, fields.INT64,
)  # fmt: skip
_DOLLAR = 36
_MOST_MARKS = 4096
_NAMED, _SET, _ALL = 0, 1, 2
WHOLE = 254
"""In the place of a type: a document that nobody looks into."""


class Reading(NamedTuple):
    """How shapes are told.

    `narrow`: an int64 that an int32 can hold is one, as texts without wrappers read. `spread`: arrays are shown as
    documents. `checked`: leave documents that begin with a name of extended JSON, and pointers, to the plain way;
    `bare`: but for the outermost. `drops`: leave texts with control characters too, as old keys have none. A document
    in the field `whole` at the top is a leaf of the type WHOLE, whatever is in it.
    """

    narrow: bool
    spread: bool
    checked: bool
    bare: bool
    drops: bool
    whole: Bytes


class _Levels(NamedTuple):
    """The documents and arrays that are open: where each ends, what it is, where its element and its marks begin."""

    ends: Int64s
    sorts: Int64s
    elements: Int64s
    marks: Int64s


class _Marks(NamedTuple):
    """The different shapes of the elements of open arrays: where each begins and ends."""

    begins: Int64s
    ends: Int64s


@kernel(leaf=True)
def _is_text(data: Bytes, begin: int, end: int, drops: bool) -> bool:
    """Whether data[begin:end] is UTF-8, and, with `drops`, has no control characters."""
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
    """Whether the options of a regular expression are ASCII; others are put in order the plain way."""
    position = place
    while data[np.uintp(position)] != 0:
        position += 1
    while position < place + size and data[np.uintp(position)] < 128:
        position += 1
    return bool(position == place + size)


@kernel(leaf=True)
def _is_sound(data: Bytes, kind: int, place: int, size: int, drops: bool, checked: bool) -> bool:
    """Whether a value that is neither document nor array is one that the columns can show as it is."""
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
    """Whether the int64 at `place` is one that an int32 can hold."""
    high, low = load(data, place + 4), load(data, place)
    return bool((high == 0 and low >= 0) or (high == -1 and low < 0))


@kernel(leaf=True)
def _has_wrapper(data: Bytes, first: int) -> bool:
    """Whether the first name of the elements at `first` may be one of extended JSON's."""
    name = first + 1
    if data[np.uintp(first)] == 0 or data[np.uintp(name)] != _DOLLAR:
        return False
    # {"$ref": …, "$id": …} is a document
    is_ref = data[np.uintp(name + 1)] == 114 and data[np.uintp(name + 2)] == 101 and data[np.uintp(name + 3)] == 102
    return not (is_ref and data[np.uintp(name + 4)] == 0)


@kernel(leaf=True)
def _is_known(out: Bytes, begin: int, end: int, marks: _Marks, low: int, high: int) -> bool:
    """Whether the shape out[begin:end] is one of those that are marked."""
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
    """Where the scope of code begins; LEFT where it is not sound."""
    length = load(data, place + 4) if size >= 14 else -1
    scope = place + 8 + length
    if length <= 0 or scope + 5 > place + size or data[np.uintp(scope - 1)] != 0:
        return LEFT
    if scope + load(data, scope) != place + size or not _is_text(data, place + 8, scope - 1, False):
        return LEFT
    return scope


@kernel(leaf=True, inlined=True)
def _opened(data: Bytes, kind: int, position: int, size: int, reading: Reading, depth: int) -> tuple[int, int]:
    """Where the elements of a document or an array begin, and what it is; LEFT where it is to be read the plain way."""
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
    """Close what ends at a position, and leave out shapes that an array has already: where the log goes on, how deep,
    how many marks there are, and where the shape goes on. `opened` tells that nothing has ended yet."""
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
    """A name and a zero byte; LEFT where it is not UTF-8."""
    if not _is_text(data, name, end, False):
        return LEFT
    for byte in range(name, end):
        out[np.uintp(at)] = data[np.uintp(byte)]
        at += 1
    out[np.uintp(at)] = 0
    return at + 1


@kernel(leaf=True, inlined=True)
def _is_whole(data: Bytes, kind: int, name: int, end: int, depth: int, reading: Reading) -> bool:
    """Whether the element is the document that is a leaf."""
    if depth != 1 or kind != _DOCUMENT or len(reading.whole) == 0 or end - name != len(reading.whole):
        return False
    position = 0
    while position < len(reading.whole) and data[np.uintp(name + position)] == reading.whole[np.uintp(position)]:
        position += 1
    return bool(position == len(reading.whole))


@kernel(leaf=True)
def _walk(
    data: Bytes, kind: int, position: int, reading: Reading, levels: _Levels, marks: _Marks, out: Bytes, at: int,
    leaves: Int64s, leaf: int,
) -> tuple[int, int]:  # fmt: skip
    """Write the shape of a value; where it ends, or LEFT, and how many leaves there are up to then."""
    limit, depth, top, begin, whole = len(data), 0, 0, at, False
    # within so many levels nothing counts as a leaf
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
    data: Bytes, places: Int64s, kinds: Bytes, reading: Reading, out: Bytes, offsets: npt.NDArray[np.int32],
    leaves: Int64s, starts: Int64s, left: Bytes,
) -> int:  # fmt: skip
    """Write the shapes of values: that of row r ends at offsets[r + 1], and its first leaf is leaves[starts[r]].

    Rows of kind ABSENT have none; `left` becomes 1 for rows that have to be read the plain way. `out` and `leaves` have
    room for all. The count of leaves.
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
    """Where the elements of the arrays at `places` are, and of which types; those of row r end at offsets[r + 1].

    Where `found` is empty they are only counted. The arrays have to be sound. With `narrow` as in Reading.
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
