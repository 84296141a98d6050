"""EnforceRecordSize: cuts long texts and binaries of events, so that records fit.

The size of a record is a rough estimate of its size as Java objects, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BOOLEAN, LogicalType
from tailrace.records.layout import ComputedColumn, Constant, Leaf, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import is_envelope, opened
from tailrace.records.transform import Rewritten, either
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.arrow import with_numbers

Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

_STRUCT, _TEXT, _BYTES, _LIST, _MAP, _NUMBER, _REFERENCE = 56, 56, 24, 64, 88, 24, 8
# bytes per entry of the source's partition (1 entry) and offset (6 entries), and per header
_ENTRY, _ENTRIES = 100, 7
# length of an instant as text, in UTC and with µs
_INSTANT = 27


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
    if pa.types.is_nested(values.type):
        numbers = values.cast(with_numbers(values.type))
        return np.array([_size(value, kind) for value in numbers.to_pylist()], np.int64)
    present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        own = _TEXT if kind.connect == "string" else _BYTES
        lengths: Int64s = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
        found: Int64s = present * own + lengths
        return found
    each: Int64s = present * (_TEXT + _INSTANT if kind.connect == "string" else _NUMBER)
    return each


def _size(value: Any, kind: LogicalType) -> int:
    """Return the size of one value, given in JSON form or as by Arrow's to_pylist."""
    if value is None:
        return 0
    if kind.connect == "struct":
        return _STRUCT + sum(_REFERENCE + _size(value.get(field.name), field.type) for field in kind.fields)
    if kind.items is not None and kind.connect == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return _MAP + sum(_TEXT + len(str(name)) + _size(item, kind.items) for name, item in pairs)
    if kind.items is not None:
        return _LIST + sum(_REFERENCE + _size(item, kind.items) for item in value)
    if kind.connect == "string":
        return _TEXT + len(str(value).encode())
    return _BYTES + len(value) if kind.connect == "bytes" and isinstance(value, bytes | str) else _NUMBER


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


def _is_cuttable(node: Node) -> bool:
    if isinstance(node, Struct | Constant) or node.type.connect not in ("string", "bytes"):
        return False
    # texts and bytes of these types are other values in Arrow, and short
    return not (node.type.name or "").startswith(("io.debezium.time.", "org.apache.kafka.connect.data."))


@dataclass(frozen=True, slots=True)
class _Exceeds:
    """Maps leaves to a mask of the records that are too large."""

    estimate: Estimate
    most: float

    def __call__(self, *leaves: pa.Array) -> pa.Array:
        return pa.array(self.estimate.sizes(leaves, len(leaves[0])) > self.most)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Maps leaves to the leaf `field`, cut. The leaves `fields` share the excess in proportion to their lengths."""

    estimate: Estimate
    most: float
    least: int
    fields: tuple[int, ...]
    field: int

    def __call__(self, *leaves: pa.Array) -> pa.Array:
        excess = self.estimate.sizes(leaves, len(leaves[0])) - self.most
        lengths = {place: self._length(leaves[place]) for place in self.fields}
        total = np.maximum(sum(lengths.values()), 1)
        own = lengths[self.field]
        kept = np.maximum(np.floor(own - excess * own / total), 0).astype(np.int64).tolist()
        values = leaves[self.field]
        cut = own.tolist()
        found = [value[: kept[row]] if cut[row] else value for row, value in enumerate(values.to_pylist())]
        return pa.array(found, values.type)

    def _length(self, values: pa.Array) -> Doubles:
        """Return the lengths of values that are long enough to be cut, 0 for others."""
        of = pc.utf8_length if pa.types.is_string(values.type) else pc.binary_length
        lengths = pc.fill_null(of(values), 0).to_numpy().astype(np.float64)
        return np.where(lengths > self.least, lengths, 0.0)


@dataclass(frozen=True, slots=True)
class EnforceRecordSize:
    """A records.transform.Transform. Values of at most `least` characters or bytes are not cut."""

    most: int
    ratio: float
    least: int

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if not is_envelope(record):
            return record
        value = record.value
        assert isinstance(value, Struct)
        topic: Node = record.topic if not isinstance(record.topic, str) else _constant(record.topic)
        parts = [part for node in (record.key, value, topic) for part in _parts(node)]
        leaves = tuple(part for part in parts if not isinstance(part, int))
        fixed = sum(part for part in parts if isinstance(part, int)) + _ENTRY * (_ENTRIES + len(record.headers))
        images = {image: value.part(image) for image in ("before", "after")}
        rows = {image: row for image, row in images.items() if isinstance(row, Struct)}
        # a leaf of the key may also be in a row: equal leaves have equal values
        long = [member.node for row in rows.values() for member in row.members if _is_cuttable(member.node)]
        if not long:
            return record
        places = {id(leaf): place for place, leaf in enumerate(leaves)}
        fields = tuple(places[id(node)] for node in long)
        estimate, most = Estimate(fixed, tuple(leaf.type for leaf in leaves)), self.most / self.ratio

        def cut(node: Node) -> Node:
            if id(node) not in places or places[id(node)] not in fields:
                return node
            return ComputedColumn(leaves, _Cut(estimate, most, self.least, fields, places[id(node)]), node.type)

        shorter = value
        for image, row in rows.items():
            members = tuple(Member(member.name, cut(member.node)) for member in row.members)
            shorter = shorter.with_part(image, replace(row, members=members))
        return either(ComputedColumn(leaves, _Exceeds(estimate, most), BOOLEAN), replace(record, value=shorter), record)


def _constant(text: str) -> Constant:
    return Constant(text, LogicalType("string"))


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
