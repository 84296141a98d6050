"""Typed rows in Spark: the schema that a query declares, and its description for the tasks. Any process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tailrace.columns.table import TableId, TableSchema
from tailrace.columns.typed import OF_TABLES, TYPED_COLUMNS, UPDATE, VARIANT, TypedRows, typed_schema
from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings
from tailrace.events.table_plan import table_plan
from tailrace.events.typed_rows import table_kinds

_MARK = "tailrace"
"""The key in a column's metadata for the captured table of the column's type, the log position of that type, whether
the table had no key there, and the numbers of its columns."""


def typed_type(config: Config) -> StructType:
    """Return the type of typed rows: the column types of the captured table, or variants if several tables are
    captured.

    Asks the server. Raises TailraceError.
    """
    capturing = registry.find(config.connector).load_captured_tables()
    variants = dict.fromkeys(OF_TABLES, VARIANT)
    if capturing is None:
        return from_arrow_schema(typed_schema(_columns(config, (*TYPED_COLUMNS, UPDATE)), variants))
    settings = EventSettings.from_options(config).as_typed(TypedRows(), TYPED_COLUMNS)
    captured = capturing(config, settings)
    if len(captured.tables) == 1:
        return _of_table(config, captured, settings)
    table = captured.tables[0] if captured.tables else TableSchema(TableId("", "", ""), (), ())
    # a source block has the same fields for every table
    variants["source"] = table_kinds(table_plan(table, settings, captured.form).layouts)["source"]
    return from_arrow_schema(typed_schema(_columns(config, TYPED_COLUMNS), variants))


def _of_table(config: Config, captured: CapturedTables, settings: EventSettings) -> StructType:
    (table,) = captured.tables
    plan = table_plan(table, settings, captured.form)
    kinds = table_kinds(plan.layouts)
    known = [name for name in TYPED_COLUMNS if not pa.types.is_null(kinds.get(name, pa.string()))]
    schema = from_arrow_schema(typed_schema(_columns(config, known), kinds))
    is_keyless = "key" not in known and not config["row.columns"]
    of = [table.id.database, table.id.schema, table.id.table]
    # metadata holds objects, but no arrays of arrays
    numbers = {one.name: table.columns[table.index(one.source_name)].number for one in plan.columns}
    place = {
        _MARK: {"table": of, "position": captured.position, "keyless": is_keyless, "numbers": numbers},
    }
    for field in schema:
        if field.name in OF_TABLES:
            field.metadata = place
    return schema


def _columns(config: Config, known: Sequence[str]) -> Sequence[str]:
    """Return the columns that `row.columns` names, else `known`. Raises ConfigError for a name not in `known`."""
    named: list[str] = config["row.columns"] or list(known)
    lacking = [name for name in named if name not in known]
    if lacking:
        why = "the table has no key" if lacking[0] == "key" else "only documents have it"
        raise ConfigError(f"row.columns names {lacking[0]}, and {why}.", "Leave it out.")
    return named


def declared(schema: StructType) -> TypedRows:
    """Return a description of a query's schema for its tasks. The schema is from `typed_type` or from the user.

    Raises ConfigError for columns that typed rows do not have, and for parts that may not be null.
    """
    unknown = [name for name in schema.names if name not in (*TYPED_COLUMNS, UPDATE)]
    if unknown:
        raise ConfigError(
            f"The schema names {unknown[0]}, which is not a column of typed rows.",
            f"They have {', '.join(TYPED_COLUMNS)}.",
        )
    sure = next(_sure(schema), None)
    if sure is not None:
        raise ConfigError(
            f"The schema says that {sure} is never null, and a change may lack it.", "Leave out not null."
        )
    found = TypedRows(to_arrow_schema(schema, timezone="UTC"))
    mark = next((mark for field in schema if (mark := field.metadata.get(_MARK)) is not None), None)
    if mark is None:
        return found
    return replace(
        found,
        table=TableId(*mark["table"]),
        position=mark["position"],
        is_keyless=mark["keyless"],
        numbers=tuple((number, name) for name, number in mark["numbers"].items() if number),
    )


def _sure(kind: DataType, path: str = "") -> Iterator[str]:
    """Yield the paths of the parts of a type that may not be null."""
    if isinstance(kind, StructType):
        for field in kind:
            name = f"{path}.{field.name}" if path else field.name
            yield from () if field.nullable else (name,)
            yield from _sure(field.dataType, name)
    elif isinstance(kind, ArrayType):
        yield from () if kind.containsNull else (f"an element of {path}",)
        yield from _sure(kind.elementType, path)
    elif isinstance(kind, MapType):
        yield from () if kind.valueContainsNull else (f"a value of {path}",)
        yield from _sure(kind.valueType, path)
