"""Intervals: microseconds, ISO text, and parts, each with its own sign."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns.logical import INT64, STRING, semantic
from tailrace.values import intervals
from tests.unit.values.shown_values import NOTHING, held, shown, zero_of

MONTH, DAY = 2_629_800_000_000, 86_400_000_000
"""In microseconds: a month is a twelfth of 365.25 days."""
CASES: dict[str, tuple[Any, str]] = {
    "00:00:00": (0, "P0Y0M0DT0H0M0S"),
    "1 year 2 mons 3 days 04:05:06.7": (14 * MONTH + 3 * DAY + 14_706_700_000, "P1Y2M3DT4H5M6.7S"),
    "-1 years -2 mons +3 days -04:05:06.000001": (-14 * MONTH + 3 * DAY - 14_706_000_001, "P-1Y-2M3DT-4H-5M-6.000001S"),
    "-1 days +02:03:00": (-DAY + 7_380_000_000, "P0Y0M-1DT2H3M0S"),
    "1 mon": (MONTH, "P0Y1M0DT0H0M0S"),
    "1 day 25:00:00": (DAY + 90_000_000_000, "P0Y0M1DT25H0M0S"),
    "-00:00:00.000001": (-1, "P0Y0M0DT0H0M-0.000001S"),
    # Intervals beyond 64 bits of µs become the limits.
    "178000000 years": (2**63 - 1, "P178000000Y0M0DT0H0M0S"),
    "-178000000 years": (-(2**63), "P-178000000Y0M0DT0H0M0S"),
    "2562047788:00:54.775807": (2**63 - 1, "P0Y0M0DT2562047788H0M54.775807S"),
    "x": (NOTHING, NOTHING),
    "": (NOTHING, NOTHING),
    "1 days 1 year": (NOTHING, NOTHING),
    "1 day 1:00:00": (NOTHING, NOTHING),
    "1 day ": (NOTHING, NOTHING),
    "1 week": (NOTHING, NOTHING),
    "2562047789:00:00": (NOTHING, NOTHING),
}
"""Texts of the server, their microseconds and their ISO text."""


@pytest.mark.parametrize("mode", ["adaptive", "connect", "nanoseconds"])
def test_an_interval_is_microseconds(mode: str) -> None:
    conversion = intervals.interval(6, mode, "numeric")
    assert conversion.logical == semantic(INT64, "io.debezium.time.MicroDuration")
    wanted = [us for us, _ in CASES.values()]
    assert shown(conversion, *CASES) == held(conversion, *CASES) == wanted
    assert zero_of(conversion) == "0"


def test_an_interval_may_be_iso_text() -> None:
    conversion = intervals.interval(6, "adaptive", "string")
    assert conversion.logical == semantic(STRING, "io.debezium.time.Interval")
    wanted = [text for _, text in CASES.values()]
    assert shown(conversion, *CASES) == held(conversion, *CASES) == wanted


@pytest.mark.parametrize("handling", ["numeric", "string"])
def test_an_interval_may_be_its_parts(handling: str) -> None:
    conversion = intervals.interval(3, "structured", handling)
    texts = ("1 year -2 mons 3 days -04:05:06.7", "-00:00:01.5", "3000000000 days", "x")
    names = ("years", "months", "days", "hours", "minutes", "seconds", "nanos")
    wanted = [
        dict(zip(names, parts, strict=True)) | {"precision": 3}
        for parts in ((1, -2, 3, -4, -5, -6, -700_000_000), (0, 0, 0, 0, 0, -1, -500_000_000))
    ]
    assert shown(conversion, *texts) == held(conversion, *texts) == [*wanted, NOTHING, NOTHING]
