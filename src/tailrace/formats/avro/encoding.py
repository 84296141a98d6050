"""The encoding Avro: a layout becomes literals with leaves between them, after the id of its schema. Worker."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.columns.logical import LogicalType
from tailrace.errors import ConfigError, ConversionError
from tailrace.formats.assembly import Assembly, ValueHole
from tailrace.formats.avro.schema import AvroRules, full_name, schema_text
from tailrace.formats.avro.values import NullError, array_piece, branches, json_piece, null_is_no_value, writer
from tailrace.formats.base import EncodingChoice
from tailrace.formats.binary import BinaryBlock, ByTopic, ValueWriters
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.registry.options import Registry, apicurio, confluent, refuse_headers
from tailrace.formats.registry.schema_ids import id_headers, prefix, schema_id
from tailrace.kernels.programs import Fragment
from tailrace.records.columns import Columns
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

# --- the options of the converters ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """The options of an Avro converter: the registry, and how schemas are made.

    `nulls_stay`: a null is written as null even if the schema has a default. `plain_records`: the schema of an optional
    struct at the top is its record, not a union.
    """

    registry: Registry
    rules: AvroRules
    nulls_stay: bool
    plain_records: bool


def options_of(kind: str, part: str, options: Mapping[str, str]) -> tuple[AvroOptions, OptionReader]:
    """Return the options of a converter of vendor `kind` (Confluent or Apicurio) for `part`, the keys or the values.

    Raises ConfigError for unsupported options.
    """
    given = OptionReader(f"{part}.converter.", options)
    registry = confluent(part, given) if kind == "confluent" else apicurio(part, given)
    for name in ("generalized.sum.type.support", "schema.backup.enabled"):
        given.refuse_true(name, "it makes other schemas")
    if kind == "apicurio":
        given.one_of("apicurio.registry.avro.encoding", ("", "BINARY"), "")
    # these matter only for reading, and for schema parameters that these records do not have
    given.idle("enhanced.avro.schema.support", "flatten.unions", "flatten.singleton.unions", "schemas.enable")
    rules = AvroRules(
        given.boolean("connect.meta.data", True),
        given.boolean("scrub.invalid.names", False),
        given.boolean("allow.optional.map.keys", False),
        given.boolean("discard.type.doc.default", False),
    )
    nulls_stay = given.boolean("ignore.default.for.nullables", False)
    return AvroOptions(registry, rules, nulls_stay, kind == "apicurio"), given


# --- the encoding -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Avro:
    """See formats.base.Encoding. It needs its converter's options; `kind` is the converter's vendor."""

    kind: str
    options: AvroOptions | None = None

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        found, given = options_of(self.kind, part, options)
        taken = given.taken(Avro(self.kind, found), keeps_nulls=found.nulls_stay)
        return replace(taken, in_headers=found.registry.in_headers)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Assembly | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        options = self._options
        schema, text, name = self._schema(layout)
        parts = self._parts(layout, schema)
        # a null leaf is a null record; it has only the byte of its branch
        nullable = schema.optional and not isinstance(layout, Struct)
        null_size = options.registry.head + 1 if nullable else 0
        if not isinstance(record.topic, str) or (nullable and not isinstance(layout, Constant)):
            refuse_headers(options.registry, "where the topic, or whether there is a value, depends on values")
        if isinstance(record.topic, str):
            return Assembly.of(prefix(options.registry, record.topic, text, name), parts, null_size)
        head = ByTopic(lambda topic: prefix(options.registry, topic, text, name))
        return Assembly.of(b"", (ValueHole(record.topic, RECORD, head, None), *parts), null_size)

    def headers(self, layout: Node, record: RecordLayout) -> tuple[tuple[str, bytes], ...]:
        """See formats.base.WithHeaders: the schema's ids, if they are not in the bytes."""
        registry = self._options.registry
        if not registry.in_headers or (isinstance(layout, Constant) and layout.value is None):
            return ()
        assert isinstance(record.topic, str)
        _, text, name = self._schema(layout)
        return id_headers(registry, record.topic, text, name)

    def block(self, columns: Columns) -> _AvroBlock:
        return _AvroBlock(columns, self._options.rules)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        made = self.compile(layout, schemas, record)
        return None if made is None else made.text

    def schema_id(self, layout: Node, record: RecordLayout) -> int:
        """Return the id of a layout's schema, registering it if the options say so. The topic must be a constant."""
        assert isinstance(record.topic, str)
        _, text, name = self._schema(layout)
        return schema_id(self._options.registry, record.topic, text, name)

    def _schema(self, layout: Node) -> tuple[LogicalType, str, str | None]:
        """Return the schema of a layout's records, its text, and its name if it is a record."""
        schema, rules = layout.type, self._options.rules
        if self._options.plain_records and schema.connect == "struct":
            schema = schema.with_optional(False)
        return schema, schema_text(schema, rules), full_name(schema, rules)

    @property
    def _options(self) -> AvroOptions:
        if self.options is None:
            raise ConfigError(
                "Avro needs the options of its converter.", "Name it in key.converter or value.converter."
            )
        return self.options

    def _parts(self, node: Node, schema: LogicalType) -> Iterator[bytes | ValueHole]:
        """Yield a layout in Avro, by its schema: literals, and the holes between them."""
        match node:
            case Constant():
                yield writer(schema, self._options.rules)(node.value)
            case Struct():
                mark, _ = branches(schema)
                yield bytes([mark]) if mark >= 0 else b""
                for member in node.members:
                    yield from self._parts(member.node, member.node.type)
            case ImageColumn():
                # one column may occur twice, in an optional field and in a required one
                place = (node.image, node.column.index, node.apart, node.column.null)
                yield ValueHole(node, CHANGE, schema, ("avro", *place, schema.connect, schema.name, branches(schema)))
            case BlockColumn():
                yield ValueHole(node, node.by, schema, ("avro", node.name, schema.connect, branches(schema)))
            case Text():
                yield ValueHole(node, RECORD, schema, None)
            case ComputedColumn():
                yield ValueHole(node, RECORD, schema, None)


class _AvroBlock(BinaryBlock):
    """See formats.base.Block."""

    def __init__(self, columns: Columns, rules: AvroRules) -> None:
        array, json = partial(array_piece, rules=rules), partial(json_piece, rules=rules)
        super().__init__(columns, ValueWriters(array, json, partial(writer, rules=rules)))

    def kept_key(self, leaf: BlockColumn, way: LogicalType) -> Hashable:
        return "avro", leaf.name, way.connect, branches(way)

    def image(self, leaf: ImageColumn, way: LogicalType) -> Fragment:
        try:
            return super().image(leaf, way)
        except NullError as error:
            raise ConversionError(*null_is_no_value(error.schema, leaf.column.source_name)) from None


CONFLUENT = Avro("confluent")
APICURIO = Avro("apicurio")
