"""The encoding JSON: a layout is compiled to literals with leaves between them, and a block runs them. Worker.

Of each leaf that a block needs, one fragment is made (the JSON of all its values, one after another), and every
record is put together from literals and fragments in one pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.json_text import dumps, quoted, schema_text
from tailrace.assembly.programs import NO_PROGRAM, Fragment, Programs
from tailrace.buffers import binary_array
from tailrace.columns.logical import LogicalType
from tailrace.formats.arrow import computed
from tailrace.formats.json.pieces import inner_fragment, spread, values_fragment
from tailrace.records.columns import Columns, Same, Written
from tailrace.records.layout import (
    CHANGE,
    RECORD,
    Column,
    Computed,
    Constant,
    ImageColumn,
    Node,
    Struct,
    Text,
)
from tailrace.values.fragments import column_fragment


@dataclass(frozen=True, slots=True)
class _Hole:
    """The place of a leaf's value. `by` is what there is a value for, `inner` whether it is within a JSON string, `key`
    what its column differs from others in of the block; None where it is not shared."""

    leaf: ImageColumn | Column | Computed
    by: int
    inner: bool
    key: Hashable


@dataclass(frozen=True, slots=True)
class _Document:
    """A compiled layout: each hole with the literal before it, and the literal behind the last; `opening` is the
    record's schema, shared by all layouts that have it."""

    opening: bytes
    steps: tuple[tuple[bytes, _Hole], ...]
    closing: bytes
    size: int


class Json:
    """See formats.base.Encoding."""

    def compile(self, layout: Node, schemas: bool) -> _Document:
        steps: list[tuple[bytes, _Hole]] = []
        literal = b""
        for part in _parts(layout):
            if isinstance(part, bytes):
                literal += part
            else:
                steps.append((literal, part))
                literal = b""
        opening = _opening(layout.type) if schemas else b""
        closing = literal + b"}" if schemas else literal
        size = len(opening) + sum(len(text) for text, _ in steps) + len(closing)
        return _Document(opening, tuple(steps), closing, size)

    def block(self, columns: Columns) -> _Block:
        return _Block(columns)

    def one(self, layout: Node, schemas: bool) -> bytes:
        document = self.compile(layout, schemas)
        assert not document.steps
        return document.opening + document.closing


def _opening(schema: LogicalType) -> bytes:
    return _shared(f'{{"schema":{schema_text(schema)},"payload":'.encode())


@lru_cache(maxsize=8192)
def _shared(text: bytes) -> bytes:
    """The text itself: equal ones are kept once. A default may be a list, so schemas themselves are no keys."""
    return text


def _parts(node: Node) -> Iterator[bytes | _Hole]:
    """The JSON of a layout: literals, and the holes between them."""
    match node:
        case Constant():
            yield dumps(node.value).encode()
        case Text():
            yield b'"'
            for part in node.parts:
                yield (
                    quoted(part)[1:-1].encode()
                    if isinstance(part, str)
                    else _Hole(part, part.by, True, ("column", part.name, True))
                )
            yield b'"'
        case Struct():
            separator = "{"
            for member in node.members:
                yield f"{separator}{quoted(member.name)}:".encode()
                yield from _parts(member.node)
                separator = ","
            yield b"}" if node.members else b"{}"
        case ImageColumn():
            yield _Hole(node, CHANGE, False, (node.image, node.column.index, node.apart, node.column.null))
        case Column():
            yield _Hole(node, node.by, False, ("column", node.name, False))
        case Computed():
            yield _Hole(node, RECORD, False, None)


class _Block:
    """See formats.base.Block."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        # what is written for holes, and the fragments of arrays, which several columns may share
        self._found: dict[Hashable, Fragment | bytes] = {}
        self._made: dict[Hashable, tuple[pa.Array, Fragment]] = {}

    def encode(self, documents: Sequence[_Document | None], of: npt.NDArray[np.int32]) -> pa.Array:
        programs = Programs()
        numbers = np.full(len(documents), NO_PROGRAM, np.uint16)
        for place, document in enumerate(documents):
            if document is not None:
                numbers[place] = programs.begin()
                self._write(programs, document, place, of)
                programs.end()
        if (numbers == NO_PROGRAM).all():
            return pa.nulls(len(of), pa.binary())
        program = numbers[of]
        data, offsets = programs.run(program, self._columns.index)
        present = program != NO_PROGRAM
        return binary_array(data, offsets, None if present.all() else present)

    def _write(self, programs: Programs, document: _Document, place: int, of: npt.NDArray[np.int32]) -> None:
        programs.literal(document.opening)
        for literal, hole in document.steps:
            programs.literal(literal)
            found = self._found.get(hole.key)
            if found is None:
                found = self._filled(hole, place, of)
            if isinstance(found, bytes):
                programs.literal(found)
            else:
                programs.fragment(found, hole.by)
        programs.literal(document.closing)

    def _filled(self, hole: _Hole, place: int, of: npt.NDArray[np.int32]) -> Fragment | bytes:
        """The fragment of a hole's column, or the literal where all records have one value."""
        leaf = hole.leaf
        if not isinstance(leaf, Computed):
            found = self._column(leaf, hole.inner) if isinstance(leaf, Column) else self._image(leaf)
            self._found[hole.key] = found
            return found
        records = np.flatnonzero(of == place).astype(np.int32)
        return values_fragment(spread(computed(leaf, self._columns, records, as_shown=True), records, len(of)))

    def _image(self, leaf: ImageColumn) -> Fragment:
        plan, texts = leaf.column, self._columns.texts(leaf)
        column = texts.texts
        if plan.shape is not None and not plan.conversion.by_value:
            column = plan.shape.column(column)
        fragment, lost = column_fragment(plan, column, texts.unavailable)
        if lost:
            self._columns.lost(plan, lost)
        return fragment

    def _column(self, leaf: Column, inner: bool) -> Fragment | bytes:
        values = self._columns.values(leaf)
        if isinstance(values, Same):
            text = dumps(values.value)
            return (text[1:-1] if inner and isinstance(values.value, str) else text).encode()
        if isinstance(values, Written):
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
