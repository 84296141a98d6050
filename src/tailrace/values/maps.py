"""Maps of texts, and sparse vectors, which map places to numbers."""

from __future__ import annotations

import re
from typing import Any

from tailrace.columns.logical import DOUBLE, INT16, STRING, Field, LogicalType, mapping, struct
from tailrace.values.conversion import Conversion
from tailrace.values.floats import shortest
from tailrace.values.json_text import dumps
from tailrace.values.strings import JSON

SPARSE_VECTOR = struct(
    Field("dimensions", INT16),
    Field("vector", LogicalType("map", items=DOUBLE, keys=INT16)),
    name="io.debezium.data.SparseDoubleVector",
    version=1,
    doc="Sparse double vector",
)

_SPARSE_VECTOR = re.compile(r"\{((?:[0-9]{1,5}:[^:,]+(?:,(?=[0-9])|(?=\})))*)\}/([0-9]{1,9})")
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


def hstore_map(unavailable: dict[str, str]) -> Conversion:
    """Return the conversion to a map from strings to strings, which may be null."""
    return Conversion(mapping(STRING.with_optional(True)), hstore, zero={}, unavailable=unavailable)


def hstore_text(unavailable: str) -> Conversion:
    """Return the conversion to the map as JSON text."""
    return Conversion(JSON, hstore_json, zero="{}", unavailable=unavailable)


def sparse() -> Conversion:
    """Return the conversion of sparse vectors of doubles."""
    return Conversion(SPARSE_VECTOR, sparse_vector, zero={"dimensions": 0, "vector": []})


def hstore(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    position = 0
    while position < len(text):
        found = _HSTORE.match(text, position)
        if found is None:
            raise ValueError("not an hstore")
        value = found[2]
        pairs[re.sub(r"\\(.)", r"\1", found[1])] = None if value is None else re.sub(r"\\(.)", r"\1", value)
        position = found.end()
    return pairs


def hstore_json(text: str) -> str:
    return dumps(hstore(text))


def sparse_vector(text: str) -> dict[str, Any]:
    """Return the value of `{1:1,5:-3}/10`: dimensions, and pairs of index and value in the order of the indexes.

    Raises ValueError if the dimensions, and so possibly an index, exceed the schema's int16.
    """
    found = _SPARSE_VECTOR.fullmatch(text)
    if found is None:
        raise ValueError("not a sparse vector")
    dimensions = int(found[2])
    if dimensions >= 2**15:
        raise ValueError("more dimensions than an int16 holds")
    element = shortest(False)
    pairs = (pair.split(":") for pair in found[1].split(",") if pair)
    return {"dimensions": dimensions, "vector": [[int(index), element(value)] for index, value in pairs]}
