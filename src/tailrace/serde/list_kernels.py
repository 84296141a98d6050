"""Compiled conversions of texts that list elements: split into a column of elements, and their JSON joined again.

`outcome` says of each row what becomes of it: 0 a value with elements, k one that is shown as literal k - 1, as
`state` in `serde.kernels`; 3 is a text that could not be converted. The elements of row i are those of the numbers
`first[i]` to `first[i + 1]`, exclusive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.compiled import kernel
from tailrace.serde.kernels import put_base64, put_literal
from tailrace.serde.memory import move
from tailrace.serde.number_kernels import put_bytes

_QUOTE, _BACKSLASH, _COMMA, _COLON, _BRACKET, _EQUALS, _BRACE = 34, 92, 44, 58, 91, 61, 123
_LOST = 3
_X = np.frombuffer(b'{"x":', np.uint8).copy()
_Y = np.frombuffer(b',"y":', np.uint8).copy()
_WKB = np.frombuffer(b',"wkb":"', np.uint8).copy()
_SRID = np.frombuffer(b'","srid":null}', np.uint8).copy()


@kernel
def most_elements(data: Any, begin: Any, end: Any, delimiter: Any) -> Any:
    """How many delimiters there are in the bytes: elements are at most as many, and one more for each row."""
    count = 0
    for position in range(begin, end):
        count += data[position] == delimiter
    return count


@kernel(leaf=True)
def is_null(data: Any, begin: Any, end: Any) -> Any:
    """Whether the bytes are the word NULL, in any case."""
    if end - begin != 4:
        return False
    return (
        data[begin] | 32 == 110
        and data[begin + 1] | 32 == 117
        and data[begin + 2] | 32 == 108
        and data[end - 1] | 32 == 108
    )


@kernel(leaf=True)
def put_part(data: Any, begin: Any, end: Any, out: Any, at: Any) -> Any:
    """Write `data[begin:end]` at `at`; the position behind it."""
    move(out.ctypes.data + at, data.ctypes.data + begin, end - begin)
    return at + end - begin


@kernel
def split(
    data: Any,
    bounds: Any,
    state: Any,
    form: Any,
    items: Any,
    offsets: Any,
    present: Any,
    first: Any,
    outcome: Any,
) -> None:
    """Write the elements' texts one after another to `items`, their bounds to `offsets`, whether they are not null to
    `present`; `form` is the opening and the closing bracket, the delimiter, and whether elements may be null.

    Quotes and the backslashes in them are taken off. A row that is no such list leaves no elements.
    """
    opening, closing, delimiter, nulls = form[0], form[1], form[2], form[3] != 0
    array = opening == _BRACE
    count, at = 0, 0
    for row in range(len(bounds) - 1):
        outcome[row] = state[row] if len(state) > 0 else 0
        if outcome[row] == 0:
            position, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
            if array and position < end and data[position] == _BRACKET:
                while position < end and data[position] != _EQUALS:
                    position += 1
                position += 1
            good = end - position >= 2 and data[position] == opening and data[end - 1] == closing
            position, last = position + 1, end - 1
            before, before_at = count, at
            # At the head of the loop an element begins at `position`.
            more = good and position < last
            while more:
                begin, filled = position, True
                if array and data[position] == _QUOTE:
                    position += 1
                    while position < last and data[position] != _QUOTE:
                        if data[position] == _BACKSLASH:
                            position += 1
                        items[at] = data[position]
                        at += 1
                        position += 1
                    good = position < last
                    position += 1
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
                outcome[row] = _LOST
                count, at = before, before_at
        first[row + 1] = count


@kernel
def join(
    data: Any,
    bounds: Any,
    quoted: Any,
    first: Any,
    outcome: Any,
    literals: Any,
    ends: Any,
    out: Any,
    offsets: Any,
) -> Any:
    """JSON arrays of the elements' JSON `data[bounds[i]:bounds[i + 1]]`, to be put in quotes where `quoted`.

    An element without any JSON is one that could not be converted, and its row with it.
    """
    at, lost = 0, 0
    for row in range(len(first) - 1):
        good = outcome[row] == 0
        if good:
            begin = at
            out[at] = _BRACKET
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
            out[at] = 93
            at += 1
            if not good:
                at = begin
        literal = np.int64(outcome[row]) if outcome[row] != 0 else _LOST
        if not good:
            at = put_literal(literals, ends, literal - 1, out, at)
            lost += literal == _LOST
        offsets[row + 1] = at
    return lost


@kernel
def points(
    data: Any,
    bounds: Any,
    doubles: Any,
    first: Any,
    outcome: Any,
    literals: Any,
    ends: Any,
    out: Any,
    offsets: Any,
) -> Any:
    """Points of the two elements of each row: their JSON, and their eight little-endian bytes each, as `doubles`."""
    known = np.zeros(21, np.uint8)
    known[0] = 1
    known[1] = 1
    at, lost = 0, 0
    for row in range(len(first) - 1):
        item = first[row]
        good = outcome[row] == 0 and first[row + 1] - item == 2
        if good:
            good = bounds[item + 1] > bounds[item] and bounds[item + 2] > bounds[item + 1]
        if good:
            at = put_bytes(_X, out, at)
            at = put_part(data, bounds[item], bounds[item + 1], out, at)
            at = put_bytes(_Y, out, at)
            at = put_part(data, bounds[item + 1], bounds[item + 2], out, at)
            at = put_bytes(_WKB, out, at)
            for position in range(16):
                known[5 + position] = doubles[8 * item + position]
            at = put_base64(known, 21, 0, out, at)
            at = put_bytes(_SRID, out, at)
        else:
            literal = np.int64(outcome[row]) if outcome[row] != 0 else _LOST
            at = put_literal(literals, ends, literal - 1, out, at)
            lost += literal == _LOST
        offsets[row + 1] = at
    return lost
