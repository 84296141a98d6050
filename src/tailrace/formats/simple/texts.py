"""The encodings of text: StringConverter, and SimpleHeaderConverter for headers. Worker."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import LogicalType
from tailrace.errors import ConfigError, ConversionError
from tailrace.formats.arrow import image_values
from tailrace.formats.assembly import AssembledBlock, Assembly, ValueHole
from tailrace.formats.base import EncodingChoice
from tailrace.formats.json import JSON
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.simple.java import in_header, to_string
from tailrace.kernels.buffers import text_buffers
from tailrace.kernels.programs import Fragment
from tailrace.records.columns import Columns
from tailrace.records.layout import CHANGE, Constant, ImageColumn, Node, RecordLayout, Struct
from tailrace.records.nodes import with_defaults
from tailrace.values.arrow import arrow_type_of
from tailrace.values.fragments import integers_fragment

_WHOLE = ("int8", "int16", "int32", "int64")


@dataclass(frozen=True, slots=True)
class _TextDocument:
    """A compiled layout: `parts` if it consists of literals and columns, else a JSON document to show."""

    schema: LogicalType
    parts: Assembly | None
    json: Any
    size: int


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """See formats.base.Encoding. `shown` returns the text of a value; texts stay unchanged. `charset` encodes it.

    `bares`: the layout may show defaults for nulls, which are then shown as nulls.
    """

    shown: Callable[[Any, LogicalType], str]
    name: str
    charset: str = "utf-8"
    bares: bool = True

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        given.idle("schemas.enable")
        word = given.text("converter.encoding") or "UTF-8"
        try:
            charset = codecs.lookup(word).name
        except LookupError:
            raise ConfigError(f"{given.prefix}converter.encoding = {word} is not supported.", "Use UTF-8.") from None
        # Java's structs show the values, not the defaults that replace nulls. The converter of values decides what
        # layouts show, so a default in a value comes from a transform.
        return given.taken(replace(self, charset=charset, bares=part != "value"), keeps_nulls=True)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> _TextDocument | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        layout = self._bare(layout)
        found = list(self._parts(layout))
        if None not in found:
            parts = Assembly.of(b"", [part for part in found if part is not None])
            return _TextDocument(layout.type, parts, None, parts.size)
        document = JSON.compile(layout, False, record)
        return _TextDocument(layout.type, None, document, document.size)

    def block(self, columns: Columns) -> _TextBlock:
        return _TextBlock(columns, self)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        text = JSON.one(self._bare(layout), False, record)
        return self.written(text, layout.type)

    def written(self, text: bytes, schema: LogicalType) -> bytes | None:
        """Return the bytes of a value that is JSON; None for null."""
        value = json.loads(text)
        try:
            return None if value is None else self.shown(value, schema).encode(self.charset)
        except UnicodeEncodeError:
            raise ConversionError(
                f"A text has characters that {self.charset} does not have.", "Set converter.encoding to UTF-8."
            ) from None

    def _bare(self, layout: Node) -> Node:
        if self.shown is in_header and isinstance(layout, Struct):
            return _with_inner_defaults(layout)
        return _without_defaults(layout) if self.bares else layout

    def _parts(self, node: Node) -> Iterator[bytes | ValueHole | None]:
        """Yield the parts of a struct of integers and texts that are never null, like keys; None for anything else."""
        if not isinstance(node, Struct) or self.shown is not to_string or self.charset != "utf-8":
            yield None
            return
        separator = "Struct{"
        for member in node.members:
            yield f"{separator}{member.name}=".encode()
            separator = ","
            leaf, schema = member.node, member.node.type
            plain = schema.connect in _WHOLE or pa.types.is_string(arrow_type_of(schema))
            if isinstance(leaf, Constant) and schema.connect == "string" and leaf.value is not None:
                yield str(leaf.value).encode()
            elif isinstance(leaf, ImageColumn) and plain and not schema.optional and schema.name is None:
                yield ValueHole(
                    leaf, CHANGE, None, ("text", leaf.image, leaf.column.index, leaf.apart, leaf.column.null)
                )
            else:
                yield None
        yield b"}" if node.members else b"Struct{}"


class _TextBlock:
    """See formats.base.Block."""

    def __init__(self, columns: Columns, encoding: TextEncoding) -> None:
        self._encoding = encoding
        self._json, self._assembled = JSON.block(columns), _Assembled(columns)

    def encode(self, documents: Sequence[_TextDocument | None], of: npt.NDArray[np.int32]) -> pa.Array:
        parts = [None if document is None else document.parts for document in documents]
        if all(document is None or document.parts is not None for document in documents):
            return self._assembled.encode(parts, of)
        values = self._assembled.encode(parts, of).to_pylist()
        written = self._json.encode([None if document is None else document.json for document in documents], of)
        known: dict[tuple[int, bytes], bytes | None] = {}
        for row, text in enumerate(written.to_pylist()):
            if text is not None:
                key = int(of[row]), text
                if key not in known:
                    document = documents[key[0]]
                    assert document is not None
                    known[key] = self._encoding.written(text, document.schema)
                values[row] = known[key]
        return pa.array(values, pa.binary())


class _Assembled(AssembledBlock):
    """The documents that are assembled without looking at each value."""

    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes:
        values = image_values(hole.leaf, self._columns)
        if pa.types.is_integer(values.type):
            return integers_fragment(values.cast(pa.int64()).to_numpy())
        return Fragment(*text_buffers(values))


def _with_inner_defaults(struct: Struct) -> Struct:
    """Return the layout of a header with defaults for nulls in structs, where Kafka Connect reads them so."""
    members = (
        replace(
            part, node=_with_inner_defaults(part.node) if isinstance(part.node, Struct) else with_defaults(part.node)
        )
        for part in struct.members
    )
    return replace(struct, members=tuple(members))


def _without_defaults(node: Node) -> Node:
    """Return the layout with nulls unchanged: Java's structs show the values, not the defaults that replace nulls."""
    if isinstance(node, Struct):
        members = (replace(member, node=_without_defaults(member.node)) for member in node.members)
        return replace(node, members=tuple(members))
    if isinstance(node, ImageColumn) and node.column.schema.optional:
        return replace(node, column=replace(node.column, null=b"null"))
    return node


STRING = TextEncoding(to_string, "StringConverter")
SIMPLE = TextEncoding(in_header, "SimpleHeaderConverter")
