"""Values of IBM's driver become the texts that the reader of change tables takes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.columns.table import Column
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT
from tailrace.connectors.db2.server.rows import change_rows, microseconds, parameter, selected, texts
from tailrace.connectors.db2.values.declaration import modifier
from tailrace.errors import ConversionError, PrerequisiteError


def column(type_name: str, size: int | None = None, digits: int | None = None) -> Column:
    return Column("C", type_name, 0, modifier(type_name, size, digits))


def text(of: Column, *values: Any) -> list[str | None]:
    return [None if one is None else one.decode() for one in texts(of, values).to_pylist()]


@pytest.mark.parametrize(
    ("of", "values", "expected"),
    [
        (column("SMALLINT"), (-5, None), ["-5", None]),
        (column("BIGINT"), (-(2**63),), ["-9223372036854775808"]),
        (column("DECIMAL", 9, 2), ("0.50", "-.5", "7", None), ["0.50", "-0.50", "7.00", None]),
        (column("DECIMAL", 31, 12), ("0.000000000001", "0"), ["0.000000000001", "0.000000000000"]),
        (column("DECIMAL", 31, 0), ("-1234567890123456789012345678901",), ["-1234567890123456789012345678901"]),
        (column("DECFLOAT", 34), ("1E+3", "NaN"), ["1E+3", "NaN"]),
        (column("REAL"), (1.100000023841858, None), ["1.1", None]),
        (column("DOUBLE"), (1e300, 0.1, 5.0), ["1e+300", "0.1", "5"]),
        (column("BOOLEAN"), (1, 0, True, "false", None), ["t", "f", "t", "f", None]),
        (column("DATE"), (dt.date(1, 1, 1), dt.date(9999, 12, 31)), ["0001-01-01", "9999-12-31"]),
        (column("TIME"), (0, 86399, 86400, None), ["00:00:00", "23:59:59", "24:00:00", None]),
        (column("CHAR", 5), ("ab   ", "žluť"), ["ab   ", "žluť"]),
        (column("XML"), ("<a/>", b"<b/>"), ["<a/>", "<b/>"]),
        (column("BLOB", 10), (b"\x00\xff", b"", None), ["\\x00ff", "\\x", None]),
        (column("CHAR () FOR BIT DATA", 2), (b"\x01\x02",), ["\\x0102"]),
    ],
)
def test_each_type_has_its_text(of: Column, values: tuple[Any, ...], expected: list[str | None]) -> None:
    assert text(of, *values) == expected


@pytest.mark.parametrize(
    ("digits", "given_text", "expected"),
    [
        (6, "2026-01-02-03.04.05.100000", "2026-01-02 03:04:05.100000"),
        (6, "2026-01-02 03:04:05.1", "2026-01-02 03:04:05.100000"),
        (0, "2026-01-02-03.04.05", "2026-01-02 03:04:05"),
        (0, "2026-01-02 03:04:05.0", "2026-01-02 03:04:05"),
        (12, "0001-01-01-00.00.00.123456789012", "0001-01-01 00:00:00.123456789012"),
        (3, "9999-12-31-24.00.00.000", "9999-12-31 24:00:00.000"),
    ],
)
def test_timestamps_are_the_same_from_every_server(digits: int, given_text: str, expected: str) -> None:
    of = column("TIMESTAMP", 26, digits)
    assert text(of, given_text, None) == [expected, None]


def test_a_timestamps_zone_stands_apart() -> None:
    of = column("TIMESTAMP WITH TIME ZONE", 38, 6)
    assert text(of, "2026-01-02-03.04.05.100000-05:30", None) == ["2026-01-02 03:04:05.100000 -05:30", None]


@given(st.lists(st.none() | st.decimals(min_value=-(10**8), max_value=10**8, places=7), max_size=20))
def test_decimals_are_plain_digits_with_the_scale_of_the_type(values: list[Decimal | None]) -> None:
    of = column("DECIMAL", 31, 7)
    expected = [None if value is None else format(value if value else Decimal(0), ".7f") for value in values]
    assert text(of, *[None if value is None else str(format(value, "f")) for value in values]) == expected


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_doubles_read_back(values: list[float | None]) -> None:
    found = text(column("DOUBLE"), *values)
    assert [None if one is None else float(one) for one in found] == values


@given(st.lists(st.none() | st.datetimes(), max_size=20))
def test_timestamps_read_back(values: list[dt.datetime | None]) -> None:
    found = text(column("TIMESTAMP", 26, 6), *[None if v is None else v.isoformat(" ", "microseconds") for v in values])
    assert [None if one is None else dt.datetime.fromisoformat(one) for one in found] == values


@pytest.mark.parametrize("of", [column("INTEGER"), column("DECIMAL", 9, 2), column("TIMESTAMP", 26, 6), column("BLOB")])
def test_a_value_of_another_kind_is_told_without_the_value(of: Column) -> None:
    with pytest.raises(ConversionError) as caught:
        texts(of, ["hush"])
    assert "The column C of the type" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_types_are_selected_as_text_where_the_driver_would_lose_some() -> None:
    assert selected(column("TIMESTAMP", 26, 12), '"C"') == 'CAST("C" AS VARCHAR(48))'
    assert selected(column("TIME"), '"C"') == 'HOUR("C") * 3600 + MINUTE("C") * 60 + SECOND("C")'
    assert selected(column("DATE"), '"C"') == '"C"'


def test_a_value_goes_back_as_the_driver_takes_it() -> None:
    assert parameter(column("VARCHAR () FOR BIT DATA", 4), "\\x00ff") == b"\x00\xff"
    assert parameter(column("DECIMAL", 9, 2), "1.50") == "1.50"


def test_an_update_with_both_images_becomes_two_rows() -> None:
    id_ = Column("ID", "INTEGER", 4)
    fetch = [
        (b"\x01", b"\x01", "I", None, 1),
        (b"\x01", b"\x02", "U", 1, 2),
        (b"\x02", b"\x03", "D", 2, 2),
        (b"\x02", b"\x04", "U", 3, 4),
    ]
    rows = change_rows(fetch, [id_], doubled=True)
    assert rows.operation.tolist() == [INSERT, BEFORE, AFTER, DELETE, BEFORE, AFTER]
    assert rows.columns[0].to_pylist() == [b"1", b"1", b"2", b"2", b"3", b"4"]
    assert rows.commit.to_pylist() == [b"\x01", b"\x01", b"\x01", b"\x02", b"\x02", b"\x02"]
    assert rows.change.to_pylist() == [b"\x01", b"\x02", b"\x02", b"\x03", b"\x04", b"\x04"]
    assert rows.operation.dtype == np.uint8


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match="neither I nor U nor D"):
        change_rows([(b"\x01", b"\x01", "X", 1)], [Column("ID", "INTEGER", 4)], doubled=False)


def test_the_servers_clock_becomes_utc() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
    assert microseconds(at, 2 * 3600 * 1_000_000) == 1767315845678901
