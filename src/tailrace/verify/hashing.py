"""Spark SQL expressions for row hashes, equal for equal rows of the source and of a table. Pure, driver.

`xxhash64` skips nulls, treats both zeros as equal and refuses maps. Therefore the hash also includes a flag for each
null column, the lengths of lists, and the text of each zero. Maps are hashed as their sorted entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

CHUNKS = 4096
"""Number of chunks of a table. Rows are assigned by the hash of their key, so that order does not matter."""


def chunk_of(keys: Sequence[str]) -> str:
    """Return the expression for a row's chunk number, from its key columns."""
    return f"pmod(xxhash64({', '.join(keys)}), {CHUNKS})"


def row_hash(columns: Sequence[tuple[str, DataType]]) -> str:
    """Return the expression for a row's 64-bit hash, from the names and types of its columns."""
    # a null flag for each column as a further argument, since xxhash64 skips nulls
    parts = []
    for name, kind in columns:
        parts += [f"{name} is null", *_parts(name, kind, 0)]
    return f"xxhash64({', '.join(parts)})"


SUMMARY = ("count(*) as n", "bit_xor(h) as x", "sum(h & 4294967295) as s")
"""Aggregates of a chunk's row hashes `h`. The sum detects duplicate rows, which cancel out in the XOR."""


def _parts(value: str, kind: DataType, depth: int) -> list[str]:
    """Return the arguments of the hash for a non-null value: different for different values."""
    from pyspark.sql import types

    if isinstance(kind, types.FloatType | types.DoubleType):
        return [value, f"if({value} = 0, cast({value} as string), null)"]
    if isinstance(kind, types.ArrayType):
        one = f"v{depth}"
        element = _struct(one, kind.elementType, depth + 1)
        return [f"size({value})", f"transform({value}, {one} -> {element})"]
    if isinstance(kind, types.MapType):
        entries = types.StructType([types.StructField("key", kind.keyType), types.StructField("value", kind.valueType)])
        return _parts(f"array_sort(map_entries({value}))", types.ArrayType(entries), depth)
    if isinstance(kind, types.VariantType):
        # values of different types may have the same JSON, such as a time of day and its text
        return [f"to_json({value})", f"schema_of_variant({value})"]
    if isinstance(kind, types.StructType):
        fields = [_struct(f"{value}.`{name_of(field.name)}`", field.dataType, depth) for field in kind.fields]
        return fields or ["1"]
    return [value]


def _struct(value: str, kind: DataType, depth: int) -> str:
    parts = [f"{value} is null", *_parts(value, kind, depth)]
    return f"struct({', '.join(parts)})"


def name_of(name: str) -> str:
    """Escape a name for use between backticks."""
    return name.replace("`", "``")
