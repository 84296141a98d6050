"""Infinite dates and timestamps become two days in copies that Spark and Python can read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tailrace.values import dates, instants, timestamps, typed
from tailrace.values.conversion import Conversion
from tailrace.values.infinite import EARLIEST, LATEST, finite
from tests.layout_blocks import plan_of, text_column

LATE, EARLY = (datetime(day.year, day.month, day.day) for day in (LATEST, EARLIEST))


def held(conversion: Conversion, *texts: str | None) -> list[Any]:
    values, lost = typed(plan_of(conversion), text_column(*texts))
    assert not lost.any()
    found, count = finite(values)
    assert count == 2
    found.validate(full=True)
    return list(found.to_pylist())


def test_infinite_dates_are_days_of_the_calendar() -> None:
    found = held(dates.date("adaptive", False), "2024-02-03", "infinity", None, "-infinity")
    assert found == [datetime(2024, 2, 3).date(), LATEST, None, EARLIEST]


@pytest.mark.parametrize(
    ("digits", "mode"), [(6, "adaptive"), (3, "adaptive"), (6, "connect"), (6, "microseconds"), (6, "nanoseconds")]
)
def test_infinite_timestamps_are_the_beginnings_of_these_days(digits: int, mode: str) -> None:
    conversion = timestamps.timestamp(digits, mode, False)
    assert held(conversion, "2024-02-03 00:00:00", "infinity", None, "-infinity") == [
        datetime(2024, 2, 3),
        LATE,
        None,
        EARLY,
    ]


def test_infinite_moments_are_those_of_utc() -> None:
    found = held(instants.instant(6, "adaptive", False), "infinity", None, "-infinity")
    assert found == [LATE.replace(tzinfo=UTC), None, EARLY.replace(tzinfo=UTC)]


def test_they_are_found_in_lists_and_structs() -> None:
    days = pa.array([2**31 - 1, 5, -(2**31)], pa.int32()).cast(pa.date32())
    part = pa.StructArray.from_arrays([days], names=["d"], mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 3], pa.int32()), part)
    found, count = finite(lists)
    assert (found.to_pylist(), count) == ([[{"d": LATEST}, None], [{"d": EARLIEST}], None], 2)
    assert finite(lists.slice(2))[0].to_pylist() == [None]
    assert finite(pa.array([1])) == (pa.array([1]), 0)
