"""Arrow arrays in the types that Spark holds, and as variants, which Spark's own reader reads back."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from tailrace.columns.typed import VARIANT, is_variant
from tailrace.formats.typed.spark_types import NotHeld, conform, held
from tailrace.formats.typed.variant import document_variants
from tests.extent import examples

ROW = pa.struct(
    [
        ("z", pa.int32()), ("a", pa.string()), ("d", pa.decimal128(12, 2)), ("wide", pa.decimal128(38, 4)),
        ("narrow", pa.decimal128(5, 2)), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int16())),
        ("zoned", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("day", pa.date32()), ("b", pa.binary()),
        ("f", pa.float32()), ("g", pa.float64()), ("t", pa.bool_()), ("s", pa.struct([("x", pa.int64())])),
        ("span", pa.duration("us")), ("ls", pa.list_(pa.struct([("q", pa.int8())]))), ("none", pa.null()),
    ]
)  # fmt: skip
ONE: dict[str, Any] = {
    "z": -5, "a": "hé" * 40, "d": Decimal("-12.50"), "wide": Decimal("1234567890123456789012.5000"),
    "narrow": Decimal("1.50"), "l": ["a", None, "b" * 70], "m": {"k": 1, "j": -2},
    "zoned": datetime(2020, 1, 1, tzinfo=UTC), "local": datetime(1960, 1, 1), "day": date(2020, 2, 3), "b": b"\x01\x02",
    "f": 1.5, "g": -2.25, "t": True, "s": {"x": 1 << 40}, "span": timedelta(days=1),
    "ls": [{"q": 1}, None, {"q": None}], "none": None,
}  # fmt: skip
READ = ONE | {"span": 86_400_000_000}
"""The form in variants, which have no intervals."""


def variants(values: pa.Array) -> pa.Array:
    return conform(values, VARIANT)


def read(values: pa.Array) -> list[Any]:
    values.validate(full=True)
    assert is_variant(values.type)
    return [None if one is None else VariantVal(one["value"], one["metadata"]).toPython() for one in values.to_pylist()]


def arrow(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"m": None if row["m"] is None else list(row["m"].items())}


def test_variants_are_what_spark_reads() -> None:
    nulls = dict.fromkeys(ONE)
    empty = ONE | {"l": [], "m": {}, "a": "", "t": False, "ls": []}
    rows = [ONE, None, nulls, empty]
    column = pa.array([None if row is None else arrow(row) for row in rows], ROW)
    wanted = [READ, None, nulls, empty | {"span": READ["span"]}]
    assert read(variants(column)) == wanted
    for low in range(len(rows) + 1):
        assert read(variants(column.slice(low))) == wanted[low:]
        assert read(variants(column.slice(0, low))) == wanted[:low]


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=90), max_size=5), max_size=6))
def test_lists_of_texts_of_any_length(rows: list[Any]) -> None:
    assert read(variants(pa.array(rows, pa.list_(pa.string())))) == rows


def test_texts_around_the_length_that_fits_the_first_byte() -> None:
    texts = ["x" * size for size in (0, 1, 63, 64, 65)]
    assert read(variants(pa.array(texts))) == texts
    assert read(document_variants(texts, [True] * len(texts))) == texts


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -128, 128, -(1 << 31), 1 << 40, (1 << 63) - 1, 1.5, "", "é" * 63, b"\x00", [], {},
        [1, [2]], {"b": {"a": 1}, "a": None, "é": "x"}, Decimal("1.50"), Decimal("-0.001"), Decimal("9" * 28),
        Decimal("1E+5"),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    ],
)  # fmt: skip
def test_a_document_is_what_spark_reads(value: Any) -> None:
    assert read(document_variants([value, value], [True, False])) == [value, None]


def test_a_decimal_of_too_many_digits_is_a_text() -> None:
    assert read(document_variants([Decimal("1" * 39), Decimal("NaN")], [True, True])) == ["1" * 39, "NaN"]
    with pytest.raises(ValueError, match="more than 64 bits"):
        document_variants([1 << 63], [True])


@pytest.mark.parametrize(
    ("kind", "value", "as_held", "shown"),
    [
        (pa.decimal256(50, 2), Decimal("1.50"), pa.string(), "1.50"),
        (pa.decimal128(38, 2), Decimal("1.50"), pa.decimal128(38, 2), Decimal("1.50")),
        (pa.time32("ms"), time(1, 2, 3), pa.string(), "01:02:03.000"),
        (pa.timestamp("ns"), datetime(1969, 12, 31, 23, 59, 59, 999999), pa.timestamp("us"), None),
        (pa.timestamp("ms"), datetime(2020, 1, 1), pa.timestamp("us"), datetime(2020, 1, 1)),
        (pa.list_(pa.timestamp("ms")), [datetime(2020, 1, 1), None], pa.list_(pa.timestamp("us")), None),
        (pa.map_(pa.int16(), pa.float64()), [(1, 2.0)], pa.map_(pa.int16(), pa.float64()), [(1, 2.0)]),
    ],
)
def test_what_spark_holds(kind: pa.DataType, value: Any, as_held: pa.DataType, shown: Any) -> None:
    column = pa.array([value, None, value], kind)
    found = conform(column, held(kind))
    found.validate(full=True)
    assert held(kind) == as_held == found.type
    assert found.to_pylist() == [value if shown is None else shown, None, value if shown is None else shown]


def test_what_is_finer_than_a_microsecond_is_cut_downwards() -> None:
    found = conform(pa.array([-1, 1], pa.int64()).cast(pa.timestamp("ns")), pa.timestamp("us"))
    assert found.cast(pa.int64()).to_pylist() == [-1, 0]


def test_names_of_fields_are_matched_without_case_where_none_is_the_same() -> None:
    column = pa.array([{"id": 1, "Note": "a", "x": 5, "X": 6}], pa.struct([("id", pa.int64()), ("Note", pa.string()),
                      ("x", pa.int64()), ("X", pa.int64())]))  # fmt: skip
    wanted = pa.struct([("ID", pa.int64()), ("note", pa.string()), ("X", pa.int64())])
    assert conform(column, wanted).to_pylist() == [{"ID": 1, "note": "a", "X": 6}]
    both = pa.struct([("id", pa.int64()), ("ID", pa.int64())])
    assert conform(column, both).to_pylist() == [{"id": 1, "ID": None}]


def test_structs_conform_by_the_names_of_their_fields() -> None:
    column = pa.array(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}], pa.struct([("a", pa.int32()), ("b", pa.string())])
    )
    wanted = pa.struct([("b", pa.string()), ("c", pa.list_(pa.int8())), ("a", pa.int64())])
    for low in range(3):
        rows: list[Any] = [{"b": "x", "c": None, "a": 1}, None, {"b": "y", "c": None, "a": None}]
        found = conform(column.slice(low), wanted)
        assert (found.type, found.to_pylist()) == (wanted, rows[low:])
    assert read(conform(column, VARIANT)) == column.to_pylist()


@pytest.mark.parametrize(
    ("column", "kind", "shown"),
    [
        (pa.array([5], pa.int16()), pa.decimal128(20, 1), Decimal("5.0")),
        (pa.array([Decimal("1.10")]), pa.float64(), 1.1),
        (pa.array([0.5], pa.float32()), pa.float64(), 0.5),
        (pa.array([date(2020, 1, 1)]), pa.timestamp("us"), datetime(2020, 1, 1)),
        (pa.array([True]), pa.string(), "true"),
        (pa.array(["12"]), pa.int32(), 12),
    ],
)
def test_a_wider_type_holds_the_same_value(column: pa.Array, kind: pa.DataType, shown: Any) -> None:
    assert conform(column, kind).to_pylist() == [shown]
    assert conform(pa.nulls(2, column.type), kind).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["5x"]), pa.int64()), (pa.array([1 << 40]), pa.int32()), (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([2]), pa.bool_()), (pa.array([True]), pa.int32()), (pa.array([5]), pa.timestamp("us")),
        (pa.array([5], pa.int32()), pa.date32()), (pa.array([0.1]), pa.float32()),
        (pa.array([(1 << 53) + 1]), pa.float64()), (pa.array([Decimal("1.11")]), pa.decimal128(20, 1)),
        (pa.array([datetime(2020, 1, 1, 1)]), pa.date32()),
        (pa.array([datetime(2020, 1, 1)]), pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_what_a_type_does_not_hold_is_said(column: pa.Array, kind: pa.DataType) -> None:
    inside = pa.StructArray.from_arrays([column], names=["v"])
    with pytest.raises(NotHeld) as said:
        conform(inside, pa.struct([("v", kind)]), "after")
    assert said.value.path == "after.v"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.list_(pa.int32()), [1, None, -3], "[1, null, -3]"),
        (pa.list_(pa.string()), ["é", None], '["é", null]'),
        (pa.struct([("x", pa.decimal128(4, 2)), ("b", pa.binary())]), {"x": Decimal("1.50"), "b": b"\x01"},
         '{"x": "1.50", "b": "AQ=="}'),
        (pa.map_(pa.string(), pa.date32()), {"k": date(2024, 1, 2)}, '{"k": "2024-01-02"}'),
    ],
)  # fmt: skip
def test_a_string_holds_nested_values_as_json(kind: pa.DataType, value: Any, text: str) -> None:
    assert conform(pa.array([value, None], kind), pa.string()).to_pylist() == [text, None]
