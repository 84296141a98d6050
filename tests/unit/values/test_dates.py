"""Dates under each time.precision.mode: from BC to the server's last, infinite, and none at all."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tailrace.columns.logical import INT32, STRING, semantic
from tailrace.values import dates
from tests.unit.values.shown_values import NOTHING, held, shown, zero_of

DAYS = ("1970-01-01", "1969-12-31", "0001-01-01", "1582-10-14", "1582-10-15", "2000-02-29", "1900-03-01", "9999-12-31")
NONE = ("2020-13-01", "2020-00-10", "2020-01-32", "20-01-01", "2020-1-01", "2020-01-01 ", "x", "", "2020/01/01")
NAMES = ("year", "month", "day")


def days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("mode", "name"), [("adaptive", "io.debezium.time.Date"), ("connect", "org.apache.kafka.connect.data.Date")]
)
def test_a_date_is_days_since_1970_in_the_gregorian_calendar(mode: str, name: str, strict: bool) -> None:
    conversion = dates.date(mode, strict)
    assert conversion.logical == semantic(INT32, name)
    wanted = [*map(days, DAYS), *[NOTHING] * len(NONE)]
    assert shown(conversion, *DAYS, *NONE) == held(conversion, *DAYS, *NONE) == wanted
    assert zero_of(conversion) == "0"


@pytest.mark.parametrize("strict", [False, True])
def test_a_date_may_be_iso_text(strict: bool) -> None:
    conversion = dates.date("isostring", strict)
    assert conversion.logical == semantic(STRING, "io.debezium.time.IsoDate")
    wanted = [*(f"{text}Z" for text in DAYS), *[NOTHING] * len(NONE)]
    assert shown(conversion, *DAYS, *NONE) == held(conversion, *DAYS, *NONE) == wanted
    assert zero_of(conversion) == '"1970-01-01Z"'


@pytest.mark.parametrize("strict", [False, True])
def test_a_date_may_be_its_parts(strict: bool) -> None:
    conversion = dates.date("structured", strict)
    assert conversion.logical.name == "io.debezium.time.StructuredDate"
    parts = [dict(zip(NAMES, map(int, text.split("-")), strict=True)) | {"specialValue": None} for text in DAYS]
    assert shown(conversion, *DAYS, *NONE) == held(conversion, *DAYS, *NONE) == [*parts, *[NOTHING] * len(NONE)]


@pytest.mark.parametrize(
    ("text", "number", "iso", "parts"),
    [
        ("infinity", 2**31 - 1, "+5881580-07-11Z", "POSITIVE_INFINITY"),
        ("-infinity", -(2**31), "-5877641-06-23Z", "NEGATIVE_INFINITY"),
        # The server's first and last dates, and the ides of March.
        ("4714-11-24 BC", -2_440_588, "-4713-11-24Z", [-4713, 11, 24]),
        ("5874897-12-31", 2_145_042_905, "+5874897-12-31Z", [5874897, 12, 31]),
        ("0044-03-15 BC", -735_160, "-0043-03-15Z", [-43, 3, 15]),
        ("0001-12-31 BC", -719_163, "0000-12-31Z", [0, 12, 31]),
    ],
)
def test_dates_beyond_four_digits_are_those_of_postgresql_alone(text: str, number: int, iso: str, parts: Any) -> None:
    special = parts if isinstance(parts, str) else None
    split = [None] * 3 if special else parts
    structured = dict(zip(NAMES, split, strict=True)) | {"specialValue": special}
    for mode, wanted in (("adaptive", number), ("connect", number), ("isostring", iso), ("structured", structured)):
        assert shown(dates.date(mode, False), text) == held(dates.date(mode, False), text) == [wanted]
        assert shown(dates.date(mode, True), text, "2020-01-01")[0] == NOTHING
