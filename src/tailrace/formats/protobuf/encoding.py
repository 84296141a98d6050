"""The encoding Protobuf: a layout becomes literals with fields between them, after the id of its schema. Worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tailrace.errors import ConfigError
from tailrace.formats.assembly import Assembly, Pieces, ValueHole, add
from tailrace.formats.base import EncodingChoice
from tailrace.formats.binary import BinaryBlock, ByTopic, ValueWriters
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.protobuf.schema import ProtobufRules, file_of
from tailrace.formats.protobuf.values import (
    RECORD_ITSELF,
    SIZED,
    FieldPlace,
    array_piece,
    head_piece,
    json_piece,
    place_of,
    sized,
    tag,
    writer,
    zigzag,
)
from tailrace.formats.registry.options import Registry, confluent
from tailrace.formats.registry.schema_ids import prefix
from tailrace.kernels.programs import NO_PROGRAM, Fragment, Programs
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

# --- the options of the converter -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """The options of a Protobuf converter: the registry, and how messages are made.

    `nulls_stay`: a null is left out even if the schema has a default.
    """

    registry: Registry
    rules: ProtobufRules
    nulls_stay: bool


def options_of(part: str, options: Mapping[str, str]) -> tuple[ProtobufOptions, OptionReader]:
    """Return the options of the converter of `part`, the keys or the values. Raises ConfigError for unsupported
    options."""
    given = OptionReader(f"{part}.converter.", options)
    if given.names("apicurio.registry."):
        raise ConfigError(
            f"{part}.converter has options of Apicurio's registry, and its converter to Protobuf is not supported.",
            "Apicurio's registry has Confluent's interface too: name it in schema.registry.url "
            "(…/apis/ccompat/v7), with io.confluent.connect.protobuf.ProtobufConverter.",
        )
    registry = confluent(part, given)
    if not given.boolean("skip.known.types", True):
        raise ConfigError(
            f"{part}.converter.skip.known.types = false is not supported: schemas are registered without references.",
            "Leave it out: registries know the types that are imported.",
        )
    if given.text("schema.format"):
        raise ConfigError(
            f"{part}.converter.schema.format is not supported: schemas are registered as text.", "Leave it out."
        )
    # these matter only for reading, and for schema parameters that these records do not have
    given.idle("enhanced.protobuf.schema.support", "generalized.sum.type.support", "generate.index.for.unions",
               "generate.struct.for.nulls", "flatten.unions", "int.for.enums", "optional.for.proto2",
               "wrapper.for.raw.primitives", "reference.subject.name.strategy", "reference.lookup.only",
               "schemas.enable")  # fmt: skip
    rules = ProtobufRules(
        given.boolean("scrub.invalid.names", False),
        given.boolean("optional.for.nullables", False),
        given.boolean("wrapper.for.nullables", False),
    )
    return ProtobufOptions(registry, rules, given.boolean("ignore.default.for.nullables", False)), given


# --- the encoding -----------------------------------------------------------------------------------------------------


_NULL = b"\0"
"""The encoding of a whole value that is null. No other value equals it, since fields have at least two bytes."""


@dataclass(frozen=True, slots=True)
class InnerStruct:
    """A struct within a record, as the field with this number."""

    parts: Assembly
    number: int


@dataclass(frozen=True, slots=True)
class Protobuf:
    """See formats.base.Encoding. It needs its converter's options."""

    options: ProtobufOptions | None = None

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        found, given = options_of(part, options)
        return given.taken(Protobuf(found), keeps_nulls=found.nulls_stay)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Assembly | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        if self.options is None:
            raise ConfigError(
                "Protobuf needs the options of its converter.", "Name it in key.converter or value.converter."
            )
        registry, rules = self.options.registry, self.options.rules
        file = file_of(layout.type, rules)
        place = _places(file.place)

        def head(topic: str) -> bytes:
            return prefix(registry, topic, file.text, file.name, "PROTOBUF") + place

        nullable = layout.type.optional and not isinstance(layout, Struct)
        null_size = registry.width + 1 + len(place) + len(_NULL) if nullable else 0
        parts = _record(layout, rules)
        if isinstance(record.topic, str):
            return Assembly.of(head(record.topic), parts, null_size)
        return Assembly.of(b"", (ValueHole(record.topic, RECORD, ByTopic(head), None), *parts), null_size)

    def block(self, columns: Columns) -> _ProtobufBlock:
        assert self.options is not None
        return _ProtobufBlock(columns, self.options.rules)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        made = self.compile(layout, schemas, record)
        return None if made is None else made.text


def _places(place: int) -> bytes:
    """Return a message's place in its file: the number of indexes, and the indexes; a single byte for the first
    message."""
    return zigzag(1) + zigzag(place) if place else zigzag(0)


def _record(layout: Node, rules: ProtobufRules) -> Iterator[bytes | ValueHole]:
    """Yield the fields of a whole key or value; any value but a struct is the field of a message of one field."""
    match layout:
        case Struct():
            yield from _fields(layout, rules)
        case _ if layout.type.connect == "struct":
            yield from _field(layout, FieldPlace(RECORD_ITSELF, layout.type, null=_NULL), rules)
        case _:
            place = replace(place_of(1, layout.type, ProtobufRules()), null=_NULL)
            yield from _field(layout, place, rules)


def _fields(struct: Struct, rules: ProtobufRules) -> Iterator[bytes | ValueHole]:
    for number, member in enumerate(struct.members, 1):
        yield from _field(member.node, place_of(number, member.node.type, rules), rules)


def _field(node: Node, place: FieldPlace, rules: ProtobufRules) -> Iterator[bytes | ValueHole]:
    match node:
        case Constant():
            yield writer(place, rules)(node.value)
        case Struct():
            inner = Assembly.of(b"", _fields(node, rules))
            if inner.steps:
                yield ValueHole(InnerStruct(inner, place.number), RECORD, None, None)
            else:
                yield tag(place.number, SIZED) + sized(inner.text)
        case ImageColumn():
            # one column may occur twice, in different fields
            column = (node.image, node.column.index, node.apart, node.column.null)
            yield ValueHole(node, CHANGE, place, (*column, *_key("", place)))
        case BlockColumn():
            yield ValueHole(node, node.by, place, _key(node.name, place))
        case Text() | ComputedColumn():
            yield ValueHole(node, RECORD, place, None)


def _key(name: str, place: FieldPlace) -> tuple[Hashable, ...]:
    """Return the key that caches the pieces of a column."""
    kind = place.kind
    return "protobuf", name, kind.connect, kind.name, place.number, place.keeps, place.wrapped, place.null


class _ProtobufBlock(BinaryBlock):
    """See formats.base.Block."""

    def __init__(self, columns: Columns, rules: ProtobufRules) -> None:
        array, json = partial(array_piece, rules=rules), partial(json_piece, rules=rules)
        super().__init__(columns, ValueWriters(array, json, partial(writer, rules=rules)))

    def kept_key(self, leaf: BlockColumn, way: FieldPlace) -> Hashable:
        return _key(leaf.name, way)

    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes | Pieces:
        if isinstance(hole.leaf, InnerStruct):
            return self._inner_message(hole.leaf, records)
        return super().filled(hole, records)

    def _inner_message(self, inner: InnerStruct, records: Callable[[], npt.NDArray[np.int32]]) -> Pieces:
        """Return the fields of a struct after its size, which differs from record to record."""
        pieces = self.pieces(inner.parts, records)
        index = self._columns.index
        numbers = np.full(index.shape[1], NO_PROGRAM, np.uint16)
        numbers[records()] = 0
        programs = Programs()
        programs.begin()
        add(programs, pieces)
        programs.end()
        head = head_piece(programs.sizes(numbers, index), numbers == 0, inner.number)
        return [(head, RECORD), *pieces]


CONFLUENT = Protobuf()
