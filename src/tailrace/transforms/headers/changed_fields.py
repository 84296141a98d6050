"""ExtractChangedRecordState: puts the names of changed and of unchanged columns of an update into headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import STRING, LogicalType, array
from tailrace.records.layout import (
    ComputedColumn,
    Constant,
    Header,
    ImageColumn,
    Node,
    RecordLayout,
    ServerTexts,
    Struct,
)
from tailrace.records.nodes import as_optional, is_envelope, op_of, with_headers
from tailrace.records.transform import Shared
from tailrace.transforms.option_reader import OptionReader

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Names:
    """Lists per row the columns that differ (or do not) between the first half of the arrays and the second."""

    names: tuple[str, ...]
    changed: bool

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        count = len(self.names)
        if not count:
            raise AssertionError("a row has columns")
        flags = np.stack([differing(arrays[place], arrays[count + place]) for place in range(count)])
        packed = np.packbits(flags if self.changed else ~flags, axis=0).T
        rows, which = np.unique(packed, axis=0, return_inverse=True)
        named = [
            [name for name, flag in zip(self.names, np.unpackbits(row, count=count), strict=True) if flag]
            for row in rows
        ]
        return pa.array(named, pa.list_(pa.string())).take(pa.array(which.reshape(-1)))


def differing(one: pa.Array, other: pa.Array) -> Flags:
    """Return a mask of the rows in which two arrays differ, as Java compares: two nulls are equal, and two NaNs."""
    kind = one.type
    if pa.types.is_nested(kind):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([first != second for first, second in pairs], np.bool_)
    if pa.types.is_floating(kind):
        bits = pa.int32() if kind.bit_width == 32 else pa.int64()
        one, other = one.view(bits), other.view(bits)
    same = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    nulls = one.is_null().to_numpy(zero_copy_only=False) & other.is_null().to_numpy(zero_copy_only=False)
    found: Flags = ~(same | nulls)
    return found


def _compared(node: Node) -> Node | ServerTexts:
    """Return the node by which a column is compared: the server's texts, if events show these unchanged."""
    if isinstance(node, ImageColumn) and node.column.shape is None:
        return ServerTexts(node)
    return as_optional(node)


@dataclass(frozen=True, slots=True)
class ExtractChangedRecordState:
    """A records.transform.Transform. `changed` and `unchanged` are header names, empty for no header."""

    changed: str
    unchanged: str

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return self.rewrite(record), True

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        if not is_envelope(record):
            return record
        value = record.value
        assert isinstance(value, Struct)
        before, after = value.part("before"), value.part("after")
        updated = op_of(value) == "u" and isinstance(before, Struct) and isinstance(after, Struct)
        headers = []
        for name, changed in ((self.changed, True), (self.unchanged, False)):
            if name:
                kind = _header_type(name)
                node: Any = Constant([], kind)
                if updated and isinstance(before, Struct) and isinstance(after, Struct) and after.members:
                    node = _names(before, after, changed, kind)
                headers.append(Header(name, node))
        return with_headers(record, *headers)


def _names(before: Struct, after: Struct, changed: bool, kind: LogicalType) -> ComputedColumn:
    pairs = [(member.name, before.part(member.name), member.node) for member in after.members]
    known = [(name, old, new) for name, old, new in pairs if old is not None]
    inputs = (*(_compared(old) for _, old, _ in known), *(_compared(new) for _, _, new in known))
    return ComputedColumn(inputs, _Names(tuple(name for name, _, _ in known), changed), kind)


def _header_type(name: str) -> LogicalType:
    kind = array(STRING.with_optional(True)).with_optional(True)
    return LogicalType("array", name=name, items=kind.items, optional=True)


def extract_changed_record_state(options: Mapping[str, str]) -> ExtractChangedRecordState:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    made = ExtractChangedRecordState(given.text("header.changed.name"), given.text("header.unchanged.name"))
    given.done()
    return made
