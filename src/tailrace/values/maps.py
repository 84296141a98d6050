"""Maps of texts, and sparse vectors, which are maps from a place to its number."""

from __future__ import annotations

import re
from typing import Any

from tailrace.assembly.json_text import dumps
from tailrace.columns.logical import DOUBLE, INT16, STRING, Field, LogicalType, mapping, struct
from tailrace.values.conversion import Conversion
from tailrace.values.floats import shortest
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
    """A map from strings to strings, any of which may be null."""
    return Conversion(mapping(STRING.with_optional(True)), hstore, zero={}, unavailable=unavailable)


def hstore_text(unavailable: str) -> Conversion:
    """The map as a JSON text."""
    return Conversion(JSON, hstore_json, zero="{}", unavailable=unavailable)


def sparse() -> Conversion:
    """A sparse vector of doubles."""
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
    """`{1:1,5:-3}/10`: the dimensions, and the pairs of index and value in the order of the indexes.

    ValueError where the dimensions, and with them an index, exceed the int16 that the schema has for both.
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
