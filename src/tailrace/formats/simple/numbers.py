"""The encodings of plain numbers, booleans and bytes: Kafka Connect's converters of these. Worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.arrow import array_of, untyped
from tailrace.formats.base import EncodingChoice
from tailrace.formats.json.values import spread
from tailrace.formats.option_reader import OptionReader
from tailrace.kernels.buffers import binary_array, readonly, valid_flags
from tailrace.records.columns import Columns, Indexes
from tailrace.records.layout import Constant, Node, RecordLayout

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""Bytes in schemas, but numbers in Java."""


@dataclass(frozen=True, slots=True)
class _NumberDocument:
    """A leaf."""

    layout: Node
    size: int


@dataclass(frozen=True, slots=True)
class PlainNumbers:
    """See formats.base.Encoding. It writes leaves of the Connect type `connect`; numbers in numpy's `form`.

    `name` is the converter's.
    """

    name: str
    connect: str
    form: str = ""

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        given.idle("schemas.enable")
        return given.taken(self)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> _NumberDocument | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        if layout.type.connect != self.connect or layout.type.name == _DECIMAL:
            topic = record.topic if isinstance(record.topic, str) else "a computed topic"
            raise ConversionError(
                f"{self.name} cannot write a {_word(layout.type)}, in the record {record.op} for {topic}.",
                f"It accepts only {self.connect}: take the field out of its struct by the transform ExtractField, or "
                "name another converter.",
            )
        return _NumberDocument(layout, np.dtype(self.form).itemsize if self.form else 0)

    def block(self, columns: Columns) -> _NumberBlock:
        return _NumberBlock(columns, self)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        document = self.compile(layout, schemas, record)
        if document is None:
            return None
        found: bytes | None = self.bytes_of(layout, None, np.zeros(1, np.int32))[0].as_py()
        return found

    def bytes_of(self, layout: Node, columns: Columns | None, records: Indexes) -> pa.Array:
        """Return the bytes of the values in these records; null for null."""
        values = array_of(layout, columns, records)
        if not self.form:
            return values.cast(pa.binary())
        if pa.types.is_temporal(values.type):
            values = untyped(values)
        filled = pc.fill_null(values.cast(pa.uint8()) if self.connect == "boolean" else values, 0)
        data = np.array(filled.to_numpy(zero_copy_only=False)).astype(self.form).view(np.uint8)
        size = np.dtype(self.form).itemsize
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(size)
        return binary_array(readonly(data), readonly(offsets), valid_flags(values))


def _word(kind: LogicalType) -> str:
    return "decimal" if kind.name == _DECIMAL else kind.connect


class _NumberBlock:
    """See formats.base.Block."""

    def __init__(self, columns: Columns, encoding: PlainNumbers) -> None:
        self._columns, self._encoding = columns, encoding

    def encode(self, documents: Sequence[_NumberDocument | None], of: npt.NDArray[np.int32]) -> pa.Array:
        found = pa.nulls(len(of), pa.binary())
        for number, document in enumerate(documents):
            if document is not None:
                records = np.flatnonzero(of == number).astype(np.int32)
                part = self._encoding.bytes_of(document.layout, self._columns, records)
                found = pc.coalesce(found, spread(part, records, len(of)))
        return found


BYTES = PlainNumbers("ByteArrayConverter", "bytes")
SHORT = PlainNumbers("ShortConverter", "int16", ">i2")
INTEGER = PlainNumbers("IntegerConverter", "int32", ">i4")
LONG = PlainNumbers("LongConverter", "int64", ">i8")
FLOAT = PlainNumbers("FloatConverter", "float", ">f4")
DOUBLE = PlainNumbers("DoubleConverter", "double", ">f8")
BOOLEAN = PlainNumbers("BooleanConverter", "boolean", "u1")
