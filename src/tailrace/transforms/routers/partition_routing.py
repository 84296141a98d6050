"""PartitionRouting: the partition of a record by fields of its event, and the hashes by which it is chosen. Worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import INT32, LogicalType
from tailrace.formats.arrow import untyped
from tailrace.kernels.buffers import Bytes, Offsets, text_buffers
from tailrace.kernels.compiled import kernel
from tailrace.records.layout import ComputedColumn, Node, RecordLayout, ShownTexts, Struct
from tailrace.records.nodes import as_shown, at, is_envelope, op_of, with_defaults
from tailrace.records.transform import RefusedRecord, Shared
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.decimals import unscaled

# --- hashes -----------------------------------------------------------------------------------------------------------

Hashes = npt.NDArray[np.int32]

_MASK = (1 << 32) - 1
_SEED = np.uint64(9001)
_H1, _H2 = np.uint64(0x9368E53C2F6AF274), np.uint64(0x586DCD208F7CD3FD)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_ADD_H1, _ADD_H2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_ADD_C1, _ADD_C2 = np.uint64(0x7B7D159C), np.uint64(0x6BCE6396)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_3, _5, _23, _32, _33, _41 = (np.uint64(number) for number in (3, 5, 23, 32, 33, 41))
_64 = np.uint64(64)


def has_lasting_hash(kind: LogicalType) -> bool:
    """Return True if Java's hash of such values is the same in every process: a struct's includes its schema's."""
    if kind.connect == "struct":
        return False
    return kind.items is None or has_lasting_hash(kind.items)


def java(values: pa.Array) -> Hashes:
    """Return Java's hash of each value; 0 for null."""
    kind = values.type
    if pa.types.is_string(kind):
        out = np.zeros(len(values), np.int32)
        data, bounds = text_buffers(values)
        _java_texts(data, bounds, out)
        return _present(out, values)
    if pa.types.is_boolean(kind):
        known = values.fill_null(False).to_numpy(zero_copy_only=False)
        return _present(np.where(known, 1231, 1237).astype(np.int32), values)
    if pa.types.is_integer(kind):
        numbers = values.fill_null(0).to_numpy()
        return _present(numbers.astype(np.int32) if kind.bit_width < 64 else _folded(numbers), values)
    if pa.types.is_floating(kind):
        return _present(_floating(values), values)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _present(_joined(values), values)
    return np.array([_signed(_java(value)) for value in values.to_pylist()], np.int32)


def murmur(values: pa.Array) -> Hashes:
    """Return the murmur hash of each value; 0 for null."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        hashes = java(values)
        data = np.ascontiguousarray(hashes.astype("<i4")).view(np.uint8)
        bounds = np.arange(len(values) + 1, dtype=np.int32) * np.int32(4)
    else:
        data, bounds = text_buffers(values)
    out = np.zeros(len(values), np.int32)
    _murmur(data, bounds, out)
    return _present(out, values)


def _present(hashes: Hashes, values: pa.Array) -> Hashes:
    if values.null_count:
        hashes = np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, 0).astype(np.int32)
    return hashes


def _folded(numbers: npt.NDArray[np.int64]) -> Hashes:
    bits = numbers.view(np.uint64)
    return (bits ^ (bits >> _32)).astype(np.uint32).view(np.int32)


def _floating(values: pa.Array) -> Hashes:
    """Hash floats by their IEEE 754 bits, with one form for all NaNs."""
    single = values.type.bit_width == 32
    numbers = values.fill_null(0).to_numpy().copy()
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.int32) if single else _folded(numbers.view(np.int64))


def _joined(values: pa.Array) -> Hashes:
    """Combine the hashes of the elements of lists, or of the entries of maps."""
    is_map = pa.types.is_map(values.type)
    if is_map:
        parts = java(values.keys) ^ java(values.items)
    else:
        parts = java(values.values)
    hashes = parts.tolist()
    found = np.zeros(len(values), np.int32)
    for row, (low, high) in enumerate(pairwise(values.offsets.to_pylist())):
        number = 0 if is_map else 1
        for part in hashes[low:high]:
            number = (number if is_map else 31 * number) + part
        found[row] = _signed(number)
    return found


def _java(value: Decimal | bytes | None) -> int:
    """Return Java's hash of a decimal or of bytes, of which the caller keeps 32 bits."""
    if value is None:
        return 0
    if isinstance(value, Decimal):
        return 31 * _big(unscaled(value, _scale(value))) + _scale(value)
    found = 1
    for byte in reversed(value):
        found = 31 * found + (byte - 256 if byte > 127 else byte)
    return found


def _scale(value: Decimal) -> int:
    return -int(value.as_tuple().exponent)


def _big(number: int) -> int:
    """Return the hash of a BigInteger."""
    size = abs(number)
    found = 0
    for part in range((size.bit_length() + 31) // 32 - 1, -1, -1):
        found = (31 * found + (size >> 32 * part & _MASK)) & _MASK
    return -found if number < 0 else found


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 32) if number >> 31 else number


@kernel
def _java_texts(data: Bytes, bounds: Offsets, out: Hashes) -> None:
    """Hash each text by its UTF-16 units."""
    for row in range(len(out)):
        found = np.uint32(0)
        at = bounds[row]
        while at < bounds[row + 1]:
            byte = np.uint32(data[at])
            if byte < 0x80:
                unit, size = byte, 1
            elif byte < 0xE0:
                unit, size = (byte & np.uint32(0x1F)) << np.uint32(6) | (data[at + 1] & np.uint32(0x3F)), 2
            elif byte < 0xF0:
                unit = (byte & np.uint32(0x0F)) << np.uint32(12) | (data[at + 1] & np.uint32(0x3F)) << np.uint32(6)
                unit, size = unit | (data[at + 2] & np.uint32(0x3F)), 3
            else:
                unit = (byte & np.uint32(0x07)) << np.uint32(18) | (data[at + 1] & np.uint32(0x3F)) << np.uint32(12)
                unit |= (data[at + 2] & np.uint32(0x3F)) << np.uint32(6) | (data[at + 3] & np.uint32(0x3F))
                unit, size = unit - np.uint32(0x10000), 4
                found = np.uint32(31) * found + (np.uint32(0xD800) + (unit >> np.uint32(10)))
                unit = np.uint32(0xDC00) + (unit & np.uint32(0x3FF))
            found = np.uint32(31) * found + unit
            at += size
        out[row] = np.int32(found)


@kernel(inlined=True)
def _turned(word: np.uint64, by: np.uint64) -> np.uint64:
    return word << by | word >> (_64 - by)


@kernel(inlined=True)
def _mixed(word: np.uint64) -> np.uint64:
    word = (word ^ word >> _33) * _MIX_1
    word = (word ^ word >> _33) * _MIX_2
    return word ^ word >> _33


@kernel
def _murmur(data: Bytes, bounds: Offsets, out: Hashes) -> None:
    """Hash 16 bytes at a time; bytes of the incomplete last block are signed."""
    for row in range(len(out)):
        h1, h2, c1, c2 = _H1 ^ _SEED, _H2 ^ _SEED, _C1, _C2
        start, end = bounds[row], bounds[row + 1]
        size = end - start
        whole = start + size // 16 * 16
        at = start
        while at < end:
            k1, k2 = np.uint64(0), np.uint64(0)
            for place in range(min(16, end - at)):
                part = np.uint64(data[at + place])
                if at >= whole:
                    part = np.uint64(np.int64(np.int8(data[at + place])))
                if place < 8:
                    k1 ^= part << np.uint64(8 * place)
                else:
                    k2 ^= part << np.uint64(8 * (place - 8))
            h1 = (h1 ^ _turned(k1 * c1, _23) * c2) + h2
            h2 = _turned(h2, _41)
            h2 = (h2 ^ _turned(k2 * c2, _23) * c1) + h1
            h1, h2 = h1 * _3 + _ADD_H1, h2 * _3 + _ADD_H2
            c1, c2 = c1 * _5 + _ADD_C1, c2 * _5 + _ADD_C2
            at += 16
        h2 ^= np.uint64(size)
        h1 += h2
        h2 += h1
        found = (_mixed(h1) + _mixed(h2)) >> _32
        out[row] = np.int32(np.uint32(found))


# --- the transform ----------------------------------------------------------------------------------------------------


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

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        op = op_of(record.value)
        if not is_envelope(record) or op in ("t", "m"):
            return record
        assert isinstance(record.value, Struct)
        change = "before" if op == "d" else "after"
        found = []
        for path in self.fields:
            # change is a row only where it leads to a field
            node = at(record.value, (*(change if name == "change" else name for name in path[:-1]), path[-1]))
            if node is not None:
                found.append(_hashed(node, path))
        if not found:
            return record
        dates = tuple(_is_date(node.type) for node in found)
        function = _Partition(self.partitions, self.function, dates)
        made = ComputedColumn(tuple(found), function, INT32.with_optional(True))
        return replace(record, partition=made)


def _is_date(kind: LogicalType) -> bool:
    """Return True for types that are java.util.Date in Kafka Connect, and for lists of them."""
    return kind.name in _DATES if kind.items is None else _is_date(kind.items)


def _hashed(node: Node, path: tuple[str, ...]) -> Node | ShownTexts:
    if not has_lasting_hash(node.type):
        raise RefusedRecord(
            f"PartitionRouting cannot place records by {'.'.join(path)}, whose hash differs in each process"
        )
    # a null with a default counts as this, as in Debezium
    return as_shown(with_defaults(node))


def partition_routing(options: Mapping[str, str]) -> PartitionRouting:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("partition.payload.fields")
    fields = given.names("partition.payload.fields")
    made = PartitionRouting(
        tuple(tuple(part.strip() for part in field.split(".")) for field in fields),
        given.integer("partition.topic.num", None),
        "murmur" if given.text("partition.hash.function").lower() == "murmur" else "java",
    )
    given.done()
    return made
