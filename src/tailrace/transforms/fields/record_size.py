"""EnforceRecordSize: cuts long texts and binaries of events, so that records fit.

The size of a record is a rough estimate of its size as Java objects, in bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import ABSENT, BOOLEAN, STRING, LogicalType
from tailrace.records.layout import ComputedColumn, Constant, Leaf, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import as_optional, is_envelope, opened
from tailrace.records.transform import Rewritten, Shared, either
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.arrow import with_numbers
from tailrace.values.decimals import unscaled, unscaled_bytes, variable_part

Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

_STRUCT, _TEXT, _BYTES, _LIST, _MAP, _NUMBER, _REFERENCE = 56, 56, 24, 64, 88, 24, 8
# bytes per entry of the source's partition (1 entry) and offset (6 entries), and per header; and of the record itself
_ENTRY, _ENTRIES, _RECORD = 100, 7, 8
# length of an instant as text, in UTC and with µs
_INSTANT = 27
_WHOLE_OR_SHORT = frozenset({"boolean", "int8", "int16", "int32", "int64", "float", "double"})
"""Connect's types that count the same for every value, null too."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
# characters of two UTF-16 units
_LONG_CHARACTERS = r"[\x{10000}-\x{10FFFF}]"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of the sizes of a layout's records: a fixed part, and the types of leaves with varying sizes."""

    fixed: int
    kinds: tuple[LogicalType, ...]

    def sizes(self, leaves: tuple[pa.Array, ...], count: int) -> Int64s:
        """Return the sizes of `count` records with these values."""
        total = np.full(count, self.fixed, np.int64)
        for values, kind in zip(leaves, self.kinds, strict=True):
            total += _sizes(values, kind)
        return total


def _sizes(values: pa.Array, kind: LogicalType) -> Int64s:
    if kind.connect in _WHOLE_OR_SHORT:
        return np.full(len(values), _NUMBER, np.int64)
    if pa.types.is_nested(values.type):
        numbers = values.cast(with_numbers(values.type))
        return np.array([_size(value, kind) for value in numbers.to_pylist()], np.int64)
    if kind.connect == "struct":
        # a number with a scale of its own, which is a text in Arrow
        parts = zip(variable_part("scale", values).to_pylist(), variable_part("value", values).to_pylist(), strict=True)
        found = [0 if scale is None else _size({"scale": scale, "value": value}, kind) for scale, value in parts]
        return np.array(found, np.int64)
    if kind.name == _DECIMAL:
        return np.array([_decimal_size(value) for value in values.to_pylist()], np.int64)
    present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        own = _TEXT if kind.connect == "string" else _BYTES
        lengths: Int64s = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
        texts: Int64s = present * own + lengths
        return texts
    instants: Int64s = present * (_TEXT + _INSTANT)
    return instants


def _decimal_size(value: Decimal | str | None) -> int:
    if value is None:
        return 0
    number = Decimal(value)
    return _BYTES + len(unscaled_bytes(unscaled(number, -int(number.as_tuple().exponent))))


def _size(value: Any, kind: LogicalType) -> int:
    """Return the size of one value, given in JSON form or as by Arrow's to_pylist."""
    if kind.connect in _WHOLE_OR_SHORT:
        return _NUMBER
    if value is None:
        return 0
    if kind.connect == "struct":
        if not isinstance(value, dict):
            number = pa.array([str(value)])
            value = {name: variable_part(name, number)[0].as_py() for name in ("scale", "value")}
        return _STRUCT + sum(_REFERENCE + _size(value.get(field.name), field.type) for field in kind.fields)
    if kind.items is not None and kind.connect == "map":
        pairs = value.items() if isinstance(value, dict) else value
        keys = kind.keys or STRING
        return _MAP + sum(2 * _REFERENCE + _size(name, keys) + _size(item, kind.items) for name, item in pairs)
    if kind.items is not None:
        return _LIST + sum(_REFERENCE + _size(item, kind.items) for item in value)
    if kind.connect == "string":
        return _TEXT + len(str(value).encode())
    if isinstance(value, Decimal):
        return _decimal_size(value)
    return _BYTES + len(base64.b64decode(value) if isinstance(value, str) else value)


def _parts(node: Node | None) -> Iterator[int | Leaf]:
    """Yield the parts of a node's size: fixed sizes, and leaves whose size varies."""
    if node is None:
        return
    node = opened(node)
    if isinstance(node, Struct):
        yield _STRUCT + _REFERENCE * len(node.members)
        for member in node.members:
            yield from _parts(member.node)
    elif isinstance(node, Constant):
        yield _size(node.value, node.type)
    else:
        yield node


def _bare(leaf: Leaf) -> Leaf:
    """Return a leaf with its nulls: no default counts for a size."""
    if leaf.type.default in (ABSENT, None):
        return leaf
    found = as_optional(leaf)
    assert not isinstance(found, Struct)
    return found


def _is_cuttable(node: Node) -> bool:
    if isinstance(node, Struct | Constant) or node.type.connect not in ("string", "bytes"):
        return False
    # texts and bytes of these types are other values in Arrow, and short
    return not (node.type.name or "").startswith(("io.debezium.time.", "org.apache.kafka.connect.data."))


@dataclass(frozen=True, slots=True)
class _Excess:
    """The estimated size of records, times `ratio`, less the most that they may have."""

    estimate: Estimate
    most: int
    ratio: float

    def of(self, leaves: tuple[pa.Array, ...]) -> Doubles:
        """Return it for each record."""
        sizes = self.estimate.sizes(leaves[: len(self.estimate.kinds)], len(leaves[0]))
        found: Doubles = np.ceil(sizes.astype(np.float64) * self.ratio) - self.most
        return found


@dataclass(frozen=True, slots=True)
class _Exceeds:
    """Maps leaves to a mask of the records that are too large."""

    excess: _Excess

    def __call__(self, *leaves: pa.Array) -> pa.Array:
        return pa.array(self.excess.of(leaves) > 0)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Maps leaves to the leaf `field`, cut. The images' leaves, `images`, share the excess in proportion to their
    lengths: first the images, then the leaves of each. Each share is rounded up."""

    excess: _Excess
    least: int
    images: tuple[tuple[int, ...], ...]
    field: int

    def __call__(self, *leaves: pa.Array) -> pa.Array:
        lengths = {place: self._length(leaves[place]) for image in self.images for place in image}
        mine = next(image for image in self.images if self.field in image)
        own, of_image = lengths[self.field], sum(lengths[place] for place in mine)
        total = np.maximum(sum(lengths.values()), 1.0)
        share = np.ceil(of_image / total * self.excess.of(leaves))
        removed = np.ceil(own / np.maximum(of_image, 1.0) * share)
        kept = np.maximum(own - removed, 0.0).astype(np.int64).tolist()
        values, cut = leaves[self.field], (own > 0).tolist()
        shorter = _beginning if pa.types.is_string(values.type) else _first
        found = [shorter(value, kept[row]) if cut[row] else value for row, value in enumerate(values.to_pylist())]
        return pa.array(found, values.type)

    def _length(self, values: pa.Array) -> Doubles:
        """Return the lengths of values that are long enough to be cut, 0 for others: in UTF-16 units, or in bytes."""
        if pa.types.is_string(values.type):
            lengths = pc.add(pc.utf8_length(values), pc.count_substring_regex(values, _LONG_CHARACTERS))
        else:
            lengths = pc.binary_length(values)
        found = pc.fill_null(lengths, 0).to_numpy().astype(np.float64)
        return np.where(found > self.least, found, 0.0)


def _beginning(text: str, units: int) -> str:
    """Return the beginning of a text, up to this number of UTF-16 units, without the first half of a character."""
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")


def _first(data: bytes, size: int) -> bytes:
    return data[:size]


@dataclass(frozen=True, slots=True)
class EnforceRecordSize:
    """A records.transform.Transform. Values of at most `least` characters or bytes are not cut."""

    most: int
    ratio: float
    least: int

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if not is_envelope(record):
            return record
        value = record.value
        assert isinstance(value, Struct)
        topic = Constant(record.topic, STRING) if isinstance(record.topic, str) else record.topic
        parts = [part for node in (record.key, value, topic) for part in _parts(node)]
        sized = tuple(_bare(part) for part in parts if not isinstance(part, int))
        fixed = sum(part for part in parts if isinstance(part, int)) + _ENTRY * (_ENTRIES + len(record.headers))
        # of the topic, only the length counts
        fixed += _RECORD - _TEXT
        shown = {image: value.part(image) for image in ("before", "after")}
        rows = {image: row for image, row in shown.items() if isinstance(row, Struct)}
        long = [[member.node for member in row.members if _is_cuttable(member.node)] for row in rows.values()]
        leaves = (*sized, *(leaf for image in long for leaf in image))
        places = {id(leaf): place for place, leaf in enumerate(leaves) if place >= len(sized)}
        if not places:
            return record
        images = tuple(tuple(places[id(leaf)] for leaf in image) for image in long)
        excess = _Excess(Estimate(fixed, tuple(leaf.type for leaf in sized)), self.most, self.ratio)

        def cut(node: Node) -> Node:
            place = places.get(id(node))
            if isinstance(node, Struct) or place is None:
                return node
            return ComputedColumn(leaves, _Cut(excess, self.least, images, place), node.type)

        shorter = value
        for image, row in rows.items():
            members = tuple(Member(member.name, cut(member.node)) for member in row.members)
            shorter = shorter.with_part(image, replace(row, members=members))
        return either(ComputedColumn(leaves, _Exceeds(excess), BOOLEAN), replace(record, value=shorter), record)


def enforce_record_size(options: Mapping[str, str]) -> EnforceRecordSize:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    made = EnforceRecordSize(
        given.integer("max.bytes", None),
        given.number("compression.ratio", 1.0),
        given.integer("min.field.size", 25_000, least=0),
    )
    given.done()
    return made
