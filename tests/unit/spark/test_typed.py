"""The schema of typed rows reaches the tasks, and a change outside of it is handled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tailrace.columns import ChangeBatch, Column, Image, Marker, TableId, TableSchema, Transactions
from tailrace.columns.batch import position_text
from tailrace.columns.typed import TYPED_COLUMNS
from tailrace.connectors import registry
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, SchemaChanged
from tailrace.events.control_records import heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.spark import reference, typed

OPTIONS = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p", "rows": "typed"}
T = TableId("d", "public", "t")
ID = Column("id", "int4", 23, nullable=False)


def table(*columns: Column, named: TableId = T, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(named, (ID, *columns), key)


def batch(of: TableSchema, *rows: tuple[Any, ...], commit: int = 100, marker: Marker | None = None) -> ChangeBatch:
    """Return inserts of these texts, all in one transaction."""
    count = len(rows)
    one = np.ones(1, np.int64)
    columns = [pa.array([row[place] for row in rows], pa.binary()) for place in range(len(of.columns))]
    return ChangeBatch(
        of, np.full(count, ord("c"), np.uint8), np.arange(count), np.zeros(count, np.int32), np.arange(count),
        Transactions(one, one * commit, one, -one), None, Image(None, columns, [None] * len(columns)),
        None if marker is None else np.full(count, marker, np.uint8),
    )  # fmt: skip


def schema_of(monkeypatch: pytest.MonkeyPatch, *tables: TableSchema, position: int = 50, **more: str) -> StructType:
    captured = CapturedTables(tables, position_text(position), FORM)
    monkeypatch.setattr(
        "tailrace.connectors.descriptor.Descriptor.load_captured_tables", lambda self: lambda config, settings: captured
    )
    return typed.typed_type(parse("postgres", OPTIONS | {name.replace("_", "."): text for name, text in more.items()}))


def settings_of(schema: StructType) -> EventSettings:
    return EventSettings.from_options(parse("postgres", OPTIONS)).as_typed(typed.declared(schema), tuple(schema.names))


def rows(of: ChangeBatch, schema: StructType) -> list[dict[str, Any]]:
    found = list(to_rows(of, settings_of(schema), FORM))
    for part in found:
        part.validate(full=True)
        declared = typed.declared(schema).schema
        assert part.schema == declared
    return [row for part in found for row in part.to_pylist()]


V = Column("v", "text", 25)
FRESH = Column("fresh", "int4", 23)


def test_rows_are_those_that_were_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(monkeypatch, table(V))
    assert tuple(schema.names) == TYPED_COLUMNS
    (row,) = rows(batch(table(V), (b"1", b"a")), schema)
    assert (row["key"], row["before"], row["after"]) == ({"id": 1}, None, {"id": 1, "v": "a"})
    assert (row["op"], row["table"], row["position"], row["unavailable"]) == ("c", "t", position_text(100), None)


def test_a_new_column_stops_and_a_dropped_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(monkeypatch, table(V), position=100)
    altered = table(V, FRESH)
    old = rows(batch(altered, (b"1", b"a", b"5"), commit=100), schema)
    assert old[0]["after"] == {"id": 1, "v": "a"}
    with pytest.raises(SchemaChanged, match=r"public\.t has the column fresh at the position 0000000000000065"):
        rows(batch(altered, (b"1", b"a", b"5"), commit=101), schema)
    # A snapshot row is as new as its read, whatever its position.
    with pytest.raises(SchemaChanged, match="fresh"):
        rows(batch(altered, (b"1", b"a", b"5"), commit=100, marker=Marker.TRUE), schema)
    assert rows(batch(table(), (b"1",), commit=101), schema)[0]["after"] == {"id": 1, "v": None}


def test_a_schema_of_ones_own_takes_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = schema_of(monkeypatch, table(V), row_columns="after,op")
    for field in made:
        field.metadata = {}
    found = rows(batch(table(V, FRESH, named=TableId("d", "public", "u")), (b"1", b"a", b"5"), commit=999), made)
    assert found == [{"after": {"id": 1, "v": "a"}, "op": "c"}]


def test_another_table_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(monkeypatch, table(V))
    with pytest.raises(SchemaChanged, match=r"A change of public\.u arrived, .* the types of public\.t"):
        rows(batch(table(V, named=TableId("d", "public", "u")), (b"1", b"a")), schema)
    with pytest.raises(SchemaChanged) as older:
        rows(batch(table(V, named=TableId("d", "public", "u")), (b"1", b"a"), commit=40), schema)
    assert older.value.remedy.startswith("It was written before the table was renamed")


def test_types_are_widened_and_what_does_not_fit_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(monkeypatch, table(Column("v", "int8", 20)))
    assert rows(batch(table(Column("v", "int4", 23)), (b"1", b"7")), schema)[0]["after"] == {"id": 1, "v": 7}
    with pytest.raises(SchemaChanged, match=r"values of the type string in after\.v.* declared type int64"):
        rows(batch(table(V), (b"1", b"a")), schema)


def test_several_tables_are_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    other = table(FRESH, named=TableId("d", "public", "u"))
    schema = schema_of(monkeypatch, table(V), other)
    assert [schema[name].dataType.simpleString() for name in ("key", "before", "after")] == ["variant"] * 3
    assert len(rows(batch(other, (b"1", b"2")), schema)) == 1
    assert schema_of(monkeypatch)["after"].dataType.simpleString() == "variant"


def test_a_table_without_a_key_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "key" not in schema_of(monkeypatch, table(V, key=())).names
    with pytest.raises(ConfigError, match=r"row\.columns names key, and the table has no key"):
        schema_of(monkeypatch, table(V, key=()), row_columns="key")


def test_a_record_that_is_no_change_has_its_value_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(monkeypatch, table(V))
    (row,) = heartbeat_row(1234, 5, settings_of(schema)).to_pylist()
    assert (row["op"], row["key"], row["before"], row["after"], row["source"]) == ("heartbeat", None, None, None, None)
    assert b'"ts_ms":1234' in row["value"]


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="names vaule, which is not a column of typed rows"):
        typed.declared(typed.from_arrow_schema(pa.schema([("vaule", pa.string())])))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.struct([pa.field("id", pa.int32(), nullable=False)]), "after.id"),
        (pa.struct([("l", pa.list_(pa.field("element", pa.int32(), nullable=False)))]), "an element of after.l"),
        (pa.struct([("m", pa.map_(pa.string(), pa.field("value", pa.int8(), False)))]), "a value of after.m"),
    ],
)
def test_a_schema_that_allows_no_null_is_refused(kind: pa.DataType, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said} is never null"):
        typed.declared(typed.from_arrow_schema(pa.schema([("after", kind)])))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"row.columns": "beforr"},
            "row.columns names beforr, which is not a column of the rows; the nearest is before",
        ),
        ({"row.columns": "partition"}, "row.columns names partition, which is not a column of the rows"),
        ({"transforms": "a", "transforms.a.type": "x"}, "is not supported with rows = typed"),
    ],
)
def test_what_does_not_go_with_typed_rows_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse("postgres", OPTIONS | options)
    assert said in str(refused.value)


def test_typed_rows_are_of_todays_format_unless_another_is_named() -> None:
    bare = {name: text for name, text in OPTIONS.items() if name != "topic.prefix"}
    assert parse("postgres", bare).event_format == "3"
    assert parse("postgres", bare | {"event.format": "1.7"}).event_format == "1.7"
    assert parse("postgres", bare | {"rows": "bytes"}).event_format == "1.7"
    mongodb = {"mongodb.hosts": "h:1", "topic.prefix": "p", "rows": "typed", "event.format": "1.1"}
    with pytest.raises(ConfigError, match=r"rows = typed is not supported in the 1\.1 format"):
        parse("mongodb", mongodb)


def test_the_page_of_types_is_up_to_date() -> None:
    assert reference.main(["--check"]) == 0, "run python -m tailrace.spark.reference"


@pytest.mark.parametrize("name", [name for name in registry.OWN if registry.find(name).documented_types])
def test_every_listed_type_has_one_in_spark(name: str) -> None:
    assert "``" not in reference.table(name)


def test_truncates_are_rows_unless_they_are_left_out_by_name() -> None:
    for connector in ("postgres", "mysql"):
        login = OPTIONS | ({} if connector == "postgres" else {"database.server.id": "1"})
        if connector == "mysql":
            del login["database.dbname"]
        assert parse(connector, login)["skipped.operations"] == frozenset()
        assert parse(connector, login | {"skipped.operations": "t"})["skipped.operations"] == frozenset("t")
    old = parse("postgres", OPTIONS | {"event.format": "1.7"})
    assert (old["skipped.operations"], old["truncate.handling.mode"]) == (frozenset(), "include")
