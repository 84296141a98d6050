"""Leaves as Arrow arrays, one value for each record: what typed rows, and what depends on values, are made of. Worker.

A value is converted as its column's plan says, so it is the one that JSON shows; null is what JSON shows for it.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.records.columns import Columns, Indexes, Same, Texts, Written
from tailrace.records.layout import CHANGE, Column, Computed, Constant, ImageColumn, Node, Struct, Text
from tailrace.serde.assemble import Fragment
from tailrace.serde.conversion import ColumnPlan
from tailrace.serde.fragments import json_array, plain_json


def array_of(node: Node, columns: Columns | None, records: Indexes) -> pa.Array:
    """The values of a layout, or of a leaf of it, in these records of the block; of constants alone without columns."""
    match node:
        case Constant():
            return _repeated(node.value, node.type, len(records))
        case Struct():
            kind = node.type.arrow()
            parts = [array_of(member.node, columns, records) for member in node.members]
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        case Computed():
            return computed(node, columns, records)
    assert columns is not None
    return _filled(node, columns, records)


def _filled(node: ImageColumn | Column | Text, columns: Columns, records: Indexes) -> pa.Array:
    match node:
        case ImageColumn():
            texts = columns.texts(node)
            found, lost = _column(node.column, texts)
            if lost:
                columns.lost(node.column, lost)
            return found.take(pa.array(columns.index[CHANGE][records]))
        case Column():
            values = columns.values(node)
            if isinstance(values, Same):
                return _repeated(values.value, node.type, len(records))
            if isinstance(values, Written):
                values = _read(values.json, node.type)
            return values.cast(node.type.arrow()).take(pa.array(columns.index[node.by][records]))
        case Text():
            texts_of = (_part(part, columns, records) for part in node.parts)
            return pc.binary_join_element_wise(*texts_of, "", null_handling="replace", null_replacement="null")


def computed(leaf: Computed, columns: Columns | None, records: Indexes) -> pa.Array:
    """What the leaf's function makes of its inputs."""
    made = leaf.function(*(array_of(node, columns, records) for node in leaf.inputs))
    return made.cast(leaf.type.arrow())


def _read(written: Fragment, kind: LogicalType) -> pa.Array:
    """The values of a column that is JSON already."""
    quote = '"' if written.quoted else ""
    texts = json_array(written).to_pylist()
    return pa.array([from_json(json.loads(f"{quote}{text}{quote}"), kind) for text in texts], kind.arrow())


def _part(part: str | Column, columns: Columns, records: Indexes) -> pa.Array:
    if isinstance(part, str):
        return pa.repeat(part, len(records))
    return array_of(part, columns, records).cast(pa.string())


def _repeated(value: Any, kind: LogicalType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind.arrow())
    one = pa.array([from_json(value, kind)], kind.arrow())
    return one.take(pa.array(np.zeros(count, np.int32)))


def _column(plan: ColumnPlan, texts: Texts) -> tuple[pa.Array, int]:
    """The values of a column of texts, and how many of them could not be converted and are as null."""
    known: dict[bytes, tuple[bool, Any]] = {}
    null, unavailable = (from_json(json.loads(text), plan.schema) for text in (plan.null, plan.unavailable))
    values: list[Any] = []
    lost = 0
    for row, text in enumerate(texts.texts.to_pylist()):
        if texts.unavailable is not None and texts.unavailable[row]:
            values.append(unavailable)
            continue
        if text is None:
            values.append(null)
            continue
        if text not in known:
            shown = plain_json(plan, text)
            known[text] = (shown is None, null if shown is None else from_json(json.loads(shown), plan.schema))
        failed, value = known[text]
        lost += failed
        values.append(value)
    return pa.array(values, plan.schema.arrow()), lost


def from_json(value: Any, kind: LogicalType) -> Any:
    """A value in the form that it has in JSON as the one that Arrow takes for the type."""
    if value is None:
        return None
    match kind.connect:
        case "bytes":
            return base64.b64decode(value)
        case "float" | "double":
            return float(value)
        case "struct":
            return {field.name: from_json(value.get(field.name), field.type) for field in kind.fields}
    if kind.items is None:
        return value
    if kind.connect == "array":
        return [from_json(item, kind.items) for item in value]
    keys = kind.keys
    pairs = value if keys is not None else list(value.items())
    return [(key if keys is None else from_json(key, keys), from_json(item, kind.items)) for key, item in pairs]
