"""Shared parts of binary encodings: their leaves, and blocks that ask an encoding only for pieces of values. Worker."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.formats.arrow import computed, image_values, read_json
from tailrace.formats.assembly import AssembledBlock, Pieces, ValueHole
from tailrace.formats.json.values import spread
from tailrace.kernels.buffers import Bytes, binary_array, readonly, text_buffers
from tailrace.kernels.programs import Fragment, Programs
from tailrace.records.columns import Columns, SharedValue, WrittenJson
from tailrace.records.layout import CHANGE, RECORD, BlockColumn, ComputedColumn, ImageColumn, Text
from tailrace.values.arrow import arrow_type_of
from tailrace.values.fragments import column_fragment, integers_fragment, json_array

# --- leaves -----------------------------------------------------------------------------------------------------------

WHOLE = ("int8", "int16", "int32", "int64")
_MOST_KNOWN = 100_000


def _six_bits() -> Bytes:
    table = np.zeros(256, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[list(letters)] = np.arange(64)
    return readonly(table)


SIX_BITS = _six_bits()
"""The six bits of each letter of base64."""


def takes_arrow(schema: LogicalType, of: pa.DataType) -> bool:
    """Return True if arrays of type `of` hold the schema's values as events show them and kernels can write them."""
    if schema.connect in WHOLE:
        return not pa.types.is_time(of)
    if schema.connect == "string":
        return bool(pa.types.is_string(of))
    if schema.connect == "bytes":
        return bool(pa.types.is_binary(of))
    return schema.connect in ("boolean", "float", "double")


def whole_numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of integers, dates, times, timestamps and durations; arbitrary numbers for nulls."""
    width = values.type.bit_width
    if not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if width == 32 else pa.int64())
    kind: Any = np.dtype(f"int{width}")
    found = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
    return found if width == 64 else found.astype(np.int64)


WIDTHS = {"boolean": 1, "float": 4, "double": 8}
"""Bytes per value in the result of `number_bytes`."""


def number_bytes(values: pa.Array, schema: LogicalType) -> Bytes:
    """Return the bytes of floating point numbers and booleans; NaN has Java's bytes."""
    if schema.connect == "boolean":
        return np.ascontiguousarray(values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))
    kind: Any = "<f4" if schema.connect == "float" else "<f8"
    found = values.cast(pa.float32() if schema.connect == "float" else pa.float64())
    numbers = np.array(found.fill_null(0).to_numpy(zero_copy_only=False), kind)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint8)


def is_plain(written: Fragment) -> bool:
    """Return True if nothing in the texts is escaped."""
    first, last = int(written.offsets[0]), int(written.offsets[-1])
    return not (written.data[first:last] == ord("\\")).any()


def one_by_one(written: Fragment, write: Callable[[Any], bytes]) -> Fragment:
    """Return the pieces of values that are JSON, encoded one at a time by `write`; equal values are written once."""
    quote = '"' if written.quoted else ""
    known: dict[str, bytes] = {}
    parts: list[bytes] = []
    for text in json_array(written).to_pylist():
        found = known.get(text)
        if found is None:
            found = write(json.loads(f"{quote}{text}{quote}"))
            if len(known) < _MOST_KNOWN:
                known[text] = found
        parts.append(found)
    return joined(parts)


def joined(parts: list[bytes]) -> Fragment:
    """Return pieces one after another as a fragment."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    data = np.frombuffer(b"".join(parts) or b"\0", np.uint8)
    return Fragment(data, readonly(offsets))


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByTopic:
    """The way of a hole at the head of records with a computed topic: `head` returns the bytes for a topic."""

    head: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class ValueWriters:
    """The functions with which an encoding writes the values of holes, by their ways.

    `array` writes an array of any type that holds values of the hole's schema; `json` a column that is JSON already;
    `one` returns the encoder of single values in their JSON form.
    """

    array: Callable[[pa.Array, Any], Fragment]
    json: Callable[[Fragment, Any], Fragment]
    one: Callable[[Any], Callable[[Any], bytes]]


class BinaryBlock(AssembledBlock):
    """A block whose holes are filled with pieces, one per value. See formats.base.Block."""

    def __init__(self, columns: Columns, writing: ValueWriters) -> None:
        super().__init__(columns)
        self._writing = writing

    @abstractmethod
    def kept_key(self, leaf: BlockColumn, way: Any) -> Hashable:
        """Return the key that caches, across blocks, the pieces of a column of transactions or markers."""

    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes | Pieces:
        leaf = hole.leaf
        if isinstance(hole.way, ByTopic):
            return self._heads(leaf, hole.way, records())
        if isinstance(leaf, ImageColumn):
            return self.image(leaf, hole.way)
        if isinstance(leaf, BlockColumn):
            return self._column(leaf, hole.way)
        if isinstance(leaf, Text):
            return self._writing.array(self._text(leaf), hole.way)
        places = records()
        return self._spread(self._writing.array(computed(leaf, self._columns, places), hole.way), places)

    def image(self, leaf: ImageColumn, way: Any) -> Fragment:
        """Return the pieces of a column of an image."""
        plan = leaf.column
        if takes_arrow(plan.schema, arrow_type_of(plan.schema)):
            return self._writing.array(image_values(leaf, self._columns), way)
        texts = self._columns.texts(leaf)
        column = texts.texts
        if plan.shape is not None and not plan.conversion.by_value:
            column = plan.shape.column(column)
        fragment, lost = column_fragment(plan, column, texts.unavailable)
        if lost:
            self._columns.lost(plan, lost)
        return self._writing.json(fragment, way)

    def _column(self, leaf: BlockColumn, way: Any) -> Fragment | bytes:
        values = self._columns.values(leaf)
        if isinstance(values, SharedValue):
            return self._writing.one(way)(values.value)
        if isinstance(values, WrittenJson):
            return self._writing.json(values.json, way)
        if leaf.by in (CHANGE, RECORD):
            return self._writing.array(values, way)
        kept, key = self._columns.kept, self.kept_key(leaf, way)
        if key not in kept:
            kept[key] = self._writing.array(values, way)
        found: Fragment = kept[key]
        return found

    def _text(self, leaf: Text) -> pa.Array:
        """Return a text of several parts per record, assembled like records."""
        programs = Programs()
        programs.begin()
        for part in leaf.parts:
            if isinstance(part, str):
                programs.literal(part.encode())
                continue
            found = self._inner(part)
            if isinstance(found, bytes):
                programs.literal(found)
            else:
                programs.fragment(found, part.by)
        programs.end()
        index = self._columns.index
        return binary_array(*programs.run(np.zeros(index.shape[1], np.uint16), index)).cast(pa.string())

    def _inner(self, part: BlockColumn) -> Fragment | bytes:
        """Return a column's values as parts of a text: numbers as digits, null as the word."""
        values = self._columns.values(part)
        if isinstance(values, SharedValue):
            return ("null" if values.value is None else str(values.value)).encode()
        if isinstance(values, WrittenJson):
            values = read_json(values.json, part.type)
        if pa.types.is_int64(values.type) and not values.null_count:
            return integers_fragment(values.to_numpy())
        return Fragment(*text_buffers(pc.fill_null(values.cast(pa.string()), "null")))

    def _heads(self, topic: ComputedColumn, way: ByTopic, places: npt.NDArray[np.int32]) -> Fragment:
        """Return the heads of records with a computed topic: the schema's id may differ between topics."""
        topics = pc.dictionary_encode(computed(topic, self._columns, places))
        known = [way.head(name) for name in topics.dictionary.to_pylist()]
        parts = pa.array(known, pa.binary()).take(topics.indices)
        return self._spread(Fragment(*text_buffers(parts)), places)

    def _spread(self, piece: Fragment, places: npt.NDArray[np.int32]) -> Fragment:
        """Return pieces of these records as a fragment by record, empty for other records."""
        parts = binary_array(piece.data, piece.offsets)
        assert len(parts) == len(places)
        return Fragment(*text_buffers(pc.fill_null(spread(parts, places, self._columns.index.shape[1]), b"")))
