"""The encoding Avro: a layout becomes literals with leaves between them, behind what names its schema. Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.assembly.programs import Fragment, Programs
from tailrace.buffers import binary_array, text_buffers
from tailrace.columns.logical import LogicalType
from tailrace.errors import ConfigError, ConversionError
from tailrace.formats.arrow import computed, image_values, read_json
from tailrace.formats.assembled import AssembledBlock, Assembly, Hole
from tailrace.formats.avro.options import Options, options_of
from tailrace.formats.avro.pieces import array_piece, json_piece, takes_arrow
from tailrace.formats.avro.schema import full_name, schema_text
from tailrace.formats.avro.values import NullError, branches, null_is_no_value, writer
from tailrace.formats.base import Taken
from tailrace.formats.json.pieces import spread
from tailrace.formats.registry.ids import prefix, schema_id
from tailrace.records.columns import Columns, Same, Written
from tailrace.records.layout import (
    CHANGE,
    RECORD,
    Column,
    Computed,
    Constant,
    ImageColumn,
    Node,
    RecordLayout,
    Struct,
    Text,
)
from tailrace.values.arrow import arrow_type_of
from tailrace.values.fragments import column_fragment, integers_fragment


@dataclass(frozen=True, slots=True)
class Avro:
    """See formats.base.Encoding. It needs its converter's options: `kind` is whose converter it is."""

    kind: str
    options: Options | None = None

    def with_options(self, part: str, options: Mapping[str, str]) -> Taken:
        """See formats.base.Configured."""
        found, given = options_of(self.kind, part, options)
        return given.taken(Avro(self.kind, found), keeps_nulls=found.nulls_stay)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Assembly | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        options = self._options
        schema, text, name = self._schema(layout)
        parts = self._parts(layout, schema)
        # a null leaf is a null record, and alone has nothing behind the byte of its branch
        nullable = schema.optional and not isinstance(layout, Struct)
        null_size = options.registry.width + 2 if nullable else 0
        if isinstance(record.topic, str):
            return Assembly.of(prefix(options.registry, record.topic, text, name), parts, null_size)
        return Assembly.of(b"", (Hole(record.topic, RECORD, (text, name), None), *parts), null_size)

    def block(self, columns: Columns) -> _Block:
        return _Block(columns, self._options)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        made = self.compile(layout, schemas, record)
        return None if made is None else made.text

    def schema_id(self, layout: Node, record: RecordLayout) -> int:
        """The id of a layout's schema, which is registered if the options say so. The topic is a constant."""
        assert isinstance(record.topic, str)
        _, text, name = self._schema(layout)
        return schema_id(self._options.registry, record.topic, text, name)

    def _schema(self, layout: Node) -> tuple[LogicalType, str, str | None]:
        """The schema of records of a layout, its text, and its name where it is a record."""
        schema, rules = layout.type, self._options.rules
        if self._options.plain_records and schema.connect == "struct":
            schema = schema.with_optional(False)
        return schema, schema_text(schema, rules), full_name(schema, rules)

    @property
    def _options(self) -> Options:
        if self.options is None:
            raise ConfigError(
                "Avro needs the options of its converter.", "Name it in key.converter or value.converter."
            )
        return self.options

    def _parts(self, node: Node, schema: LogicalType) -> Iterator[bytes | Hole]:
        """A layout in Avro, by its schema: literals, and the holes between them."""
        match node:
            case Constant():
                yield writer(schema, self._options.rules)(node.value)
            case Struct():
                mark, _ = branches(schema)
                yield bytes([mark]) if mark >= 0 else b""
                for member in node.members:
                    yield from self._parts(member.node, member.node.type)
            case ImageColumn():
                # one column may stand twice, in a field that is optional and in one that is not
                place = (node.image, node.column.index, node.apart, node.column.null)
                yield Hole(node, CHANGE, schema, ("avro", *place, schema.connect, schema.name, branches(schema)))
            case Column():
                yield Hole(node, node.by, schema, ("avro", node.name, schema.connect, branches(schema)))
            case Text():
                yield Hole(node, RECORD, schema, None)
            case Computed():
                yield Hole(node, RECORD, schema, None)


class _Block(AssembledBlock):
    """See formats.base.Block."""

    def __init__(self, columns: Columns, options: Options) -> None:
        super().__init__(columns)
        self._options, self._rules = options, options.rules

    def filled(self, hole: Hole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes:
        leaf, columns = hole.leaf, self._columns
        if isinstance(hole.way, tuple):
            return self._prefixes(leaf, hole.way, records())
        if isinstance(leaf, ImageColumn):
            return self._image(leaf)
        if isinstance(leaf, Column):
            return self._column(leaf, hole.way)
        if isinstance(leaf, Text):
            return array_piece(self._text(leaf), hole.way, self._rules)
        places = records()
        values = computed(leaf, columns, places)
        return self._spread(array_piece(values, hole.way, self._rules), places)

    def _image(self, leaf: ImageColumn) -> Fragment:
        try:
            return self._image_piece(leaf)
        except NullError as error:
            raise ConversionError(*null_is_no_value(error.schema, leaf.column.source_name)) from None

    def _image_piece(self, leaf: ImageColumn) -> Fragment:
        plan = leaf.column
        if takes_arrow(plan.schema, arrow_type_of(plan.schema)):
            return array_piece(image_values(leaf, self._columns), plan.schema, self._rules)
        texts = self._columns.texts(leaf)
        column = texts.texts
        if plan.shape is not None and not plan.conversion.by_value:
            column = plan.shape.column(column)
        fragment, lost = column_fragment(plan, column, texts.unavailable)
        if lost:
            self._columns.lost(plan, lost)
        return json_piece(fragment, plan.schema, self._rules)

    def _column(self, leaf: Column, schema: LogicalType) -> Fragment | bytes:
        values = self._columns.values(leaf)
        if isinstance(values, Same):
            return writer(schema, self._rules)(values.value)
        if isinstance(values, Written):
            return json_piece(values.json, schema, self._rules)
        if leaf.by in (CHANGE, RECORD):
            return array_piece(values, schema, self._rules)
        kept, key = self._columns.kept, ("avro", leaf.name, schema.connect, branches(schema))
        if key not in kept:
            kept[key] = array_piece(values, schema, self._rules)
        found: Fragment = kept[key]
        return found

    def _text(self, leaf: Text) -> pa.Array:
        """A text of several parts for each record, put together as records are."""
        programs = Programs()
        programs.begin()
        for part in leaf.parts:
            if isinstance(part, str):
                programs.literal(part.encode())
                continue
            found = self._inner(part)
            if isinstance(found, bytes):
                programs.literal(found)
            else:
                programs.fragment(found, part.by)
        programs.end()
        index = self._columns.index
        return binary_array(*programs.run(np.zeros(index.shape[1], np.uint16), index)).cast(pa.string())

    def _inner(self, part: Column) -> Fragment | bytes:
        """What a column's values are within a text: numbers in digits, a null as the word."""
        values = self._columns.values(part)
        if isinstance(values, Same):
            return ("null" if values.value is None else str(values.value)).encode()
        if isinstance(values, Written):
            values = read_json(values.json, part.type)
        if pa.types.is_int64(values.type) and not values.null_count:
            return integers_fragment(values.to_numpy())
        return Fragment(*text_buffers(pc.fill_null(values.cast(pa.string()), "null")))

    def _prefixes(self, topic: Computed, schema: tuple[str, str | None], places: npt.NDArray[np.int32]) -> Fragment:
        """What names the schema, for records whose topic is computed: it may be another for each topic."""
        topics = pc.dictionary_encode(computed(topic, self._columns, places))
        known = [prefix(self._options.registry, name, *schema) for name in topics.dictionary.to_pylist()]
        parts = pa.array(known, pa.binary()).take(topics.indices)
        return self._spread(Fragment(*text_buffers(parts)), places)

    def _spread(self, piece: Fragment, places: npt.NDArray[np.int32]) -> Fragment:
        """Pieces of these records as a fragment by record, which is empty for the others."""
        count = len(places)
        parts = binary_array(piece.data, piece.offsets)
        assert len(parts) == count
        return Fragment(*text_buffers(pc.fill_null(spread(parts, places, self._columns.index.shape[1]), b"")))


CONFLUENT = Avro("confluent")
APICURIO = Avro("apicurio")
