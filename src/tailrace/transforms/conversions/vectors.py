"""VectorToJsonConverter: converts vectors to JSON texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout
from tailrace.records.transform import Shared
from tailrace.transforms.images import with_columns
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.json_text import java_number
from tailrace.values.strings import JSON

_LISTS = ("io.debezium.data.DoubleVector", "io.debezium.data.FloatVector")
_SPARSE = ("io.debezium.data.SparseDoubleVector", "io.debezium.data.SparseVector")


def _listed(vectors: pa.Array) -> pa.Array:
    single = pa.types.is_float32(vectors.type.value_type)
    texts: list[str | None] = []
    for vector in vectors.to_pylist():
        numbers = None if vector is None else ", ".join(_number(number, single) for number in vector)
        texts.append(None if numbers is None else f'{{ "values": [{numbers}] }}')
    return pa.array(texts, pa.string())


def _sparse(vectors: pa.Array) -> pa.Array:
    texts: list[str | None] = []
    for vector in vectors.to_pylist():
        if vector is None:
            texts.append(None)
            continue
        pairs = ", ".join(f'"{place}": {_number(number, False)}' for place, number in vector["vector"])
        texts.append(f'{{ "dimensions": {vector["dimensions"]}, "vector": {{ {pairs} }} }}')
    return pa.array(texts, pa.string())


def _number(number: float, single: bool) -> str:
    """Format a number as Java does."""
    return java_number(str(np.float32(number)), single=True) if single else java_number(repr(number))


@dataclass(frozen=True, slots=True)
class VectorToJsonConverter:
    """A records.transform.Transform."""

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        return with_columns(record, _column)


def _column(node: Node) -> Node:
    if node.type.name not in (*_LISTS, *_SPARSE):
        return node
    kind = replace(JSON, optional=node.type.optional)
    if isinstance(node, Constant):
        return Constant(None, kind)
    return ComputedColumn((node,), _listed if node.type.name in _LISTS else _sparse, kind)


def vector_to_json_converter(options: Mapping[str, str]) -> VectorToJsonConverter:
    """Make the transform, which has no options. Raises ConfigError."""
    OptionReader(options).done()
    return VectorToJsonConverter()
