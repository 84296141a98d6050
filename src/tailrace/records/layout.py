"""The layout of a record: a tree of structs over leaves that say where a value comes from. Pure data, any process.

A layout is made once for a version of a table, an operation and a configuration. It holds no value that differs from
record to record: those are in the columns that fill it (`tailrace.records.columns`). Its schema follows from it, and
an encoding (`tailrace.formats`) turns both into bytes or into Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.assembly.programs import CHANGE, MARKER, RECORD, SOURCE, TRANSACTION
from tailrace.columns.logical import BYTES, STRING, Field, LogicalType, struct
from tailrace.values.conversion import ColumnPlan

__all__ = ["CHANGE", "MARKER", "RECORD", "SOURCE", "TRANSACTION"]

BEFORE, AFTER = "before", "after"
"""The images of a change."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same in every record of the layout, in the form that `type` has in JSON; null is None."""

    value: Any
    type: LogicalType


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """A column of an image, as the server wrote it: `column` says how its texts are read and what its schema is.

    `apart` says that the column is shown as it is where the image shows it shaped (see `tailrace.events.shaped`), so
    the two are different values.
    """

    image: str
    column: ColumnPlan
    apart: bool = False

    @property
    def type(self) -> LogicalType:
        """The schema of the values."""
        return self.column.schema


@dataclass(frozen=True, slots=True)
class Column:
    """A column that whoever fills the layout gives by this name.

    `by` says what there is a value for: each change of the block, each transaction of the batch, each marker, each
    record of the block, or each of what source blocks show of transactions.
    """

    name: str
    type: LogicalType
    by: int = CHANGE


@dataclass(frozen=True, slots=True)
class Text:
    """A text put together of constant texts and of columns, of which numbers are written in decimal digits.

    Texts in these columns may not hold control characters.
    """

    parts: tuple[str | Column, ...]
    type: LogicalType = STRING


@dataclass(frozen=True, slots=True)
class AsWritten:
    """As input of a computed column: a column of an image as the server's texts, in bytes.

    A value that the log did not carry is UNAVAILABLE, which no text is.
    """

    column: ImageColumn

    @property
    def type(self) -> LogicalType:
        """The schema of the texts."""
        return BYTES.with_optional(True)


UNAVAILABLE = b"\xff"
"""In the place of a text that the log did not carry; texts are UTF-8."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that depends on values: `function` makes it of the columns of its inputs.

    It gets one Arrow array for each of the inputs, of the types that the encoding `typed` gives them, with a value for
    every record of the layout in the block, and returns one of the Arrow type of `type`. It runs in workers and is
    pickled with the layout's transform.
    """

    inputs: tuple[Node | AsWritten, ...]
    function: Callable[..., Any]
    type: LogicalType


@dataclass(frozen=True, slots=True)
class Member:
    """A named part of a struct."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct of named parts; `name`, `version` and `optional` are those of its schema."""

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
        """The part of this name, None where there is none."""
        return next((member.node for member in self.members if member.name == name), None)

    def with_part(self, name: str, node: Node) -> Struct:
        """The struct with this part in the place of the one of its name, or behind all others."""
        if self.part(name) is None:
            return replace(self, members=(*self.members, Member(name, node)))
        members = (Member(name, node) if member.name == name else member for member in self.members)
        return replace(self, members=tuple(members))

    def without(self, *names: str) -> Struct:
        """The struct without the parts of these names."""
        return replace(self, members=tuple(member for member in self.members if member.name not in names))


Leaf = Constant | ImageColumn | Column | Text | Computed
Node = Leaf | Struct


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The layout of one kind of record: a version of a table, an operation and the images that it shows.

    `op` is what the row schema's column `op` says of it. A record without a key, and the value of a tombstone, are
    None. `keep` names the records that are delivered, by a boolean for each; None keeps all of them. `partition` is the
    one that the record asks for, an int32, and `timestamp` its own time in ms since 1970, an int64, where a transform
    gives them.
    """

    op: str
    topic: str | Computed
    key: Node | None
    value: Node | None
    headers: tuple[Header, ...] = ()
    keep: Computed | None = None
    partition: Leaf | None = None
    timestamp: Leaf | None = None


def constants(value: Mapping[str, Any], schema: LogicalType) -> Struct:
    """The layout of a record whose values are all known: `value` has one for each field of the struct `schema`."""
    members = (Member(field.name, Constant(value[field.name], field.type)) for field in schema.fields)
    return Struct(tuple(members), schema.name, schema.version, schema.optional)
