"""Values of one of Connect's types become another type, as Java casts and reads them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column
from tailrace.columns.logical import LogicalType
from tailrace.errors import TransformError
from tailrace.formats.casts import TYPES, cast
from tailrace.records.transform import RefusedRecord
from tests.unit.events.changes import Change, table
from tests.unit.transforms.chains import CONNECT, rows

PLAIN = LogicalType("plain")


def made(word: str, *values: Any, of: pa.DataType | None = None) -> list[Any]:
    found: list[Any] = cast(PLAIN, TYPES[word], "the field f", pa.array(values, of)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("word", "value", "found"),
    [
        ("int8", 300, 44),
        ("int16", -40_000, 25_536),
        ("int32", 1 << 32, 0),
        ("int64", 5, 5),
        ("int8", 300.7, 44),
        ("int32", 1e20, (1 << 31) - 1),
        ("int64", -1e30, -(1 << 63)),
        ("int64", math.nan, 0),
        ("int16", -1.9, -1),
        ("float32", 0.1, 0.10000000149011612),
        ("float64", 3, 3.0),
        ("boolean", 0, False),
        ("boolean", -2, True),
        ("boolean", 0.5, False),
        ("int32", True, 1),
        ("float64", True, 1.0),
        ("boolean", "TRUE", True),
        ("boolean", "yes", False),
        ("int8", "-128", -128),
        ("int32", "+7", 7),
        ("float64", " 1.5e3d ", 1500.0),
        ("float64", "Infinity", math.inf),
        ("int32", Decimal("12.99"), 12),
        ("int64", Decimal("123456789012345678901234567890"), -4_362_896_299_872_285_998),
        ("int8", Decimal("-1.5"), -1),
        ("float64", Decimal("0.1"), 0.1),
        ("boolean", Decimal("0.9"), False),
        ("string", 5, "5"),
        ("string", True, "true"),
        ("string", 1.0, "1.0"),
        ("string", 1e21, "1.0E21"),
        ("string", 0.0001, "1.0E-4"),
        ("string", math.nan, "NaN"),
        ("string", -math.inf, "-Infinity"),
        ("string", Decimal("12.340"), "12.340"),
        ("string", Decimal("0.0000001"), "1E-7"),
        ("string", b"\x01\x02", "AQI="),
    ],
)
def test_a_value_is_cast_as_java_does(word: str, value: Any, found: Any) -> None:
    assert made(word, value, None) == [found, None]


def test_a_float_shows_its_own_digits() -> None:
    assert made("string", 0.1, 16_777_216.0, of=pa.float32()) == ["0.1", "1.6777216E7"]


@pytest.mark.parametrize(
    ("word", "value", "said"),
    [
        ("int8", "128", "beyond int8 in the field f"),
        ("int64", "9223372036854775808", "beyond int64"),
        ("int32", "1.0", "no int32 in the text of the field f"),
        ("int32", "", "no int32 in the text"),
        ("float64", "one", "no float64 in the text"),
        ("int32", b"\x01", "int32 of the bytes of the field f"),
    ],
)
def test_a_value_that_java_refuses_is_refused_with_its_row(word: str, value: Any, said: str) -> None:
    first = b"" if isinstance(value, bytes) else "1"
    with pytest.raises(RefusedRecord) as fault:
        made(word, None, first, value)
    assert said in fault.value.reason
    assert fault.value.row == (1 if isinstance(value, bytes) else 2)


def test_fields_and_their_defaults_are_cast() -> None:
    columns = [
        Column("id", "int4", 23, nullable=False),
        Column("n", "int4", 23, default="5"),
        Column("day", "date", 1082),
        Column("at", "timestamptz", 1184),
        Column("short", "timestamptz", 1184, 3),
    ]
    changes: list[Change] = [
        ("c", None, ["1", "7", "2020-01-02", "2020-01-02 03:04:05.6+00", "2020-01-02 03:04:05.6+00"]),
        ("c", None, ["2", None, None, None, None]),
    ]
    spec = {"type": f"{CONNECT}Cast$Value", "spec": "n:string, id:int64,day:string,at:string,short:string"}
    unwrap = {"type": "ExtractNewRecordState"}
    found = rows(unwrap, spec, schema=table("c", columns, "id"), changes=changes, value_schemas_enable=True)
    assert found[0]["value"]["payload"] == {"id": 1, "n": "7", "day": "18263", "at": "2020-01-02T03:04:05.600000Z",
                                              "short": "2020-01-02T03:04:05.600Z"}  # fmt: skip
    assert found[1]["value"]["payload"] == {"id": 2, "n": "5", "day": None, "at": None, "short": None}
    assert found[0]["value"]["schema"]["fields"][:2] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "default": "5", "field": "n"},
    ]
    masked = rows(unwrap, {"type": f"{CONNECT}MaskField$Value", "fields": "at"}, schema=table("c", columns, "id"),
                  changes=changes)  # fmt: skip
    assert [row["value"]["at"] for row in masked] == ["", None]
    connect = rows(unwrap, spec, schema=table("c", columns, "id"), changes=changes, time_precision_mode="connect")
    assert connect[0]["value"]["day"] == "2020-01-02"


def test_a_key_is_cast_as_a_whole() -> None:
    whole = {"type": f"{CONNECT}Cast$Key", "spec": "string"}
    assert [row["key"] for row in rows({"type": f"{CONNECT}ExtractField$Key", "field": "id"}, whole)] == ["1"] * 4
    with pytest.raises(TransformError, match="Cast cannot make string of the key, which is of the type struct"):
        rows(whole)
