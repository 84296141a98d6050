"""Logical types: what a column's values mean to a consumer, in the terms of Kafka Connect's schemas.

A logical type is the schema half of a value: every serialiser derives its own schema from it. The values of
`connect` are Connect's: boolean, int8, int16, int32, int64, float, double, string, bytes, array, map, struct.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


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
