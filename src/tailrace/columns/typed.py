"""Typed rows: the row of a source whose option `rows` is `typed`, as Arrow; `tailrace.spark` declares it to Spark.

The columns of `tailrace.columns.row` that are no bytes stand in it as they are. These are its own:

=========== ====================== ================================================================================
column      type                   content
=========== ====================== ================================================================================
key         of the table, or       the key; null where the table has none
            variant
before      of the table, or       the row before the change; null where the event has none
            variant
after       of the table, or       the row after the change; null where the event has none
            variant
unavailable array<string>          the fields of `after` whose values the log did not carry, so that they are null
                                   there; null where it carried all
source      of the connector, or   the source block
            variant
value       binary                 the value of a record that is no change of a row, as value.converter says
update      variant                of documents only: removedFields, updatedFields and truncatedArrays of an update
=========== ====================== ================================================================================

A change has no tombstone here. `op` is c, u, d, r or t in the rows of changes; in all others key, before, after and
source are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from tailrace.columns.row import ROW_SCHEMA
from tailrace.columns.table import TableId

OF_TABLES = ("key", "before", "after", "source")
"""The columns whose types are those of the tables."""

UPDATE = "update"
"""A column that only sources of documents have: what an update has changed, where it does not carry the document."""

TYPED_COLUMNS = (
    "topic", "key", "before", "after", "unavailable", "source", "op", "database", "schema", "table", "position",
    "ordinal", "transaction", "source_ts", "snapshot", "headers", "value",
)  # fmt: skip
"""The names of all columns of typed rows, in the order of the row."""

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""How a variant lies in Arrow, as Spark has it."""


_OWN = {"unavailable": pa.list_(pa.field("element", pa.string())), UPDATE: VARIANT}


def is_variant(kind: pa.DataType) -> bool:
    """Whether this is the type of variants."""
    if not pa.types.is_struct(kind) or kind.num_fields != VARIANT.num_fields:
        return False
    tag = kind.field(1).metadata
    return kind.field(1).name == "metadata" and tag is not None and tag.get(b"variant") == b"true"


@dataclass(frozen=True, slots=True)
class TypedRows:
    """That rows are typed, and what was declared of them. Picklable; from the driver to the workers.

    `schema` is what Spark was told: rows have its columns, in its types. With None, those of each table's version are
    in their own. `table` is the one that the schema was made of, None where it was not made of one: then columns that
    it lacks are left out. The catalog that it was made of is that of `position`, as the row's column has it: a change
    behind it may have columns that the schema lacks because they are new, one before it only because they were dropped.
    """

    schema: pa.Schema | None = None
    table: TableId | None = None
    position: str = ""


def typed_schema(columns: Iterable[str], kinds: Mapping[str, pa.DataType] = MappingProxyType({})) -> pa.Schema:
    """The schema of typed rows of these columns, in this order; `kinds` are the types of OF_TABLES, null where none."""
    of_tables = {name: kinds.get(name, pa.null()) for name in OF_TABLES}
    return pa.schema([pa.field(name, of_tables[name] if name in of_tables else _type(name)) for name in columns])


def _type(name: str) -> pa.DataType:
    return _OWN[name] if name in _OWN else ROW_SCHEMA.field(name).type
