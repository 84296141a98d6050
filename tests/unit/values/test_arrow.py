"""Semantic types have the right Arrow types, including families of other packages."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace import values
from tailrace.columns.logical import DOUBLE, INT32, INT64, STRING, LogicalType, array, mapping, semantic
from tailrace.values import dates, decimals, geometry, instants, intervals, lists, maps, strings, times, timestamps
from tailrace.values.arrow import stored
from tailrace.values.booleans import bits_type
from tailrace.values.conversion import ColumnPlan, Conversion, Family, TypedColumn
from tailrace.values.fragments import column_fragment, json_array
from tailrace.values.texts import Texts


@pytest.mark.parametrize(
    ("logical", "wanted"),
    [
        (INT64, pa.int64()),
        (decimals.decimal_type(2, 12), pa.decimal128(12, 2)),
        (decimals.decimal_type(-2, 5), pa.decimal128(5, -2)),
        (decimals.decimal_type(10, 5), pa.decimal128(10, 10)),
        (decimals.decimal_type(2, None), pa.decimal128(38, 2)),
        (decimals.decimal_type(20, 60), pa.decimal256(60, 20)),
        (decimals.decimal_type(2, 77), pa.string()),
        (decimals.VARIABLE_DECIMAL, pa.string()),
        (dates.DATE, pa.date32()),
        (dates.CONNECT_DATE, pa.date32()),
        (dates.ISO_DATE, pa.string()),
        (times.TIME, pa.time32("ms")),
        (times.MICRO_TIME, pa.time64("us")),
        (times.NANO_TIME, pa.time64("ns")),
        (times.CONNECT_TIME, pa.time32("ms")),
        (times.ZONED_TIME, pa.string()),
        (timestamps.TIMESTAMP, pa.timestamp("ms")),
        (timestamps.MICRO_TIMESTAMP, pa.timestamp("us")),
        (timestamps.NANO_TIMESTAMP, pa.timestamp("ns")),
        (timestamps.CONNECT_TIMESTAMP, pa.timestamp("ms")),
        (timestamps.ISO_TIMESTAMP, pa.string()),
        (instants.ZONED_TIMESTAMP, pa.timestamp("us", "UTC")),
        (intervals.MICRO_DURATION, pa.duration("us")),
        (strings.UUID, pa.string()),
        (bits_type(5), pa.binary()),
        (lists.FLOAT_VECTOR, pa.list_(pa.field("element", pa.float32(), False))),
        (array(dates.DATE.with_optional(True)), pa.list_(pa.field("element", pa.date32(), True))),
        (mapping(STRING), pa.map_(pa.string(), pa.field("value", pa.string(), False))),
    ],
)
def test_the_arrow_type_of_a_semantic_type(logical: LogicalType, wanted: pa.DataType) -> None:
    assert values.arrow_type_of(logical) == wanted


def test_structs_are_structs_of_their_fields() -> None:
    point = values.arrow_type_of(geometry.POINT)
    assert [(field.name, field.type, field.nullable) for field in point] == [
        ("x", pa.float64(), False),
        ("y", pa.float64(), False),
        ("wkb", pa.binary(), True),
        ("srid", pa.int32(), True),
    ]
    assert values.arrow_type_of(maps.SPARSE_VECTOR).field("vector").type.item_type == pa.float64()
    assert values.arrow_type_of(dates.STRUCTURED_DATE).field("month").type == pa.int8()


def plan_of(conversion: Conversion, null: bytes = b"null", unavailable: bytes = b"null") -> ColumnPlan:
    return ColumnPlan(0, "v", "v", conversion.logical.with_optional(True), conversion, null, unavailable)


def column(*texts: str | None) -> pa.Array:
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def test_a_row_without_a_value_is_what_the_plan_shows_for_it() -> None:
    plan = plan_of(decimals.fixed(2, 12), null=b'"ZA=="', unavailable=b'"AA=="')
    found, lost = values.typed(plan, column("1.5", None, "none", None, "NaN"), np.array([0, 1, 0, 0, 0], np.bool_))
    assert found.to_pylist() == [Decimal("1.50"), Decimal("0.00"), Decimal("1.00"), Decimal("1.00"), Decimal("1.00")]
    assert lost.tolist() == [False, False, True, False, True]


def test_numbers_of_more_digits_than_arrow_has_are_texts() -> None:
    digits = "9" * 80
    plan = plan_of(decimals.fixed(1, 81))
    assert values.arrow(plan, column(digits, "-0.05", None)).to_pylist() == [f"{digits}.0", "-0.1", None]
    wide = plan_of(decimals.fixed(0, 76))
    assert values.arrow(wide, column("-" + digits[:76])).to_pylist() == [Decimal("-" + digits[:76])]
    found, lost = values.typed(wide, column(digits[:77], "1"))
    assert (found.to_pylist(), lost.tolist()) == ([None, Decimal(1)], [True, False])


def test_numbers_with_their_own_scale_are_plain_digits() -> None:
    plan = plan_of(decimals.variable())
    assert values.arrow(plan, column("1.500", "-0.05", "100", "7.0")).to_pylist() == ["1.5", "-0.05", "100", "7"]
    assert values.arrow(plan, column("-0.0", "NaN", "007")).to_pylist() == ["0", None, "7"]


def test_infinite_dates_are_the_ends_of_an_int32() -> None:
    found = values.arrow(plan_of(dates.date("adaptive", strict=False)), column("infinity", "-infinity", "1970-01-02"))
    assert found.view(pa.int32()).to_pylist() == [2**31 - 1, -(2**31), 1]


def test_an_offset_is_taken_off() -> None:
    plan = plan_of(instants.offset_timestamp(7, "adaptive"))
    found = values.arrow(plan, column("2019-05-27 13:58:28.1234567 +02:00"))
    assert found.cast(pa.int64()).to_pylist() == [1_558_958_308_123_456]


@dataclass(frozen=True, slots=True)
class _Halves(Family):
    """Numbers in units of one half; texts are whole numbers."""

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        numbers = [None if text is None else int(text) / 2 for text in texts.column.to_pylist()]
        return TypedColumn(pa.array(numbers, of), texts.state)


def _halves(text: str) -> int:
    return int(text)


def test_a_family_of_another_package_needs_no_table() -> None:
    logical = semantic(INT32, "toy.Halves")
    stored("toy.Halves", pa.float64(), lambda value, logical: value / 2)
    for family in (_Halves(), Family()):
        plan = plan_of(Conversion(logical, _halves, family), null=b"8")
        found = values.arrow(plan, column("3", None, "4"))
        assert (found.type, found.to_pylist()) == (pa.float64(), [1.5, 4.0, 2.0])
        fragment, lost = column_fragment(plan, column("3", None, "x"), None)
        assert (json_array(fragment).to_pylist(), lost) == (["3", "8", "8"], 1)


def test_a_type_without_a_family_is_converted_a_value_at_a_time() -> None:
    seen: list[str] = []

    def plain(text: str) -> Any:
        seen.append(text)
        return {"a": float(text)} if text != "-" else None

    logical = LogicalType("map", items=DOUBLE)
    plan = plan_of(Conversion(logical, plain))
    found, lost = values.typed(plan, column("1", "1", "-", "x", None))
    assert found.to_pylist() == [[("a", 1.0)], [("a", 1.0)], None, None, None]
    assert lost.tolist() == [False, False, False, True, False]
    assert seen == ["1", "-", "x"]
