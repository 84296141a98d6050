"""Typed rows: the row of a source whose option `rows` is `typed`, as Arrow; `tailrace.spark` declares it to Spark.

It has the columns of `tailrace.columns.row` that are not bytes, and these:

=========== ====================== ================================================================================
column      type                   content
=========== ====================== ================================================================================
key         of the table, or       the key; null if the table has none
            variant
before      of the table, or       the row before the change; null if the event has none
            variant
after       of the table, or       the row after the change; null if the event has none
            variant
unavailable array<string>          the fields of `after` that are null because the log did not carry their values;
                                   null if it carried all
source      of the connector, or   the source block
            variant
value       binary                 the value of a record that is not a row change, as value.converter says
update      variant                documents only: removedFields, updatedFields and truncatedArrays of an update
=========== ====================== ================================================================================

There are no tombstones. `op` is c, u, d, r or t for changes; in all other rows key, before, after and source are null.
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
"""A column of document sources only: the changes of an update that does not carry the document."""

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
"""A variant's Arrow type, as Spark stores it."""


_OWN = {"unavailable": pa.list_(pa.field("element", pa.string())), UPDATE: VARIANT}


def is_variant(kind: pa.DataType) -> bool:
    """Return True for the type of variants."""
    if not pa.types.is_struct(kind) or kind.num_fields != VARIANT.num_fields:
        return False
    tag = kind.field(1).metadata
    return kind.field(1).name == "metadata" and tag is not None and tag.get(b"variant") == b"true"


@dataclass(frozen=True, slots=True)
class TypedRows:
    """The declared types of typed rows. Picklable; from the driver to the workers.

    `schema` is the schema given to Spark: rows have its columns, in its types. If None, each table version has its own
    types. `table` is the table from which the schema was made, None otherwise: then columns that the schema lacks are
    left out. `position` is the log's position when the catalog was read, in the form of the row's column. A later
    change may have columns that the schema lacks because they are new, an earlier change only because they were
    dropped. `is_keyless` is True if the schema has no key because the table had none at that moment. `numbers` has the
    number of each of the table's columns then, with the name of its field; it is empty if columns have no numbers.
    """

    schema: pa.Schema | None = None
    table: TableId | None = None
    position: str = ""
    is_keyless: bool = False
    numbers: tuple[tuple[int, str], ...] = ()


def typed_schema(columns: Iterable[str], kinds: Mapping[str, pa.DataType] = MappingProxyType({})) -> pa.Schema:
    """Return the schema of typed rows of these columns; `kinds` are the types of OF_TABLES, null if absent."""
    of_tables = {name: kinds.get(name, pa.null()) for name in OF_TABLES}
    return pa.schema([pa.field(name, of_tables[name] if name in of_tables else _type(name)) for name in columns])


def _type(name: str) -> pa.DataType:
    return _OWN[name] if name in _OWN else ROW_SCHEMA.field(name).type
