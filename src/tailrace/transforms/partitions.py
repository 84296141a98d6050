"""PartitionRouting: chooses the partition of a record by fields of its event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import INT32, LogicalType
from tailrace.formats.arrow import untyped
from tailrace.records.layout import Computed, Node, RecordLayout, Struct
from tailrace.records.transform import Refused
from tailrace.transforms.given import OptionReader
from tailrace.transforms.hashes import has_lasting_hash, java, murmur
from tailrace.transforms.nodes import as_optional, at, is_envelope, op_of

_FUNCTIONS = {"java": java, "murmur": murmur}
_LARGEST = 0x7FFFFFFF
_DATES = tuple(f"org.apache.kafka.connect.data.{name}" for name in ("Date", "Time", "Timestamp"))
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Partition:
    """Maps field values to the partition, by the sum of their hashes; null if all values are null.

    `dates` is true for fields that are java.util.Date in Kafka Connect.
    """

    partitions: int
    function: str
    dates: tuple[bool, ...]

    def __call__(self, *fields: pa.Array) -> pa.Array:
        total = np.zeros(len(fields[0]), np.int32)
        known = np.zeros(len(total), np.bool_)
        for values in map(_as_java, fields, self.dates):
            total = total + _FUNCTIONS[self.function](values)
            known |= values.is_valid().to_numpy(zero_copy_only=False)
        total = total & np.int32(_LARGEST)
        total[total == _LARGEST] = 0
        return pa.array(total % np.int32(self.partitions), pa.int32(), mask=~known)


def _as_java(values: pa.Array, is_date: bool) -> pa.Array:
    """Return values in Kafka Connect's form: timestamps and dates as numbers, instants as texts in UTC."""
    if pa.types.is_list(values.type):
        parts = _as_java(values.flatten(), is_date)
        ends = pa.array(np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(values), 0))), pa.int32())
        known = pa.concat_arrays([values.is_valid(), pa.array([True])])
        return pa.ListArray.from_arrays(pc.if_else(known, ends, pa.scalar(None, pa.int32())), parts)
    if not pa.types.is_temporal(values.type):
        return values
    shown = untyped(values)
    if is_date:
        shown = pc.multiply(shown.cast(pa.int64()), _DAY_MS if pa.types.is_date(values.type) else 1)
    return shown


@dataclass(frozen=True, slots=True)
class PartitionRouting:
    """A records.transform.Transform."""

    fields: tuple[tuple[str, ...], ...]
    partitions: int
    function: str
    places_partitions: bool = True

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        op = op_of(record.value)
        if not is_envelope(record) or op in ("t", "m"):
            return record
        assert isinstance(record.value, Struct)
        change = "before" if op == "d" else "after"
        found = []
        for path in self.fields:
            node = at(record.value, (change if path[0] == "change" else path[0], *path[1:]))
            if node is not None:
                found.append(_hashed(node, path))
        if not found:
            return record
        dates = tuple(_is_date(node.type) for node in found)
        function = _Partition(self.partitions, self.function, dates)
        made = Computed(tuple(found), function, INT32.with_optional(True))
        return replace(record, partition=made)


def _is_date(kind: LogicalType) -> bool:
    """Return True for types that are java.util.Date in Kafka Connect, and for lists of them."""
    return kind.name in _DATES if kind.items is None else _is_date(kind.items)


def _hashed(node: Node, path: tuple[str, ...]) -> Node:
    if not has_lasting_hash(node.type):
        raise Refused(f"PartitionRouting cannot place records by {'.'.join(path)}, whose hash differs in each process")
    return as_optional(node)


def partition_routing(options: Mapping[str, str]) -> PartitionRouting:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("partition.payload.fields")
    fields = given.names("partition.payload.fields")
    made = PartitionRouting(
        tuple(tuple(field.split(".")) for field in fields),
        given.integer("partition.topic.num", None),
        "murmur" if given.text("partition.hash.function").lower() == "murmur" else "java",
    )
    given.done()
    return made
