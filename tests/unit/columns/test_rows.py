"""The row of a source has the columns that Spark is told, in their order and types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.columns.row import COLUMNS, FURTHER, HEADERS, PLACES, RESELECTED, made_columns, row_schema, rows_of
from tailrace.columns.typed import OF_TABLES, TYPED_COLUMNS, UPDATE, VARIANT, is_variant, typed_schema


def test_the_first_columns_are_those_of_sparks_kafka_sink() -> None:
    assert COLUMNS[:4] == ("topic", "key", "value", "headers")
    schema = row_schema(COLUMNS)
    assert [schema.field(name).type for name in COLUMNS[:4]] == [pa.string(), pa.binary(), pa.binary(), HEADERS]
    assert schema.field("source_ts").type == pa.timestamp("us", tz="UTC")
    assert schema.field("ordinal").type == pa.int64()


def test_a_schema_has_the_columns_that_are_asked_for_in_their_order() -> None:
    schema = row_schema(("timestamp", "op", "partition", "reselected"))
    assert schema.names == ["timestamp", "op", "partition", "reselected"]
    assert schema.types == [pa.int64(), pa.string(), pa.int32(), pa.int32()]
    assert set(FURTHER) == {*PLACES, RESELECTED}


def test_keys_and_values_are_made_whatever_is_wanted() -> None:
    # The size of the columns decides whether a change becomes an event.
    assert made_columns(["op", "table"]) == ("op", "table", "key", "value")
    assert made_columns(["value", "op", "value"]) == ("value", "op", "key")


def test_columns_that_are_not_wanted_are_not_made() -> None:
    made = []

    def maker(name: str) -> pa.Array:
        made.append(name)
        return pa.array(["x", "y"], pa.string())

    makers = {name: lambda name=name: maker(name) for name in ("op", "table", "topic")}
    found = rows_of(("table", "op"), makers)
    assert made == ["table", "op"]
    assert found.to_pylist() == [{"table": "x", "op": "x"}, {"table": "y", "op": "y"}]


def test_further_columns_that_nobody_makes_are_null() -> None:
    columns = ("op", "partition", "timestamp", "reselected")
    found = rows_of(columns, {"op": lambda: pa.array(["c"], pa.string())})
    assert found.to_pylist() == [{"op": "c", "partition": None, "timestamp": None, "reselected": None}]
    assert found.schema == row_schema(columns)
    filled = rows_of(columns, {name: lambda: pa.array([7], pa.int32()) for name in ("partition", "reselected")} | {
        "op": lambda: pa.array(["c"], pa.string()), "timestamp": lambda: pa.array([8], pa.int64())})  # fmt: skip
    assert filled.to_pylist() == [{"op": "c", "partition": 7, "timestamp": 8, "reselected": 7}]


def test_typed_rows_have_the_types_of_their_table_and_null_for_a_key_that_is_none() -> None:
    image = pa.struct([pa.field("id", pa.int32())])
    schema = typed_schema(TYPED_COLUMNS, {"before": image, "after": image, "source": VARIANT})
    assert tuple(schema.names) == TYPED_COLUMNS
    assert schema.field("after").type == image
    assert pa.types.is_null(schema.field("key").type)
    assert schema.field("unavailable").type == pa.list_(pa.field("element", pa.string()))
    assert schema.field("value").type == pa.binary()
    assert typed_schema((UPDATE,)).field(UPDATE).type == VARIANT
    assert set(OF_TABLES) < set(TYPED_COLUMNS)
    assert UPDATE not in TYPED_COLUMNS


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (VARIANT, True),
        (pa.struct(list(VARIANT)), True),
        (pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())]), False),
        (pa.struct([VARIANT.field(0)]), False),
        (pa.struct([VARIANT.field(1), VARIANT.field(0)]), False),
        (pa.binary(), False),
    ],
)
def test_a_variant_is_told_by_the_mark_of_its_metadata(kind: pa.DataType, told: bool) -> None:
    assert is_variant(kind) is told
