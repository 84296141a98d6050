"""The JSON encoding: a layout is compiled to literals with leaves between them, which a block fills. Worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import LogicalType
from tailrace.errors import ConfigError
from tailrace.formats.arrow import computed
from tailrace.formats.assembly import AssembledBlock, Assembly, ValueHole
from tailrace.formats.base import EncodingChoice
from tailrace.formats.json.numeric import has_decimals, numbers_fragment, schema_with_numbers, with_numbers
from tailrace.formats.json.values import inner_fragment, spread, values_fragment
from tailrace.formats.option_reader import OptionReader
from tailrace.kernels.programs import Fragment
from tailrace.records.columns import Columns, SharedValue, WrittenJson
from tailrace.records.layout import (
    CHANGE,
    RECORD,
    BlockColumn,
    ComputedColumn,
    Constant,
    ImageColumn,
    Node,
    RecordLayout,
    Struct,
    Text,
)
from tailrace.values.fragments import column_fragment
from tailrace.values.json_text import dumps, quoted, schema_text


@dataclass(frozen=True, slots=True)
class Json:
    """See formats.base.Encoding. With `numeric`, decimals are numbers."""

    numeric: bool = False

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        numeric = given.one_of("decimal.format", ("BASE64", "NUMERIC"), "BASE64") == "NUMERIC"
        given.idle("schemas.cache.size")
        if given.text("schema.content"):
            raise ConfigError(
                f"{part}.converter.schema.content is not supported: each record carries the schema of its own table "
                "version.",
                "Leave it out.",
            )
        return given.taken(NUMERIC if numeric else JSON)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Assembly:
        parts = parts_of(layout, self.numeric)
        if not schemas:
            return Assembly.of(b"", parts)
        return Assembly.of(_opening(schema_with_numbers(layout.type) if self.numeric else layout.type), (*parts, b"}"))

    def block(self, columns: Columns) -> JsonBlock:
        return JsonBlock(columns, self.numeric)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes:
        return self.compile(layout, schemas, record).text


def _opening(schema: LogicalType) -> bytes:
    return _shared(f'{{"schema":{schema_text(schema)},"payload":'.encode())


@lru_cache(maxsize=8192)
def _shared(text: bytes) -> bytes:
    """Return the text itself; equal texts are kept once. Schemas are not hashable, since a default may be a list."""
    return text


def parts_of(node: Node, numeric: bool = False) -> Iterator[bytes | ValueHole]:
    """Yield the JSON of a layout: literals, and holes whose way says whether they are within a JSON string.

    With `numeric`, decimals are numbers.
    """
    match node:
        case Constant():
            yield dumps(with_numbers(node.value, node.type) if numeric else node.value).encode()
        case Text():
            yield b'"'
            for part in node.parts:
                yield (
                    quoted(part)[1:-1].encode()
                    if isinstance(part, str)
                    else ValueHole(part, part.by, True, ("column", part.name, True))
                )
            yield b'"'
        case Struct():
            separator = "{"
            for member in node.members:
                yield f"{separator}{quoted(member.name)}:".encode()
                yield from parts_of(member.node, numeric)
                separator = ","
            yield b"}" if node.members else b"{}"
        case ImageColumn():
            yield ValueHole(node, CHANGE, False, (node.image, node.column.index, node.apart, node.column.null))
        case BlockColumn():
            yield ValueHole(node, node.by, False, ("column", node.name, False))
        case ComputedColumn():
            yield ValueHole(node, RECORD, False, None)


class JsonBlock(AssembledBlock):
    """See formats.base.Block."""

    def __init__(self, columns: Columns, numeric: bool = False) -> None:
        super().__init__(columns)
        self._numeric = numeric
        # fragments of arrays, which several columns may share
        self._made: dict[Hashable, tuple[pa.Array, Fragment]] = {}

    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes:
        found = self._written(hole, records)
        schema = hole.leaf.type
        if not self._numeric or isinstance(found, bytes) or not has_decimals(schema):
            return found
        return numbers_fragment(found, schema)

    def _written(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes:
        leaf = hole.leaf
        if isinstance(leaf, BlockColumn):
            return self._column(leaf, hole.way)
        if isinstance(leaf, ImageColumn):
            return self._image(leaf)
        places = records()
        values = computed(leaf, self._columns, places, as_shown=True)
        return values_fragment(spread(values, places, self._columns.index.shape[1]))

    def _image(self, leaf: ImageColumn) -> Fragment:
        plan, texts = leaf.column, self._columns.texts(leaf)
        column = texts.texts
        if plan.shape is not None and not plan.conversion.by_value:
            column = plan.shape.column(column)
        fragment, lost = column_fragment(plan, column, texts.unavailable)
        if lost:
            self._columns.lost(plan, lost)
        return fragment

    def _column(self, leaf: BlockColumn, inner: bool) -> Fragment | bytes:
        values = self._columns.values(leaf)
        if isinstance(values, SharedValue):
            text = dumps(values.value)
            return (text[1:-1] if inner and isinstance(values.value, str) else text).encode()
        if isinstance(values, WrittenJson):
            return values.json
        # numbers are the same within a string
        inner = inner and pa.types.is_string(values.type)
        lasting = leaf.by not in (CHANGE, RECORD)
        made, key = (self._columns.kept, ("json", leaf.name, inner)) if lasting else (self._made, (id(values), inner))
        if key not in made:
            made[key] = values, inner_fragment(values) if inner else values_fragment(values)
        found: Fragment = made[key][1]
        return found


JSON = Json()
NUMERIC = Json(numeric=True)
