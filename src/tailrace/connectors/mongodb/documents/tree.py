"""Shapes of documents as trees, and the columns that they locate. Pure data, any process.

A shape is the bytes that `values.shape_kernels` writes for a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tailrace.columns.logical import BYTES, LogicalType
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.text_kernels import WHOLE
from tailrace.records.layout import BlockColumn


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is neither document nor array, with the number `leaf`.

    Leaves of different shapes with the same `key` share one column, for example the third int32 of every document.
    """

    kind: int
    leaf: int
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """A document, or an array that is shown as one: its parts by name."""

    parts: tuple[tuple[str, Tree], ...]
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class ArrayItems:
    """An array: the distinct shapes of its elements, in order of appearance; `key` is as in Scalar."""

    elements: tuple[Tree, ...]
    leaf: int
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Code with a scope; `key` is as in Scalar."""

    scope: Branch
    leaf: int
    key: str = field(default="", compare=False)


Tree = Scalar | Branch | ArrayItems | Code


@dataclass(frozen=True, slots=True)
class DocumentStyle:
    """The style in which documents are shown: `spread` turns arrays into structs, `sanitize` makes names valid for
    Avro.

    `today` is for Debezium 3: structs of empty documents, and structs in arrays of arrays, have no name, and arrays
    keep their nulls. A document in the top-level field `whole` becomes a text.
    """

    spread: bool = False
    sanitize: bool = False
    today: bool = True
    whole: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeColumn(BlockColumn):
    """The shapes of an image; null if there is none."""

    image: str
    manner: DocumentStyle


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafColumn(BlockColumn):
    """The values at leaves of one key, in documents of all shapes that have such a leaf; arbitrary for other documents.

    `part` is the part of a value that is shown, `tree` the kind of value at the leaf.
    """

    image: str
    manner: DocumentStyle
    tree: Scalar | ArrayItems | Code
    part: int = WHOLE


def shape_column(image: str, manner: DocumentStyle) -> ShapeColumn:
    """Return the column of an image's shapes."""
    name = f"shape of {image} {manner.spread} {manner.whole}"
    return ShapeColumn(name, BYTES.with_optional(True), image=image, manner=manner)


@dataclass(frozen=True, slots=True)
class Leaves:
    """Makes the columns of an image's leaves."""

    image: str
    manner: DocumentStyle

    def column(self, tree: Scalar | ArrayItems | Code, kind: LogicalType, part: int = WHOLE) -> LeafColumn:
        """Return the column of a leaf, in the schema `kind`."""
        name = f"{self.image} {part} {self.manner} {tree.key}"
        return LeafColumn(name, kind, image=self.image, manner=self.manner, tree=tree, part=part)


@lru_cache(maxsize=4096)
def leaves_of(shape: bytes, spread: bool) -> tuple[tuple[str, int], ...]:
    """Return the keys and numbers of a shape's leaves."""
    return tuple(_leaves(tree_of(shape, spread)))


def _leaves(tree: Tree) -> Iterator[tuple[str, int]]:
    if isinstance(tree, Branch):
        for _, part in tree.parts:
            yield from _leaves(part)
        return
    yield tree.key, tree.leaf
    if isinstance(tree, Code):
        yield from _leaves(tree.scope)


@lru_cache(maxsize=4096)
def tree_of(shape: bytes, spread: bool) -> Tree:
    """Return the tree of a shape; `spread` shows arrays as documents."""
    return _Reader(shape, spread).tree(shape[0])


class _Reader:
    """Reads a shape from its front."""

    def __init__(self, shape: bytes, spread: bool) -> None:
        self._shape, self._spread = shape, spread
        self._at, self._leaf = 1, 0
        self._keys: dict[str, int] = {}

    def tree(self, kind: int) -> Tree:
        if kind == fields.DOCUMENT:
            return Branch(tuple(self._named()))
        if kind == fields.SCOPED_CODE:
            leaf, key = self._next_leaf(), self._key("code")
            return Code(Branch(tuple(self._named())), leaf, key)
        if kind != fields.ARRAY:
            return Scalar(kind, self._next_leaf(), self._key(str(kind)))
        if self._spread:
            return Branch(tuple((f"_{number}", item) for number, item in enumerate(self._items())), is_array=True)
        leaf, begin = self._next_leaf(), self._at
        kept = self._leaf, self._keys
        elements = []
        for kind_of in self._kinds():
            # the leaves of each element are counted from 0
            self._leaf, self._keys = 0, {}
            elements.append(self.tree(kind_of))
        self._leaf, self._keys = kept
        return ArrayItems(tuple(elements), leaf, self._key(self._shape[begin : self._at].hex()))

    def _next_leaf(self) -> int:
        self._leaf += 1
        return self._leaf - 1

    def _key(self, kind: str) -> str:
        number = self._keys.get(kind, 0)
        self._keys[kind] = number + 1
        return f"{kind} {number}"

    def _kinds(self) -> Iterator[int]:
        """Yield the types of values up to the end of a document or an array."""
        while self._shape[self._at]:
            self._at += 1
            yield self._shape[self._at - 1]
        self._at += 1

    def _named(self) -> Iterator[tuple[str, Tree]]:
        for kind in self._kinds():
            end = self._shape.index(0, self._at)
            name = self._shape[self._at : end].decode()
            self._at = end + 1
            yield name, self.tree(kind)

    def _items(self) -> Iterator[Tree]:
        for kind in self._kinds():
            yield self.tree(kind)
