"""One number for each row, the same for the source's rows and a table's: expressions of Spark's SQL. Pure, driver.

`xxhash64` leaves nulls out, takes the two zeros for one and refuses maps. So a column counts with whether it is null,
lists with their lengths, maps as their entries in order, and a zero with its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

CHUNKS = 4096
"""In how many chunks a table is compared: by the hash of the key, so that both sides cut alike whatever orders them."""


def chunk_of(keys: Sequence[str]) -> str:
    """The chunk of a row, by the columns of its key."""
    return f"pmod(xxhash64({', '.join(keys)}), {CHUNKS})"


def row_hash(columns: Sequence[tuple[str, DataType]]) -> str:
    """The hash of a row of 64 bits, by the names and types of its columns."""
    # as one more number, since a column that is null adds nothing by itself
    parts = []
    for name, kind in columns:
        parts += [f"{name} is null", *_parts(name, kind, 0)]
    return f"xxhash64({', '.join(parts)})"


SUMMARY = ("count(*) as n", "bit_xor(h) as x", "sum(h & 4294967295) as s")
"""What is compared of a chunk, of the hashes `h` of its rows: a row twice leaves no other sum unseen."""


def _parts(value: str, kind: DataType, depth: int) -> list[str]:
    """What is hashed of a value that is not null, so that different values are hashed differently."""
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
        # the same text may be of another type: a time of day, or its text
        return [f"to_json({value})", f"schema_of_variant({value})"]
    if isinstance(kind, types.StructType):
        fields = [_struct(f"{value}.`{name_of(field.name)}`", field.dataType, depth) for field in kind.fields]
        return fields or ["1"]
    return [value]


def _struct(value: str, kind: DataType, depth: int) -> str:
    parts = [f"{value} is null", *_parts(value, kind, depth)]
    return f"struct({', '.join(parts)})"


def name_of(name: str) -> str:
    """A name within backticks."""
    return name.replace("`", "``")
