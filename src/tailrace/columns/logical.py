"""Logical types: what a column's values mean to a consumer, in the terms of Kafka Connect's schemas.

A logical type is the schema half of a value: every serialiser derives its own schema from it. The values of
`connect` are Connect's: boolean, int8, int16, int32, int64, float, double, string, bytes, array, map, struct.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa


class Absent:
    """The type of ABSENT; one value, equal to itself across processes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()
"""No default at all: distinct from None, which is a default of null."""


@dataclass(frozen=True, slots=True)
class LogicalType:
    """One schema: Connect's type, its semantic name and version, its parameters in order, and its parts.

    `fields` belong to a struct, `items` to an array (its element) or a map (its value). `keys` is a map's key, None
    for strings; JSON writes a map of other keys as a list of pairs.
    `default` is the default in its JSON form (bytes as base64 text), ABSENT where there is none; `doc` what the
    schema says of itself.
    """

    connect: str
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    items: LogicalType | None = None
    optional: bool = False
    default: Any = ABSENT
    doc: str | None = None
    keys: LogicalType | None = None

    def with_default(self, default: Any) -> LogicalType:
        return replace(self, default=default)

    def with_optional(self, optional: bool) -> LogicalType:
        return replace(self, optional=optional)

    def arrow(self) -> pa.DataType:
        """The Arrow type that holds the values of this type."""
        plain = {
            "boolean": pa.bool_(),
            "int8": pa.int8(),
            "int16": pa.int16(),
            "int32": pa.int32(),
            "int64": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "string": pa.string(),
            "bytes": pa.binary(),
        }
        if self.connect in plain:
            return plain[self.connect]
        if self.connect == "struct":
            return pa.struct([pa.field(f.name, f.type.arrow(), f.type.optional) for f in self.fields])
        if self.items is None:
            raise ValueError(f"a logical type {self.connect} needs items")
        if self.connect == "map":
            return pa.map_(
                self.keys.arrow() if self.keys else pa.string(),
                pa.field("value", self.items.arrow(), self.items.optional),
            )
        return pa.list_(pa.field("element", self.items.arrow(), self.items.optional))


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of a struct."""

    name: str
    type: LogicalType


BOOLEAN = LogicalType("boolean")
INT8 = LogicalType("int8")
INT16 = LogicalType("int16")
INT32 = LogicalType("int32")
INT64 = LogicalType("int64")
FLOAT = LogicalType("float")
DOUBLE = LogicalType("double")
STRING = LogicalType("string")
BYTES = LogicalType("bytes")


def semantic(base: LogicalType, name: str, version: int = 1, **parameters: str) -> LogicalType:
    """`base` under a semantic name; parameter names have `__` for the dots that identifiers cannot carry."""
    named = tuple((key.replace("__", "."), value) for key, value in parameters.items())
    return replace(base, name=name, version=version, parameters=named)


def array(items: LogicalType) -> LogicalType:
    return LogicalType("array", items=items)


def mapping(values: LogicalType) -> LogicalType:
    """A map from strings."""
    return LogicalType("map", items=values)


def struct(*fields: Field, name: str | None = None, version: int | None = None, doc: str | None = None) -> LogicalType:
    return LogicalType("struct", name, version, fields=fields, doc=doc)


def decimal(scale: int, precision: int | None) -> LogicalType:
    """A fixed-point number as the big-endian two's complement of its unscaled value."""
    if precision is None:
        return semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale=str(scale))
    return semantic(
        BYTES, "org.apache.kafka.connect.data.Decimal", scale=str(scale), connect__decimal__precision=str(precision)
    )


VARIABLE_DECIMAL = struct(
    Field("scale", INT32),
    Field("value", BYTES),
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
)
DATE = semantic(INT32, "io.debezium.time.Date")
TIME = semantic(INT32, "io.debezium.time.Time")
MICRO_TIME = semantic(INT64, "io.debezium.time.MicroTime")
NANO_TIME = semantic(INT64, "io.debezium.time.NanoTime")
TIMESTAMP = semantic(INT64, "io.debezium.time.Timestamp")
MICRO_TIMESTAMP = semantic(INT64, "io.debezium.time.MicroTimestamp")
NANO_TIMESTAMP = semantic(INT64, "io.debezium.time.NanoTimestamp")
ZONED_TIME = semantic(STRING, "io.debezium.time.ZonedTime")
ZONED_TIMESTAMP = semantic(STRING, "io.debezium.time.ZonedTimestamp")
ISO_DATE = semantic(STRING, "io.debezium.time.IsoDate")
ISO_TIME = semantic(STRING, "io.debezium.time.IsoTime")
ISO_TIMESTAMP = semantic(STRING, "io.debezium.time.IsoTimestamp")
CONNECT_DATE = semantic(INT32, "org.apache.kafka.connect.data.Date")
CONNECT_TIME = semantic(INT32, "org.apache.kafka.connect.data.Time")
CONNECT_TIMESTAMP = semantic(INT64, "org.apache.kafka.connect.data.Timestamp")
MICRO_DURATION = semantic(INT64, "io.debezium.time.MicroDuration")
INTERVAL = semantic(STRING, "io.debezium.time.Interval")
UUID = semantic(STRING, "io.debezium.data.Uuid")
JSON = semantic(STRING, "io.debezium.data.Json")
XML = semantic(STRING, "io.debezium.data.Xml")
LTREE = semantic(STRING, "io.debezium.data.Ltree")
TSVECTOR = semantic(STRING, "io.debezium.data.Tsvector")
POINT = struct(
    Field("x", DOUBLE),
    Field("y", DOUBLE),
    Field("wkb", BYTES.with_optional(True)),
    Field("srid", INT32.with_optional(True)),
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
)
_WKB = (Field("wkb", BYTES), Field("srid", INT32.with_optional(True)))
GEOMETRY = struct(*_WKB, name="io.debezium.data.geometry.Geometry", version=1)
GEOGRAPHY = struct(*_WKB, name="io.debezium.data.geometry.Geography", version=1)
DOUBLE_VECTOR = semantic(array(DOUBLE), "io.debezium.data.DoubleVector")
FLOAT_VECTOR = semantic(array(FLOAT), "io.debezium.data.FloatVector")

SPARSE_VECTOR = struct(
    Field("dimensions", INT16),
    Field("vector", LogicalType("map", items=DOUBLE, keys=INT16)),
    name="io.debezium.data.SparseDoubleVector",
    version=1,
    doc="Sparse double vector",
)


def _structured(name: str, **parts: LogicalType) -> LogicalType:
    """A date, time or duration in its parts, any of which may be null."""
    fields = (Field(part, kind.with_optional(True)) for part, kind in parts.items())
    return struct(*fields, name=f"io.debezium.time.Structured{name}", version=1)


_DAY = {"year": INT32, "month": INT8, "day": INT8}
_CLOCK = {"hour": INT8, "minute": INT8, "second": INT8, "nanos": INT32}
STRUCTURED_DATE = _structured("Date", **_DAY, specialValue=STRING)
STRUCTURED_TIME = _structured("Time", **_CLOCK, precision=INT32)
STRUCTURED_TIMESTAMP = _structured("Timestamp", **_DAY, **_CLOCK, specialValue=STRING, precision=INT32)
STRUCTURED_ZONED_TIME = _structured("ZonedTime", **_CLOCK, offsetSeconds=INT32, precision=INT32)
STRUCTURED_ZONED_TIMESTAMP = _structured(
    "ZonedTimestamp", **_DAY, **_CLOCK, offsetSeconds=INT32, zoneId=STRING, specialValue=STRING, precision=INT32
)
STRUCTURED_DURATION = _structured(
    "Duration",
    **dict.fromkeys(("years", "months", "days", "hours", "minutes"), INT32),
    seconds=INT64,
    nanos=INT32,
    precision=INT32,
)


def bits(length: int) -> LogicalType:
    """A bit string as little-endian bytes; `length` in bits."""
    return semantic(BYTES, "io.debezium.data.Bits", length=str(length))


def enumeration(labels: tuple[str, ...]) -> LogicalType:
    return semantic(STRING, "io.debezium.data.Enum", allowed=",".join(labels))
