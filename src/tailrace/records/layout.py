"""The layout of a record: a tree of structs whose leaves say where values come from. Pure data, any process.

A layout is made once per version of a table, operation and configuration. Values that differ between records are not in
it but in the columns that fill it (`tailrace.records.columns`). Its schema follows from it, and an encoding
(`tailrace.formats`) turns both into bytes or Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.columns.logical import BYTES, STRING, Field, LogicalType, struct
from tailrace.kernels.programs import CHANGE, MARKER, RECORD, SOURCE, TRANSACTION
from tailrace.values.conversion import ColumnPlan

__all__ = ["CHANGE", "MARKER", "RECORD", "SOURCE", "TRANSACTION"]

BEFORE, AFTER = "before", "after"
"""The images of a change."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value shared by all records of the layout, in the JSON form of `type`; None for null."""

    value: Any
    type: LogicalType


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """A column of an image, as the server wrote it: `column` says how its texts are read and what its schema is.

    `apart`: the column is shown unshaped although the image shapes it (see `events.column_plans`); the two values
    differ.
    """

    image: str
    column: ColumnPlan
    apart: bool = False

    @property
    def type(self) -> LogicalType:
        """The schema of the values."""
        return self.column.schema


@dataclass(frozen=True, slots=True)
class BlockColumn:
    """A named column of a block.

    `by` says to what its values belong: each change of the block, each transaction of the batch, each marker, each
    record of the block, or each transaction as source blocks show it.
    """

    name: str
    type: LogicalType
    by: int = CHANGE


@dataclass(frozen=True, slots=True)
class Text:
    """A text composed of constant texts and columns; numbers are written in decimal digits.

    Texts in these columns must not contain control characters.
    """

    parts: tuple[str | BlockColumn, ...]
    type: LogicalType = STRING


@dataclass(frozen=True, slots=True)
class ServerTexts:
    """Input of a computed column: a column of an image as the server's texts, in bytes.

    A value that the log did not carry is UNAVAILABLE, which is never a text.
    """

    column: ImageColumn

    @property
    def type(self) -> LogicalType:
        """The schema of the texts."""
        return BYTES.with_optional(True)


@dataclass(frozen=True, slots=True)
class ShownTexts:
    """Input of a computed column: the texts that events show of a leaf, if its Arrow type holds less than the texts.

    For example, an Arrow instant has neither an offset nor a number of digits.
    """

    leaf: ImageColumn | Constant | ComputedColumn

    @property
    def type(self) -> LogicalType:
        """The schema of the texts."""
        return self.leaf.type


UNAVAILABLE = b"\xff"
"""Replaces a text that the log did not carry; texts are UTF-8."""


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that depends on values: `function` makes it from the columns of its inputs.

    The function gets one Arrow array per input, in the types of the encoding `typed`, with one value per record of the
    layout in the block. It returns an array of the Arrow type of `type`. It runs in workers and is pickled with the
    layout's transform. `shown`: the function returns the values as JSON shows them, because their Arrow type holds
    less; for example, an Arrow instant has no offset.
    """

    inputs: tuple[Node | ServerTexts | ShownTexts, ...]
    function: Callable[..., Any]
    type: LogicalType
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A named part of a struct."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct of named parts; `name`, `version` and `optional` are properties of its schema."""

    members: tuple[Member, ...]
    name: str | None = None
    version: int | None = None
    optional: bool = False

    @property
    def type(self) -> LogicalType:
        """The struct's schema."""
        fields = (Field(member.name, member.node.type) for member in self.members)
        return struct(*fields, name=self.name, version=self.version).with_optional(self.optional)

    def part(self, name: str) -> Node | None:
        """Return the part with this name; None if there is none."""
        return next((member.node for member in self.members if member.name == name), None)

    def with_part(self, name: str, node: Node) -> Struct:
        """Return the struct with this part: in place of the part with its name, or after all others."""
        if self.part(name) is None:
            return replace(self, members=(*self.members, Member(name, node)))
        members = (Member(name, node) if member.name == name else member for member in self.members)
        return replace(self, members=tuple(members))

    def without(self, *names: str) -> Struct:
        """Return the struct without the parts with these names."""
        return replace(self, members=tuple(member for member in self.members if member.name not in names))


Leaf = Constant | ImageColumn | BlockColumn | Text | ComputedColumn
Node = Leaf | Struct


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The layout of one kind of record: a version of a table, an operation, and the images that it shows.

    `op` is the row's column `op`. `key` is None for a record without a key, `value` for a tombstone. `keep` is a
    boolean that says which records are delivered; None keeps all. `partition` is the requested partition, an int32, and
    `timestamp` the record's time in ms since 1970, an int64, if a transform sets them.
    """

    op: str
    topic: str | ComputedColumn
    key: Node | None
    value: Node | None
    headers: tuple[Header, ...] = ()
    keep: ComputedColumn | None = None
    partition: Leaf | None = None
    timestamp: Leaf | None = None


def constants(value: Mapping[str, Any], schema: LogicalType) -> Struct:
    """Return the layout of a record with known values: `value` has one for each field of the struct `schema`."""
    members = (Member(field.name, Constant(value[field.name], field.type)) for field in schema.fields)
    return Struct(tuple(members), schema.name, schema.version, schema.optional)
