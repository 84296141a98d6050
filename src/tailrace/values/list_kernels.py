"""Kernels for texts that list elements: they split a column into its elements, and join the elements' JSON.

`outcome` is the outcome of each row, as in `values.texts`; `first` gives the elements of each row, as in
`values.lists.Listed`.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.buffers import Bytes, Offsets, move
from tailrace.kernels.compiled import kernel
from tailrace.values.texts import LOST, VALUE, Ends, Flags, Int, put_literal

_QUOTE, _BACKSLASH, _COMMA, _OPENING, _CLOSING, _EQUALS, _BRACE = 34, 92, 44, 91, 93, 61, 123


@kernel
def most_elements(data: Bytes, begin: int, end: int, delimiter: int) -> int:
    """Return the number of delimiters in the bytes: elements are at most as many, plus one per row."""
    count = 0
    for position in range(begin, end):
        count += data[position] == delimiter
    return count


@kernel(leaf=True, inlined=True)
def is_null(data: Bytes, begin: Int, end: Int) -> bool:
    """Return True if the bytes are the word NULL, in any case."""
    if end - begin != 4:
        return False
    if data[begin] | 32 != 110 or data[begin + 1] | 32 != 117:
        return False
    return bool(data[begin + 2] | 32 == 108 and data[end - 1] | 32 == 108)


@kernel(leaf=True, inlined=True)
def put_part(data: Bytes, begin: Int, end: Int, out: Bytes, at: Int) -> Int:
    """Write `data[begin:end]` at `at`; return the end."""
    move(out.ctypes.data + at, data.ctypes.data + begin, end - begin)
    return at + end - begin


@kernel(leaf=True, inlined=True)
def behind_bounds(data: Bytes, position: Int, end: Int) -> Int:
    """Return where an array's brace should be: after the bounds that may precede it."""
    if position < end and data[position] == _OPENING:
        while position < end and data[position] != _EQUALS:
            position += 1
        position += 1
    return position


@kernel(leaf=True, inlined=True)
def read_quoted(data: Bytes, position: Int, last: Int, items: Bytes, at: Int) -> tuple[Int, Int]:
    """Write an element whose quote is at `position`, without its backslashes.

    Returns the position after its last quote, beyond `last` if there is none, and the place of the next element.
    """
    position += 1
    while position < last and data[position] != _QUOTE:
        if data[position] == _BACKSLASH:
            position += 1
        items[at] = data[position]
        at += 1
        position += 1
    return position + 1, at


@kernel
def split(
    data: Bytes,
    bounds: Offsets,
    state: Bytes,
    form: Ends,
    items: Bytes,
    offsets: Offsets,
    present: Flags,
    first: Offsets,
    outcome: Bytes,
) -> None:
    """Split lists: elements' texts go to `items`, their bounds to `offsets`, and to `present` whether they are not
    null.

    `form` has the opening and the closing bracket, the delimiter, and whether elements may be null. Quotes and the
    backslashes in them are removed. A row that is not such a list has no elements.
    """
    opening, closing, delimiter, nulls = form[0], form[1], form[2], form[3] != 0
    array = opening == _BRACE
    count = 0
    at: Int = 0
    position: Int
    for row in range(len(bounds) - 1):
        outcome[row] = state[row] if len(state) > 0 else VALUE
        if outcome[row] == VALUE:
            position, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
            if array:
                position = behind_bounds(data, position, end)
            good = end - position >= 2 and data[position] == opening and data[end - 1] == closing
            position, last = position + 1, end - 1
            before, before_at = count, at
            # At the head of the loop an element begins at `position`.
            more = good and position < last
            while more:
                begin, filled = position, True
                if array and data[position] == _QUOTE:
                    position, at = read_quoted(data, position, last, items, at)
                    good = position <= last
                else:
                    good = not (array and data[position] == _BRACE)
                    while position < last and data[position] != delimiter:
                        position += 1
                    good = good and position > begin
                    filled = not (array and is_null(data, begin, position))
                    good = good and (filled or nulls)
                    if filled:
                        for source in range(begin, position):
                            items[at] = data[source]
                            at += 1
                present[count] = filled
                count += 1
                offsets[count] = at
                more = good and position < last
                if more:
                    good = data[position] == delimiter and position + 1 < last
                    position += 1
                    more = good
            if not good:
                outcome[row] = LOST
                count, at = before, before_at
        first[row + 1] = count


@kernel
def join(
    data: Bytes,
    bounds: Offsets,
    quoted: bool,
    first: Offsets,
    outcome: Bytes,
    literals: Bytes,
    ends: Ends,
    out: Bytes,
    offsets: Offsets,
) -> int:
    """Write JSON arrays of the elements' JSON `data[bounds[i]:bounds[i + 1]]`, which needs quotes if `quoted`.

    An element without JSON could not be converted, so neither can its row.
    """
    at: Int = 0
    lost = 0
    for row in range(len(first) - 1):
        good = outcome[row] == VALUE
        if good:
            begin = at
            out[at] = _OPENING
            at += 1
            for item in range(first[row], first[row + 1]):
                if item > first[row]:
                    out[at] = _COMMA
                    at += 1
                good = good and (quoted or bounds[item + 1] > bounds[item])
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                at = put_part(data, bounds[item], bounds[item + 1], out, at)
                if quoted:
                    out[at] = _QUOTE
                    at += 1
            out[at] = _CLOSING
            at += 1
            if not good:
                at = begin
        if not good:
            kind = LOST if outcome[row] == VALUE else np.int64(outcome[row])
            at = put_literal(literals, ends, kind - 1, out, at)
            lost += kind == LOST
        offsets[row + 1] = at
    return lost
