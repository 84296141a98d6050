"""Lists: arrays and vectors of numbers. Their family converts the elements as a column of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import DOUBLE, FLOAT, LogicalType, array, semantic
from tailrace.kernels.buffers import Bytes, Offsets, binary_array, readonly
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import typed_of
from tailrace.values.conversion import Conversion, Family, Typed, fragment_of
from tailrace.values.floats import floating, shortest
from tailrace.values.list_kernels import join, most_elements, split
from tailrace.values.texts import LOST, VALUE, Shown, Texts, literals_of, output

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
class Listed:
    """The elements of all texts of a column: row i has the `items` from `first[i]` to `first[i + 1]`, exclusive.

    `outcome` is the outcome of each text, as in `values.texts`; a row without a value has no elements.
    """

    items: pa.Array
    first: Offsets
    outcome: Bytes


def listed(elements: Elements, texts: Texts) -> Listed:
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
    return Listed(column, readonly(first), readonly(outcome))


def items_fragment(conversion: Conversion, items: pa.Array, shown: Shown) -> Fragment:
    """Return the JSON of elements, empty for those that could not be converted."""
    if not len(items):
        return Fragment(readonly(np.zeros(1, np.uint8)), readonly(np.zeros(2, np.int32)))
    return fragment_of(conversion, Texts.of(items), Shown(shown.column, b"null", b"null", b""))[0]


@dataclass(frozen=True, slots=True)
class Lists(Family):
    """Texts that list the elements of an array or a vector."""

    elements: Elements

    def way(self) -> Hashable:
        return Lists, self.elements.way()

    def json(self, texts: Texts, shown: Shown) -> tuple[Fragment, int]:
        found = listed(self.elements, texts)
        inner = items_fragment(self.elements.conversion, found.items, shown)
        literals, ends = literals_of(shown)
        size = int(inner.offsets[-1]) - int(inner.offsets[0])
        room = size + 3 * len(found.items) + len(texts) * (2 + len(literals)) + 1
        out, offsets = output(room, len(texts), shown)
        lost = join(inner.data, inner.offsets, inner.quoted, found.first, found.outcome, literals, ends, out, offsets)
        return Fragment(readonly(out), readonly(offsets)), int(lost)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> Typed:
        found = listed(self.elements, texts)
        inner = typed_of(self.elements.conversion, Texts.of(found.items))
        outcome, values = found.outcome.copy(), inner.values
        if inner.outcome.any():
            values = values.take(pa.array(np.arange(len(values)), mask=inner.outcome != VALUE))
            rows = np.repeat(np.arange(len(texts)), np.diff(found.first))
            outcome[rows[inner.outcome == LOST]] = LOST
        buffers = [None, pa.py_buffer(found.first)]
        return Typed(pa.Array.from_buffers(of, len(texts), buffers, children=[values]), readonly(outcome))
