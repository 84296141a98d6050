"""Leaves as Arrow arrays, one value per record: for typed rows, and for layouts that depend on values. Worker.

Values are converted by the column's plan, so they equal those in JSON; a value is null if JSON shows null.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.kernels.programs import Fragment
from tailrace.records.columns import Columns, Indexes, SharedValue, WrittenJson
from tailrace.records.layout import (
    CHANGE,
    UNAVAILABLE,
    BlockColumn,
    ComputedColumn,
    Constant,
    ImageColumn,
    Node,
    ServerTexts,
    ShownTexts,
    Struct,
    Text,
)
from tailrace.records.transform import RefusedRecord
from tailrace.values.arrow import arrow_array, arrow_type_of, arrow_value, typed
from tailrace.values.binaries import base64_text
from tailrace.values.decimals import unscaled, unscaled_bytes
from tailrace.values.fragments import column_fragment, json_array
from tailrace.values.timestamps import instant_texts


def array_of(node: Node | ServerTexts | ShownTexts, columns: Columns | None, records: Indexes) -> pa.Array:
    """Return the values of a layout or a leaf for these records of the block.

    Without `columns`, the layout may have only constants and columns computed from constants.
    """
    match node:
        case Constant():
            return _repeated(node.value, node.type, len(records))
        case Struct():
            kind = arrow_type_of(node.type)
            parts = [array_of(member.node, columns, records) for member in node.members]
            if not parts:
                # Arrow takes the number of structs from their fields
                return pa.array([{}] * len(records), kind)
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        case ComputedColumn():
            return computed(node, columns, records)
        case ShownTexts():
            return _as_shown(node, columns, records)
    assert columns is not None
    if isinstance(node, ServerTexts):
        return _taken(_as_written(node.column, columns), columns.index[CHANGE][records])
    return _filled(node, columns, records)


def _as_written(leaf: ImageColumn, columns: Columns) -> pa.Array:
    found = columns.texts(leaf)
    texts = found.texts.cast(pa.binary())
    if found.unavailable is None:
        return texts
    return pc.if_else(pa.array(found.unavailable), pa.scalar(UNAVAILABLE, pa.binary()), texts)


def _as_shown(node: ShownTexts, columns: Columns | None, records: Indexes) -> pa.Array:
    leaf = node.leaf
    if isinstance(leaf, Constant):
        return pa.repeat(pa.scalar(leaf.value, pa.string()), len(records))
    if isinstance(leaf, ComputedColumn):
        return computed(leaf, columns, records, as_shown=True)
    assert columns is not None
    key = ("shown", leaf.image, leaf.column.index, leaf.apart, leaf.column.null)
    found = columns.made.get(key)
    if found is None:
        plan, texts = leaf.column, columns.texts(leaf)
        column = texts.texts if plan.shape is None or plan.conversion.by_value else plan.shape.column(texts.texts)
        fragment, lost = column_fragment(plan, column, texts.unavailable)
        if lost:
            columns.lost(plan, lost)
        shown = json_array(fragment)
        found = pc.if_else(pc.equal(shown, "null"), pa.scalar(None, pa.string()), pc.utf8_trim(shown, '"'))
        columns.made[key] = found
    return _taken(found, columns.index[CHANGE][records])


def _taken(values: pa.Array, places: Indexes) -> pa.Array:
    """Return the values at these places; without a copy if they are all places in order, as in most blocks."""
    if len(places) == len(values) and np.array_equal(places, np.arange(len(places))):
        return values
    return values.take(pa.array(places))


def _filled(node: ImageColumn | BlockColumn | Text, columns: Columns, records: Indexes) -> pa.Array:
    match node:
        case ImageColumn():
            return _taken(image_values(node, columns), columns.index[CHANGE][records])
        case BlockColumn():
            values = columns.values(node)
            if isinstance(values, SharedValue):
                return _repeated(values.value, node.type, len(records))
            if isinstance(values, WrittenJson):
                values = read_json(values.json, node.type)
            return _taken(values.cast(arrow_type_of(node.type)), columns.index[node.by][records])
        case Text():
            texts_of = (_part(part, columns, records) for part in node.parts)
            return pc.binary_join_element_wise(*texts_of, "", null_handling="replace", null_replacement="null")


def image_values(leaf: ImageColumn, columns: Columns) -> pa.Array:
    """Return the values of a column of an image, made once per block."""
    # a default may be a list, so the leaf is not hashable
    key = ("arrow", leaf.image, leaf.column.index, leaf.apart, leaf.column.null)
    found = columns.made.get(key)
    if found is None:
        texts = columns.texts(leaf)
        found, lost = typed(leaf.column, texts.texts, texts.unavailable)
        if lost.any():
            columns.lost(leaf.column, int(lost.sum()))
        columns.made[key] = found
    return found


def computed(leaf: ComputedColumn, columns: Columns | None, records: Indexes, *, as_shown: bool = False) -> pa.Array:
    """Return the result of the leaf's function for its inputs; `as_shown`: as JSON shows it, if the function supports
    that.

    Raises RefusedRecord, with the record's place in the block as its row.
    """
    inputs = [array_of(node, columns, records) for node in leaf.inputs]
    try:
        made = leaf.function(*inputs)
    except RefusedRecord as fault:
        raise RefusedRecord(fault.reason, int(records[fault.row])) from None
    return made if as_shown and leaf.shown else made.cast(arrow_type_of(leaf.type))


def folded(node: Node) -> Node:
    """Return a layout of known values with computed nodes replaced by constants. Raises RefusedRecord."""
    if isinstance(node, Struct):
        return replace(node, members=tuple(replace(part, node=folded(part.node)) for part in node.members))
    if isinstance(node, Text) and all(isinstance(part, str) for part in node.parts):
        return Constant("".join(map(str, node.parts)), node.type)
    if not isinstance(node, ComputedColumn):
        return node
    value = computed(node, None, np.zeros(1, np.int32), as_shown=True)
    if pa.types.is_temporal(value.type):
        value = untyped(value)
    found = shown(value[0].as_py(maps_as_pydicts="strict"))
    if pa.types.is_float32(value.type) and found is not None:
        # with as few digits as tell it from other floats
        found = float(str(np.float32(found)))
    return Constant(found, node.type)


def untyped(values: pa.Array) -> pa.Array:
    """Return dates, times and durations as their numbers, instants in UTC as text."""
    numbers = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if not pa.types.is_timestamp(values.type) or values.type.tz is None:
        return numbers
    texts = instant_texts(pc.fill_null(numbers, 0).to_numpy(), np.zeros(len(numbers), np.int64))
    return pc.if_else(numbers.is_valid(), texts, None) if numbers.null_count else texts


def shown(value: Any) -> Any:
    """Return an Arrow value in its JSON form."""
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, Decimal):
        return base64_text(unscaled_bytes(unscaled(value, -int(value.as_tuple().exponent))))
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    return [shown(part) for part in value] if isinstance(value, list | tuple) else value


def read_json(written: Fragment, kind: LogicalType) -> pa.Array:
    """Return the values of a column that is JSON already."""
    quote = '"' if written.quoted else ""
    texts = json_array(written).to_pylist()
    return arrow_array([arrow_value(json.loads(f"{quote}{text}{quote}"), kind) for text in texts], kind)


def _part(part: str | BlockColumn, columns: Columns, records: Indexes) -> pa.Array:
    if isinstance(part, str):
        return pa.repeat(part, len(records))
    return array_of(part, columns, records).cast(pa.string())


def _repeated(value: Any, kind: LogicalType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, arrow_type_of(kind))
    one = arrow_array([arrow_value(value, kind)], kind)
    return one.take(pa.array(np.zeros(count, np.int32)))
