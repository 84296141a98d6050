"""Values of every Arrow type of the driver become text, and expressions select what has a text."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.columns import Column
from tailrace.connectors.sqlserver.values.declaration import modifier
from tailrace.connectors.sqlserver.values.texts import bound, declared, hexadecimal, parameter, quoted, selected, texts
from tailrace.errors import ConversionError


def column(kind: str, max_length: int = 0, precision: int = 0, scale: int = 0, name: str = "c") -> Column:
    return Column(name, kind, 0, modifier(kind, max_length, precision, scale))


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(0, 3))
def test_bytes_become_hexadecimal_digits(values: list[bytes | None], skipped: int) -> None:
    for kind in (pa.large_binary(), pa.binary()):
        array = pa.array(values, kind).slice(min(skipped, len(values)))
        expected = [None if value is None else b"\\x" + value.hex().encode() for value in array.to_pylist()]
        made = hexadecimal(array)
        assert made.type == pa.binary()
        assert made.to_pylist() == expected


@given(
    st.lists(st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-1e20, max_value=1e20))
)
def test_decimals_have_plain_digits(values: list[decimal.Decimal | None]) -> None:
    array = pa.array(values, pa.decimal128(38, 6))
    expected = [None if value is None else f"{value:f}".encode() for value in array.to_pylist()]
    assert texts(array).to_pylist() == expected


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_read_back_as_they_were(values: list[float | None]) -> None:
    found = texts(pa.array(values, pa.float64())).to_pylist()
    assert [None if text is None else float(text) for text in found] == values


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, None, False]), [b"t", None, b"f"]),
        (pa.array([1.1], pa.float32()), [b"1.1"]),
        (pa.array([-(2**63), 2**63 - 1]), [b"-9223372036854775808", b"9223372036854775807"]),
        (pa.array([255], pa.uint8()), [b"255"]),
        (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), [b"0001-01-01", b"9999-12-31"]),
        (pa.array(["\u017d", None], pa.large_string()), ["\u017d".encode(), None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_each_type_of_arrow_has_its_text(array: pa.Array, expected: list[bytes | None]) -> None:
    made = texts(array)
    assert made.type == pa.binary()
    assert made.to_pylist() == expected


def test_a_type_that_would_lose_digits_is_refused() -> None:
    for array in (
        pa.array([decimal.Decimal("1e-7")], pa.decimal128(38, 7)),
        pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us")),
        pa.array([dt.time(1)], pa.time64("ns")),
    ):
        with pytest.raises(ConversionError, match="has no text"):
            texts(array)


@pytest.mark.parametrize(
    ("of", "expression"),
    [
        (column("int"), "[c]"),
        (column("decimal", 9, 10, 6), "[c]"),
        (column("decimal", 9, 10, 7), "convert(varchar(41), [c])"),
        (column("money"), "convert(decimal(19, 4), [c])"),
        (column("datetime"), "convert(varchar(23), [c], 121)"),
        (column("datetimeoffset", 10, 34, 7), "convert(varchar(34), [c], 121)"),
        (column("smalldatetime"), "convert(varchar(19), [c], 120)"),
        (column("xml"), "convert(nvarchar(max), [c])"),
        (column("timestamp"), "convert(binary(8), [c])"),
        (column("geography"), "convert(varbinary(max), [c])"),
        (column("some_new_type"), "convert(nvarchar(max), [c])"),
    ],
)
def test_a_column_is_selected_in_a_form_that_loses_nothing(of: Column, expression: str) -> None:
    assert selected(of) == expression


@pytest.mark.parametrize(
    ("of", "kind", "expression"),
    [
        (column("decimal", 9, 10, 2), "decimal(10, 2)", "convert(decimal(10, 2), ?)"),
        (column("nvarchar", 100), "nvarchar(50)", "convert(nvarchar(50), ?)"),
        (column("varchar", -1), "varchar(max)", "convert(varchar(max), ?)"),
        (column("datetime2", 8, 27, 7), "datetime2(7)", "convert(datetime2(7), ?, 121)"),
        (column("date"), "date", "convert(date, ?, 23)"),
        (column("timestamp"), "binary(8)", "convert(binary(8), ?)"),
        (column("uniqueidentifier"), "uniqueidentifier", "convert(uniqueidentifier, ?)"),
    ],
)
def test_a_parameter_gets_the_type_of_its_column(of: Column, kind: str, expression: str) -> None:
    assert declared(of) == kind
    assert parameter(of) == expression


def test_the_text_of_a_key_is_bound_as_its_type_wants_it() -> None:
    assert bound(column("bit"), "t") == 1
    assert bound(column("bit"), "f") == 0
    assert bound(column("varbinary", 10), "\\x00ff") == b"\0\xff"
    assert bound(column("varchar", 10), "\\x00ff") == "\\x00ff"
    assert bound(column("int"), "-1") == "-1"


def test_names_cannot_leave_their_brackets() -> None:
    assert quoted("dbo", "a]; drop table b --") == "[dbo].[a]]; drop table b --]"
    assert selected(column("int", name="x]y"), "t") == "t.[x]]y]"
