"""Times of day, without a zone and with one, under each time.precision.mode."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns.logical import INT32, INT64, STRING, semantic
from tailrace.values import times
from tests.unit.values.shown_values import NOTHING, held, shown, zero_of

CLOCKS = {"00:00:00": 0, "00:00:00.000001": 1, "12:34:56.7": 45_296_700_000, "23:59:59.999999": 86_399_999_999}
"""Texts, and the microseconds of each."""
NONE = ("1:00:00", "12:60:00", "12:00:60", "25:00:00", "24:00:00.000001", "12:00", "12:00:00.", "12:00:00Z", "", "x")
MILLIS, MICROS, NANOS = 1000, 1, 0
DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."


def in_unit(us: int, unit: int) -> int:
    return us // unit if unit else us * 1000


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize(
    ("mode", "digits", "name", "unit"),
    [
        ("adaptive", 0, DEBEZIUM + "Time", MILLIS),
        ("adaptive", 3, DEBEZIUM + "Time", MILLIS),
        ("adaptive", 4, DEBEZIUM + "MicroTime", MICROS),
        ("adaptive", 7, DEBEZIUM + "NanoTime", NANOS),
        ("adaptive_time_microseconds", 0, DEBEZIUM + "MicroTime", MICROS),
        ("adaptive_time_microseconds", 7, DEBEZIUM + "MicroTime", MICROS),
        ("connect", 6, CONNECT + "Time", MILLIS),
        ("microseconds", 0, DEBEZIUM + "MicroTime", MICROS),
        ("nanoseconds", 0, DEBEZIUM + "NanoTime", NANOS),
    ],
)
def test_a_time_is_a_number_of_its_modes_unit(mode: str, digits: int, name: str, unit: int, fine: bool) -> None:
    conversion = times.time(digits, mode, fine)
    assert conversion.logical == semantic(INT32 if unit == MILLIS else INT64, name)
    wanted = [*(in_unit(us, unit) for us in CLOCKS.values()), *[NOTHING] * len(NONE)]
    assert shown(conversion, *CLOCKS, *NONE) == held(conversion, *CLOCKS, *NONE) == wanted
    # 24:00:00 is a time of the server, and not of Arrow.
    assert shown(conversion, "24:00:00") == [in_unit(86_400_000_000, unit)]
    assert held(conversion, "24:00:00", "00:00:00") == [NOTHING, 0]
    assert zero_of(conversion) == "0"


@pytest.mark.parametrize("fine", [False, True])
def test_a_time_may_be_iso_text(fine: bool) -> None:
    """It has as many digits as needed; 24:00:00 becomes the beginning of the day."""
    conversion = times.time(6, "isostring", fine)
    assert conversion.logical == semantic(STRING, DEBEZIUM + "IsoTime")
    texts = ("00:00:00", "12:34:56.700", "23:59:59.999999", "24:00:00", "25:00:00")
    wanted = ["00:00:00Z", "12:34:56.7Z", "23:59:59.999999Z", "00:00:00Z", NOTHING]
    assert shown(conversion, *texts) == held(conversion, *texts) == wanted


def test_texts_may_have_more_digits_than_six() -> None:
    texts = ("12:34:56.1234567", "23:59:59.9999999", "12:34:56.1234567899")
    nanos = [45_296_123_456_700, 86_399_999_999_900, 45_296_123_456_789]
    for mode, per in (("adaptive", 1), ("microseconds", 1000), ("connect", 1_000_000)):
        assert shown(times.time(7, mode, True), *texts) == [number // per for number in nanos]
        assert shown(times.time(7, mode, False), *texts) == [NOTHING] * 3
    assert shown(times.time(7, "isostring", True), *texts) == [
        "12:34:56.1234567Z", "23:59:59.9999999Z", "12:34:56.123456789Z",
    ]  # fmt: skip


@pytest.mark.parametrize("fine", [False, True])
def test_a_time_may_be_its_parts(fine: bool) -> None:
    conversion = times.time(3, "structured", fine)
    assert conversion.logical.name == DEBEZIUM + "StructuredTime"
    texts = ("00:00:00", "12:34:56.7", "24:00:00", "24:00:01")
    parts: list[Any] = [
        {"hour": hour, "minute": minute, "second": second, "nanos": nanos, "precision": 3}
        for hour, minute, second, nanos in ((0, 0, 0, 0), (12, 34, 56, 700_000_000), (24, 0, 0, 0))
    ]
    assert shown(conversion, *texts) == held(conversion, *texts) == [*parts, NOTHING]


def test_a_time_with_an_offset_is_text_in_utc() -> None:
    conversion = times.zoned_time(6, "adaptive")
    assert conversion.logical == semantic(STRING, DEBEZIUM + "ZonedTime")
    cases = {
        "00:00:00+00": "00:00:00Z", "12:00:00.5+02": "10:00:00.5Z", "23:59:59.5-05:30": "05:29:59.5Z",
        "00:00:00+14": "10:00:00Z", "12:00:00+01:02:03": "10:57:57Z", "00:00:00-15:59:59": "15:59:59Z",
        "24:00:00+00": "00:00:00Z", "12:00:00": NOTHING, "12:00:00+2": NOTHING, "12:00:00+02:60": NOTHING,
    }  # fmt: skip
    assert shown(conversion, *cases) == held(conversion, *cases) == list(cases.values())
    assert zero_of(conversion) == '"00:00:00Z"'


def test_a_time_with_an_offset_may_be_its_parts_in_its_own_zone() -> None:
    conversion = times.zoned_time(6, "structured")
    wanted = {"hour": 23, "minute": 59, "second": 59, "nanos": 500_000_000, "offsetSeconds": -19_800, "precision": 6}
    assert (
        shown(conversion, "23:59:59.5-05:30", "12:00:00")
        == held(conversion, "23:59:59.5-05:30", "12:00:00")
        == [wanted, NOTHING]
    )
