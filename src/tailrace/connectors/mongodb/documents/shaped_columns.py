"""Columns of documents by their shapes: the shapes of an image, and the values at a leaf, as Arrow arrays. Worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.connectors.mongodb.documents.normal import normal
from tailrace.connectors.mongodb.documents.shapes import BOOLEAN, BYTES, DOUBLE, REGEX, STRING, mixed, shown_name
from tailrace.connectors.mongodb.documents.tree import (
    ArrayItems,
    Branch,
    Code,
    DocumentStyle,
    LeafColumn,
    Scalar,
    Tree,
    leaves_of,
    tree_of,
)
from tailrace.connectors.mongodb.values import fields, shape_kernels, text_kernels
from tailrace.connectors.mongodb.values.extended_json import json_texts
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.connectors.mongodb.values.indentation import indented
from tailrace.connectors.mongodb.values.json_forms import CANONICAL, JsonForm
from tailrace.connectors.mongodb.values.shape_kernels import WalkRules
from tailrace.connectors.mongodb.values.text_kernels import OPTIONS, PATTERN, WHOLE
from tailrace.errors import ConversionError
from tailrace.kernels.buffers import readonly
from tailrace.values.arrow import arrow_type_of

_SIZED = (fields.DOCUMENT, fields.ARRAY, fields.SCOPED_CODE)
_MOST = 2**31 - 1
_TEXTS = (fields.STRING, fields.OBJECT_ID, fields.DECIMAL, fields.CODE)
_ALLOWED = {
    "boolean": (fields.BOOLEAN,), "int32": (fields.INT32,), "double": (fields.DOUBLE,), "bytes": (fields.BINARY,),
    "string": (*_TEXTS, fields.SCOPED_CODE),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Values of a block in a buffer, one for each change: their places and types. The type of a missing value is
    ABSENT."""

    data: Bytes
    places: Int64s
    kinds: Bytes


@dataclass(frozen=True, slots=True)
class ImageRules:
    """The rules to read the values of an image.

    `form` is the form of their text in events. `is_patch` is True if the top-level names are operators, `turned` if
    UUIDs have Java's old byte order, `is_key` for keys.
    """

    form: JsonForm
    narrow: bool = False
    is_patch: bool = False
    turned: bool = False
    is_key: bool = False


class ShapedColumn:
    """The values of an image in a block, by their shapes. The constructor and `column` raise ConversionError and
    DecodeError."""

    def __init__(self, source: ValueSource, rules: ImageRules, manner: DocumentStyle) -> None:
        self._rules, self._manner = rules, manner
        self._walk = _walk_of(source, rules, manner)
        known = pc.dictionary_encode(self._walk.shapes)
        self._codes = known.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        # for each leaf, by its key: the shapes that have it, with its number in each
        self._leaves: dict[str, list[tuple[int, int]]] = {}
        for number, shape in enumerate(known.dictionary.to_pylist()):
            for key, leaf in leaves_of(shape, manner.spread):
                self._leaves.setdefault(key, []).append((number, leaf))
        self._count = len(known.dictionary)

    @property
    def shapes(self) -> pa.Array:
        """The shape of each value; null if there is none."""
        return self._walk.shapes

    def column(self, leaf: LeafColumn) -> pa.Array:
        """Return the values at a leaf; empty values or zeros for documents without it."""
        walk, tree = self._walk, leaf.tree
        places = self._places(tree.key)
        maker = _Maker(walk.data, self._rules, self._manner)
        if isinstance(tree, Scalar) and tree.kind == shape_kernels.WHOLE:
            return maker.written(places)
        if isinstance(tree, Scalar):
            kinds = np.full(len(places), tree.kind, np.uint8)
            return maker.scalars(places, kinds, leaf.type, leaf.part, masked=False)
        if isinstance(tree, Code):
            return maker.texts(places, np.full(len(places), fields.SCOPED_CODE, np.uint8), WHOLE, pa.string())
        return maker.lists(places, leaf.type)

    def _places(self, key: str) -> Int64s:
        """Return the places of the values at a leaf, -1 for documents without it."""
        walk, known = self._walk, self._leaves.get(key, [])
        numbers = np.full(self._count + 1, -1, np.int64)
        if known:
            pairs = np.array(known, np.int64)
            numbers[pairs[:, 0]] = pairs[:, 1]
        number = numbers[self._codes]
        if len(number) and number.min() >= 0:
            found: Int64s = walk.leaves[walk.starts + number]
            return found
        places = np.full(len(number), -1, np.int64)
        which = np.flatnonzero(number >= 0)
        places[which] = walk.leaves[walk.starts[which] + number[which]]
        return places


@dataclass(frozen=True, slots=True)
class _Walk:
    """The result of a walk over values: their shapes, and the places of leaves.

    The first leaf of row r is leaves[starts[r]].
    """

    data: Bytes
    shapes: pa.Array
    leaves: Int64s
    starts: Int64s


def _name(text: str) -> Bytes:
    """Return a name in the form that kernels take."""
    return readonly(np.array(list(text.encode()), np.uint8))


def _walk_of(source: ValueSource, rules: ImageRules, manner: DocumentStyle) -> _Walk:
    """Walk over values. Values that the kernel cannot read from BSON are normalised through their text."""
    reading = WalkRules(
        rules.narrow,
        manner.spread,
        True,
        rules.is_patch,
        rules.is_key and not manner.today,
        _name(manner.whole),
    )
    kinds = source.kinds
    left = np.zeros(len(kinds), np.uint8)
    if rules.is_key and not manner.today:
        # keys of the 1.1 format have special forms for all other types
        simple = (*_TEXTS[:3], fields.INT32, fields.INT64, fields.BOOLEAN, fields.NULL, fields.DATE, fields.ABSENT)
        left[~np.isin(kinds, simple)] = 1
    walk = _walked(source, reading, left)
    if not left.any():
        return walk
    return _with_plain(source, rules, manner, walk, left)


def _with_plain(source: ValueSource, rules: ImageRules, manner: DocumentStyle, walk: _Walk, left: Bytes) -> _Walk:
    """Repeat the walk for the marked values, normalised through their text."""
    content = source.data.tobytes()
    size = len(content)
    parts, places, kinds = [content], source.places.copy(), source.kinds.copy()
    for row in np.flatnonzero(left).tolist():
        kind, found = normal(content, int(kinds[row]), int(places[row]), rules.form)
        places[row], kinds[row] = size, kind
        parts.append(found)
        size += len(found)
    data = readonly(np.frombuffer(b"".join(parts) + b"\0", np.uint8))
    # normalised values are walked separately, as they must not be normalised again
    plain = left.astype(np.bool_)
    twice = np.zeros(len(kinds), np.uint8)
    reading = WalkRules(False, manner.spread, False, False, False, _name(manner.whole))
    others = _walked(ValueSource(data, places, np.where(plain, kinds, 0)), reading, twice)
    if twice.any():
        raise ConversionError("A document is nested too deeply, or too wide.")
    shapes = pc.if_else(pa.array(plain), others.shapes, walk.shapes)
    leaves = np.concatenate((walk.leaves, others.leaves))
    return _Walk(data, shapes, leaves, np.where(plain, others.starts + len(walk.leaves), walk.starts))


def _walked(source: ValueSource, reading: WalkRules, left: Bytes) -> _Walk:
    count = len(source.places)
    kinds = np.ascontiguousarray(np.where(left, 0, source.kinds), np.uint8)
    data = readonly(source.data.view())
    places = np.ascontiguousarray(source.places, np.int64)
    sizes = fields.sizes_of(data, np.where(np.isin(kinds, _SIZED), places, -1))
    total = int(np.clip(sizes, 0, len(data)).sum()) + 8 * count
    out, offsets = np.empty(total, np.uint8), np.zeros(count + 1, np.int32)
    leaves, starts = np.empty(total // 2 + count + 1, np.int64), np.zeros(count, np.int64)
    found = int(shape_kernels.tell(data, places, kinds, reading, out, offsets, leaves, starts, left))
    absent = pa.array(np.diff(offsets) == 0)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    shapes = pc.if_else(absent, pa.scalar(None, pa.binary()), pa.Array.from_buffers(pa.binary(), count, buffers))
    return _Walk(data, shapes, leaves[:found], starts)


@dataclass(frozen=True, slots=True)
class _Group:
    """The values of one shape: their rows, the index of the first leaf of each row, and the subtree to read."""

    rows: npt.NDArray[np.int64]
    starts: Int64s
    tree: Tree


class _Maker:
    """Makes arrays of the values at places of a buffer. The place of a missing value is -1."""

    def __init__(self, data: Bytes, rules: ImageRules, manner: DocumentStyle) -> None:
        self._data, self._rules, self._manner = data, rules, manner

    def scalars(self, places: Int64s, kinds: Bytes, kind: LogicalType, part: int, masked: bool) -> pa.Array:
        """Return values that are neither documents nor arrays. With `masked` missing values are null."""
        missing = (places < 0) if masked else None
        if kind.connect in ("int32", "int64"):
            numbers = np.empty(len(places), np.int64)
            text_kernels.put_numbers(self._data, places, kinds, numbers)
            return pa.array(numbers, mask=missing)
        if kind == DOUBLE:
            raw = np.empty(8 * len(places), np.uint8)
            text_kernels.put_doubles(self._data, places, raw)
            # from_pandas would turn NaN into null
            return pa.array(raw.view("<f8"), pa.float64(), mask=missing, from_pandas=False)
        if kind == BOOLEAN:
            flags = np.empty(len(places), np.uint8)
            text_kernels.put_flags(self._data, places, flags)
            return pa.array(flags.astype(np.bool_), mask=missing)
        found = self.texts(places, kinds, part, pa.binary() if kind == BYTES else pa.string())
        return found if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, found.type), found)

    def texts(self, places: Int64s, kinds: Bytes, part: int, of: pa.DataType) -> pa.Array:
        """Return texts, or bytes; empty if missing."""
        count = len(places)
        offsets = np.zeros(count + 1, np.int32)
        total = int(text_kernels.text_sizes(self._data, places, kinds, part, offsets))
        if total > _MOST:
            raise ConversionError("The texts of one block of documents exceed 2 GiB.")
        out = np.empty(max(total, 1), np.uint8)
        text_kernels.put_texts(self._data, places, kinds, part, self._rules.turned, offsets, out)
        return pa.Array.from_buffers(of, count, [None, pa.py_buffer(offsets), pa.py_buffer(out)])

    def written(self, places: Int64s) -> pa.Array:
        """Return documents as indented extended JSON; an arbitrary text if missing."""
        kinds = np.where(places < 0, fields.NULL, fields.DOCUMENT).astype(np.uint8)
        json = json_texts(self._data, np.maximum(places, 0), kinds, CANONICAL, within_string=False)
        data, offsets = indented(json.data, json.offsets)
        return pa.Array.from_buffers(pa.string(), len(places), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def lists(self, places: Int64s, kind: LogicalType) -> pa.Array:
        """Return arrays; null if missing."""
        assert kind.items is not None
        offsets = np.zeros(len(places) + 1, np.int32)
        none = np.empty(0, np.int64), np.empty(0, np.uint8)
        narrow = self._rules.narrow
        count = int(shape_kernels.element_places(self._data, places, offsets, *none, narrow))
        found, kinds = np.full(count, -1, np.int64), np.zeros(count, np.uint8)
        if count:
            shape_kernels.element_places(self._data, places, offsets, found, kinds, narrow)
        if not self._manner.today and count:
            offsets, found, kinds = _without_empty(offsets, found, kinds)
        values = self._elements(np.where(kinds == fields.NULL, -1, found), kinds, kind.items)
        missing = places < 0
        bounds = pa.array(offsets, mask=np.append(missing, False) if missing.any() else None)
        return pa.ListArray.from_arrays(bounds, values, type=arrow_type_of(kind))

    def _elements(self, places: Int64s, kinds: Bytes, kind: LogicalType) -> pa.Array:
        """Return the elements of arrays, in the schema `kind`."""
        if kind.connect == "array":
            self._demand(kinds, (fields.ARRAY,))
            return self.lists(places, kind)
        if kind.connect != "struct":
            return self._values(places, kinds, kind)
        walk = _walked(
            ValueSource(self._data, places, np.where(places < 0, 0, kinds).astype(np.uint8)),
            WalkRules(self._rules.narrow, False, False, False, False, _name("")),
            np.zeros(len(places), np.uint8),
        )
        known = pc.dictionary_encode(walk.shapes)
        codes = known.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        groups = []
        for number, shape in enumerate(known.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == number)
            groups.append(_Group(rows, walk.starts[rows], tree_of(shape, False)))
        return self._structs([group for group in groups if group.tree != Scalar(fields.NULL, 0)], walk.leaves,
                             len(places), kind)  # fmt: skip

    def _values(self, places: Int64s, kinds: Bytes, kind: LogicalType) -> pa.Array:
        allowed = (fields.INT64,) if kind.connect == "int64" and kind.name is None else (fields.DATE, fields.TIMESTAMP)
        self._demand(np.where(places < 0, fields.NULL, kinds), _ALLOWED.get(kind.connect, allowed))
        return self.scalars(places, kinds, kind, WHOLE, masked=True).cast(arrow_type_of(kind))

    def _demand(self, kinds: npt.NDArray[np.uint8], allowed: Sequence[int]) -> None:
        if not np.isin(kinds, (*allowed, fields.NULL, fields.ABSENT)).all():
            raise mixed("of arrays")

    def _structs(self, groups: Sequence[_Group], leaves: Int64s, count: int, kind: LogicalType) -> pa.Array:
        """Return structs of the schema `kind` from values of several shapes; null in all other rows."""
        missing = np.ones(count, np.bool_)
        for group in groups:
            missing[group.rows] = False
        if kind == REGEX:
            places, kinds = self._gathered(groups, leaves, count)
            arrays = [self.scalars(places, kinds, STRING, part, masked=True) for part in (PATTERN, OPTIONS)]
        else:
            arrays = [self._part(groups, leaves, count, part.name, part.type) for part in kind.fields]
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type_of(kind)), mask=pa.array(missing))

    def _part(self, groups: Sequence[_Group], leaves: Int64s, count: int, name: str, kind: LogicalType) -> pa.Array:
        """Return the values of the parts with this name, as an array of `count` rows."""
        inner = [
            _Group(group.rows, group.starts, found)
            for group in groups
            if (found := self._named(group.tree, name)) is not None
        ]
        if kind.connect == "struct":
            wanted = [group for group in inner if isinstance(group.tree, Branch | Code) or kind == REGEX]
            return self._structs(wanted, leaves, count, kind)
        places, kinds = self._gathered(inner, leaves, count)
        if kind.connect == "array":
            return self.lists(places, kind)
        return self._values(places, kinds, kind)

    def _named(self, tree: Tree, name: str) -> Tree | None:
        if isinstance(tree, Code):
            return tree.scope if name == "scope" else Code(Branch(()), tree.leaf) if name == "code" else None
        assert isinstance(tree, Branch)
        return {shown_name(part, self._manner): value for part, value in tree.parts}.get(name)

    def _gathered(self, groups: Sequence[_Group], leaves: Int64s, count: int) -> tuple[Int64s, Bytes]:
        """Return the places and types of the values at the leaves of groups; -1 if missing or null."""
        places, kinds = np.full(count, -1, np.int64), np.zeros(count, np.uint8)
        for group in groups:
            tree = group.tree
            if isinstance(tree, Branch) or tree == Scalar(fields.NULL, getattr(tree, "leaf", 0)):
                continue
            places[group.rows] = leaves[group.starts + tree.leaf]
            if isinstance(tree, Scalar):
                kinds[group.rows] = tree.kind
            else:
                kinds[group.rows] = fields.ARRAY if isinstance(tree, ArrayItems) else fields.SCOPED_CODE
        return places, kinds


def _without_empty(
    offsets: npt.NDArray[np.int32], found: Int64s, kinds: Bytes
) -> tuple[npt.NDArray[np.int32], Int64s, Bytes]:
    """Remove the elements of arrays that hold only nulls, as the 1.1 format does."""
    sizes = np.diff(offsets)
    row = np.repeat(np.arange(len(sizes)), sizes)
    filled = np.zeros(len(sizes), np.bool_)
    filled[row[kinds != fields.NULL]] = True
    kept = filled[row]
    bounds = np.zeros(len(offsets), np.int32)
    np.cumsum(np.where(filled, sizes, 0), out=bounds[1:])
    return bounds, found[kept], kinds[kept]
