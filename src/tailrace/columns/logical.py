"""Logical types: the meaning of a column's values to a consumer, in terms of Kafka Connect's schemas.

A logical type is the schema of a value, from which every serialiser derives its own. The values of `connect` are
Connect's: boolean, int8, int16, int32, int64, float, double, string, bytes, array, map, struct.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


class Absent:
    """The type of ABSENT; its only value equals itself across processes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()
"""No default: distinct from None, which is a default of null."""


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A schema: Connect's type, its semantic name and version, its parameters in order, and its parts.

    `fields` belong to a struct, `items` to an array (its element) or a map (its value). `keys` is a map's key, None for
    strings; JSON writes a map with other keys as a list of pairs. `default` is the default in its JSON form (bytes as
    base64 text), ABSENT without one; `doc` is the schema's documentation.
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
    """Return `base` under a semantic name; parameter names have `__` for dots, which identifiers cannot contain."""
    named = tuple((key.replace("__", "."), value) for key, value in parameters.items())
    return replace(base, name=name, version=version, parameters=named)


def array(items: LogicalType) -> LogicalType:
    return LogicalType("array", items=items)


def mapping(values: LogicalType) -> LogicalType:
    """Return a map from strings."""
    return LogicalType("map", items=values)


def struct(*fields: Field, name: str | None = None, version: int | None = None, doc: str | None = None) -> LogicalType:
    return LogicalType("struct", name, version, fields=fields, doc=doc)
