"""Lists: arrays, and vectors of numbers. Their elements are converted as a column of their own, by their own family."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import DOUBLE, FLOAT, LogicalType, array, semantic
from tailrace.kernels.buffers import Bytes, Offsets, binary_array, move, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import typed_of
from tailrace.values.conversion import Conversion, Family, TypedColumn, fragment_of
from tailrace.values.floats import floating, shortest
from tailrace.values.texts import LOST, VALUE, Ends, Flags, Int, ShownValues, Texts, literals_of, output, put_literal

# --- kernels ----------------------------------------------------------------------------------------------------------

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


# --- the family -------------------------------------------------------------------------------------------------------


DOUBLE_VECTOR = semantic(array(DOUBLE), "io.debezium.data.DoubleVector")
FLOAT_VECTOR = semantic(array(FLOAT), "io.debezium.data.FloatVector")


@dataclass(frozen=True, slots=True)
class Elements:
    """The form of a list in a text, and the conversion of its elements.

    The list is between the brackets `opening` and `closing`, its elements are separated by `delimiter`. A list in
    braces is an array as the server writes it: bounds may precede it, elements may be quoted, NULL is a null. Arrays
    with a null (unless `nulls`), with several dimensions, or with an unconvertible element cannot be converted.
    """

    conversion: Conversion
    opening: str = "{"
    closing: str = "}"
    delimiter: str = ","
    nulls: bool = False

    def way(self) -> Hashable:
        """Return a key that is equal for lists of the same form whose elements convert alike."""
        return self.conversion.way(), self.opening, self.closing, self.delimiter, self.nulls


def list_of(
    schema: LogicalType, of: Conversion, delimiter: str, nulls: bool, unavailable: list[Any] | None = None
) -> Conversion:
    """Return the conversion of arrays, in braces, with elements by `of`; `nulls`: elements may be null."""
    elements = Elements(of, delimiter=delimiter, nulls=nulls)
    plain = array_of(of.plain, nulls, delimiter)
    return Conversion(schema, plain, Lists(elements), zero=[], unavailable=unavailable)


def vector(single: bool) -> Conversion:
    """Return the conversion of vectors of doubles, or, with `single`, of floats."""
    elements = Elements(floating(single), "[", "]")
    return Conversion(FLOAT_VECTOR if single else DOUBLE_VECTOR, vector_of(single), Lists(elements), zero=[])


# --- plain conversions ----------------------------------------------------------------------------------------------


def vector_of(single: bool) -> Callable[[str], list[Any]]:
    element = shortest(single)

    def convert(text: str) -> list[Any]:
        if not text.startswith("[") or not text.endswith("]"):
            raise ValueError("not a vector")
        inner = text[1:-1]
        return [element(part) for part in inner.split(",")] if inner else []

    return convert


def array_items(text: str, delimiter: str) -> list[str | None]:
    """Return the elements of a one-dimensional array. Raises ValueError for more, which no array schema has."""
    if text.startswith("["):
        text = text.partition("=")[2]
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("not an array")
    if text == "{}":
        return []
    items: list[str | None] = []
    position, last = 1, len(text) - 1
    while True:
        if text[position] == "{":
            raise ValueError("an array of several dimensions")
        if text[position] == '"':
            item, position = _quoted_item(text, position + 1)
            items.append(item)
        else:
            end = text.find(delimiter, position)
            end = last if end < 0 else end
            raw = text[position:end]
            if not raw:
                raise ValueError("an element without a text")
            items.append(None if raw.upper() == "NULL" else raw)
            position = end
        if position == last:
            return items
        if text[position] != delimiter or position + 1 == last:
            raise ValueError("not an array")
        position += 1


def _quoted_item(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while text[position] != '"':
        if text[position] == "\\":
            position += 1
        parts.append(text[position])
        position += 1
    return "".join(parts), position + 1


def array_of(element: Callable[[str], Any], nulls: bool, delimiter: str = ",") -> Callable[[str], list[Any]]:
    """Return a function that converts arrays with `element`; it raises ValueError for a NULL unless `nulls`."""

    def convert(text: str) -> list[Any]:
        items = array_items(text, delimiter)
        if not nulls and None in items:
            raise ValueError("a NULL among elements that may not be null")
        return [None if item is None else element(item) for item in items]

    return convert


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListElements:
    """The elements of all texts of a column: row i has the `items` from `first[i]` to `first[i + 1]`, exclusive.

    `outcome` is the outcome of each text, as in `values.texts`; a row without a value has no elements.
    """

    items: pa.Array
    first: Offsets
    outcome: Bytes


def listed(elements: Elements, texts: Texts) -> ListElements:
    """Return the texts' elements as a column."""
    rows, begin, end = len(texts), int(texts.bounds[0]), int(texts.bounds[-1])
    most = int(most_elements(texts.data, begin, end, ord(elements.delimiter))) + rows
    form = np.array([ord(elements.opening), ord(elements.closing), ord(elements.delimiter), elements.nulls], np.int64)
    items, offsets = np.empty(end - begin + 1, np.uint8), np.zeros(most + 1, np.int32)
    present = np.empty(most, np.bool_)
    first, outcome = np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    split(texts.data, texts.bounds, texts.state, readonly(form), items, offsets, present, first, outcome)
    count = int(first[-1])
    kept = present[:count]
    column = binary_array(items, offsets[: count + 1], None if kept.all() else kept)
    return ListElements(column, readonly(first), readonly(outcome))


def items_fragment(conversion: Conversion, items: pa.Array, shown: ShownValues) -> Fragment:
    """Return the JSON of elements, empty for those that could not be converted."""
    if not len(items):
        return Fragment(readonly(np.zeros(1, np.uint8)), readonly(np.zeros(2, np.int32)))
    return fragment_of(conversion, Texts.of(items), ShownValues(shown.column, b"null", b"null", b""))[0]


@dataclass(frozen=True, slots=True)
class Lists(Family):
    """Texts that list the elements of an array or a vector."""

    elements: Elements

    def way(self) -> Hashable:
        return Lists, self.elements.way()

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        found = listed(self.elements, texts)
        inner = items_fragment(self.elements.conversion, found.items, shown)
        literals, ends = literals_of(shown)
        size = int(inner.offsets[-1]) - int(inner.offsets[0])
        room = size + 3 * len(found.items) + len(texts) * (2 + len(literals)) + 1
        out, offsets = output(room, len(texts), shown)
        lost = join(inner.data, inner.offsets, inner.quoted, found.first, found.outcome, literals, ends, out, offsets)
        return Fragment(readonly(out), readonly(offsets)), int(lost)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        found = listed(self.elements, texts)
        inner = typed_of(self.elements.conversion, Texts.of(found.items))
        outcome, values = found.outcome.copy(), inner.values
        if inner.outcome.any():
            values = values.take(pa.array(np.arange(len(values)), mask=inner.outcome != VALUE))
            rows = np.repeat(np.arange(len(texts)), np.diff(found.first))
            outcome[rows[inner.outcome == LOST]] = LOST
        buffers = [None, pa.py_buffer(found.first)]
        return TypedColumn(pa.Array.from_buffers(of, len(texts), buffers, children=[values]), readonly(outcome))
