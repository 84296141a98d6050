"""Layouts and the columns that fill them, for tests that call encodings and transforms directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace import formats
from tailrace.columns.logical import ABSENT, INT64, STRING, LogicalType
from tailrace.config.formats import Format
from tailrace.kernels.programs import KINDS
from tailrace.records.columns import ImageTexts, SharedValue, WrittenJson
from tailrace.records.layout import (
    AFTER,
    RECORD,
    BlockColumn,
    ComputedColumn,
    Constant,
    ImageColumn,
    Leaf,
    Member,
    Node,
    RecordLayout,
    Struct,
)
from tailrace.values.arrow import arrow_array, arrow_value
from tailrace.values.conversion import ColumnPlan, Conversion
from tailrace.values.fragments import strings_fragment
from tailrace.values.json_text import dumps

TOPIC = "server.public.t"
BARE = RecordLayout("c", TOPIC, None, None)
"""The record of keys, values and headers for tests that name no other."""


class LayoutBlock:
    """A block of records, each of a separate change, and the columns that fill their layouts.

    A leaf is made together with its values; see tailrace.records.columns.Columns. `lost_values` counts, by column name,
    the values that an encoding has reported as lost.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.index: npt.NDArray[np.int32] = np.tile(np.arange(count, dtype=np.int32), (KINDS, 1))
        self.kept: dict[Hashable, Any] = {}
        self.made: dict[Hashable, Any] = {}
        self.lost_values: Counter[str] = Counter()
        self._texts: dict[tuple[str, int], ImageTexts] = {}
        self._values: dict[str, pa.Array | SharedValue | WrittenJson] = {}

    def texts(self, leaf: ImageColumn) -> ImageTexts:
        return self._texts[leaf.image, leaf.column.index]

    def values(self, leaf: BlockColumn) -> pa.Array | SharedValue | WrittenJson:
        return self._values[leaf.name]

    def lost(self, column: ColumnPlan, count: int) -> None:
        self.lost_values[column.name] += count

    def image_column(
        self,
        name: str,
        conversion: Conversion,
        *texts: str | bytes | None,
        optional: bool = True,
        default: Any = ABSENT,
        missing: tuple[int, ...] = (),
        image: str = AFTER,
    ) -> ImageColumn:
        """Return a column of an image with the server's texts. The log did not carry those at the places `missing`."""
        index = len(self._texts)
        plan = plan_of(conversion, name, index=index, optional=optional, default=default)
        flags = None
        if missing:
            flags = np.zeros(self.count, np.bool_)
            flags[list(missing)] = True
        self._texts[image, index] = ImageTexts(text_column(*texts), flags)
        return ImageColumn(image, plan)

    def column(self, name: str, kind: LogicalType, *values: Any) -> BlockColumn:
        """Return a column of values, given in JSON and stored as Arrow."""
        self._values[name] = stored(kind, *values)
        return BlockColumn(name, kind, RECORD)

    def written_column(self, name: str, kind: LogicalType, *values: Any) -> BlockColumn:
        """Return a column whose values are JSON already."""
        self._values[name] = WrittenJson(strings_fragment([dumps(value).encode() for value in values]))
        return BlockColumn(name, kind, RECORD)

    def same_column(self, name: str, kind: LogicalType, value: Any) -> BlockColumn:
        """Return a column with the same value in all records."""
        self._values[name] = SharedValue(value)
        return BlockColumn(name, kind, RECORD)


def plan_of(
    conversion: Conversion,
    name: str = "v",
    *,
    index: int = 0,
    optional: bool = True,
    default: Any = ABSENT,
) -> ColumnPlan:
    """Return the plan of a column. Nulls are shown as its default if it has one, else as null."""
    schema = conversion.logical.with_optional(optional).with_default(default)
    null = None if default is ABSENT else default
    return ColumnPlan(
        index, name, name, schema, conversion, dumps(null).encode(), dumps(conversion.unavailable).encode()
    )


def text_column(*texts: str | bytes | None) -> pa.Array:
    """Return the texts of a column as bytes, as in the log: UTF-8 unless given as bytes."""
    return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())


def stored(kind: LogicalType, *values: Any) -> pa.Array:
    """Return values, given in JSON, as the Arrow array of their type."""
    return arrow_array([arrow_value(value, kind) for value in values], kind)


def struct_of(
    name: str | None = None, /, *, optional: bool = False, version: int | None = None, **parts: Node
) -> Struct:
    """Return a struct of these parts."""
    return Struct(tuple(Member(part, node) for part, node in parts.items()), name, version, optional)


def encoded(
    form: Format | str, layout: Node, block: LayoutBlock, *, schemas: bool = False, record: RecordLayout = BARE
) -> list[Any]:
    """Return the result of an encoding for a layout in each record of the block."""
    encoding = formats.find(form)
    document = encoding.compile(layout, schemas, record)
    found = formats.Blocks(block).of(encoding).encode([document], np.zeros(block.count, np.int32))
    found.validate(full=True)
    values: list[Any] = found.to_pylist()
    return values


def each_way(form: Format | str, kind: LogicalType, *values: Any, schemas: bool = False) -> list[bytes | None]:
    """Return the bytes of structs with one field `v` of this type, one for each value, given in JSON.

    A value can reach an encoding as a constant of the layout, alone or in a block, or as a column of Arrow or of JSON
    that a transform has computed. All ways must give the same bytes.
    """
    block = LayoutBlock(len(values))
    array = stored(kind, *values)
    columns: dict[str, Leaf] = {
        "a column of Arrow": block.column("arrow", kind, *values),
        "a column of JSON": block.written_column("json", kind, *values),
        "a computed column": ComputedColumn((), lambda: array, kind),
    }
    encoding = formats.find(form)
    found: list[bytes | None] = [encoding.one(struct_of(v=Constant(value, kind)), schemas, BARE) for value in values]
    for way, leaf in columns.items():
        assert encoded(form, struct_of(v=leaf), block, schemas=schemas) == found, way
    for value, data in zip(values, found, strict=True):
        assert encoded(form, struct_of(v=Constant(value, kind)), LayoutBlock(1), schemas=schemas) == [data]
    return found


def unfilled(kind: LogicalType) -> Struct:
    """Return a layout of this struct's type for tests of its schema. Its columns have no values."""
    members = tuple(Member(part.name, BlockColumn(part.name, part.type, RECORD)) for part in kind.fields)
    return Struct(members, kind.name, kind.version, kind.optional)


def source_block(**parts: Node) -> Struct:
    """Return the source block of a change of PostgreSQL, with `parts` replacing its own or following them."""
    text, number = STRING.with_optional(True), INT64.with_optional(True)
    own: dict[str, Node] = {
        "version": Constant("3.6.1.Final", STRING),
        "connector": Constant("postgresql", STRING),
        "name": Constant("server", STRING),
        "ts_ms": Constant(1_795_222_827_639, INT64),
        "db": Constant("golden", STRING),
        "sequence": Constant('["23","24"]', text),
        "schema": Constant("public", STRING),
        "table": Constant("t", STRING),
        "txId": Constant(700, number),
        "lsn": Constant(24_023_128, number),
    }
    members = tuple(Member(name, node) for name, node in (own | parts).items())
    return Struct(members, "io.debezium.connector.postgresql.Source", 1)


def change_event(
    op: str, before: Node | None, after: Node | None, *, source: Struct | None = None, **further: Node
) -> Struct:
    """Return the envelope of a change. A missing row is null, of the type of the other row."""
    row = before if after is None else after
    assert row is not None
    nothing = Constant(None, row.type.with_optional(True))
    moment = Constant(1_795_222_827_700, INT64.with_optional(True))
    parts: dict[str, Node] = {
        "before": nothing if before is None else before,
        "after": nothing if after is None else after,
        "source": source_block() if source is None else source,
        "op": Constant(op, STRING),
        "ts_ms": moment,
    }
    return struct_of(f"{TOPIC}.Envelope", version=2, **(parts | further))
