"""Timestamps without a zone, and instants with an offset, under each time.precision.mode."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tailrace.columns.logical import INT64, STRING, semantic
from tailrace.values import instants, timestamps
from tests.unit.values.shown_values import NOTHING, held, shown, zero_of

DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
MOMENTS = (
    "1970-01-01 00:00:00", "1970-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999", "1900-02-28 12:00:00.5",
    "2000-02-29 23:59:59.123", "2020-01-02 03:04:05.678901",
)  # fmt: skip
"""Instants that every unit of 64 bits can represent."""
NONE = (
    "2020-01-02",
    "2020-01-02T00:00:00",
    "2020-01-02 24:00:00.1",
    "2020-13-02 00:00:00",
    "2020-01-02 00:00:00Z",
    "",
    "x",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def in_unit(us: int, unit: str) -> int:
    return {"ms": us // 1000, "us": us, "ns": us * 1000}[unit]


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize(
    ("mode", "digits", "name", "unit"),
    [
        ("adaptive", 0, DEBEZIUM + "Timestamp", "ms"),
        ("adaptive", 3, DEBEZIUM + "Timestamp", "ms"),
        ("adaptive", 6, DEBEZIUM + "MicroTimestamp", "us"),
        ("adaptive", 7, DEBEZIUM + "NanoTimestamp", "ns"),
        ("adaptive_time_microseconds", 6, DEBEZIUM + "MicroTimestamp", "us"),
        ("connect", 6, CONNECT + "Timestamp", "ms"),
        ("microseconds", 0, DEBEZIUM + "MicroTimestamp", "us"),
        ("nanoseconds", 3, DEBEZIUM + "NanoTimestamp", "ns"),
    ],
)
def test_a_timestamp_is_a_number_of_its_modes_unit(mode: str, digits: int, name: str, unit: str, fine: bool) -> None:
    conversion = timestamps.timestamp(digits, mode, fine)
    assert conversion.logical == semantic(INT64, name)
    wanted = [*(in_unit(micros(text), unit) for text in MOMENTS), *[NOTHING] * len(NONE)]
    assert shown(conversion, *MOMENTS, *NONE) == held(conversion, *MOMENTS, *NONE) == wanted
    assert zero_of(conversion) == "0"
    # The end of a day is the beginning of the next.
    assert shown(conversion, "2020-12-31 24:00:00") == [in_unit(micros("2021-01-01 00:00:00"), unit)]


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize(
    ("mode", "text", "number"),
    [
        ("connect", "0001-01-01 00:00:00", -62_135_596_800_000),
        ("connect", "9999-12-31 23:59:59.999999", 253_402_300_799_999),
        ("microseconds", "0001-01-01 00:00:00", -62_135_596_800_000_000),
        ("microseconds", "9999-12-31 23:59:59.999999", 253_402_300_799_999_999),
        ("nanoseconds", "0001-01-01 00:00:00", NOTHING),
        ("nanoseconds", "2262-04-11 23:47:16.854775", 9_223_372_036_854_775_000),
        ("nanoseconds", "2262-04-11 23:47:16.854776", NOTHING),
        ("nanoseconds", "1677-09-21 00:12:43.145225", -9_223_372_036_854_775_000),
        ("nanoseconds", "1677-09-21 00:12:43.145224", NOTHING),
    ],
)
def test_a_timestamp_that_64_bits_do_not_count_is_lost(mode: str, text: str, number: Any, fine: bool) -> None:
    conversion = timestamps.timestamp(6, mode, fine)
    assert shown(conversion, text, MOMENTS[0]) == held(conversion, text, MOMENTS[0]) == [number, 0]


@pytest.mark.parametrize(
    ("text", "ms", "us", "ns"),
    [
        # Debezium's own constants.
        ("infinity", 9_223_372_036_825_200, 9_223_372_036_825_200_000, 2**63 - 1),
        ("-infinity", -9_223_372_036_832_400, -9_223_372_036_832_400_000, -(2**63)),
        ("0044-03-15 00:00:00 BC", -63_517_824_000_000, -63_517_824_000_000_000, NOTHING),
        ("294247-01-10 04:00:54.775807", 9_223_372_036_854_775, 2**63 - 1, NOTHING),
        ("294247-01-10 04:00:54.775808", 9_223_372_036_854_775, NOTHING, NOTHING),
        ("294276-12-31 23:59:59.999999", 9_224_318_015_999_999, NOTHING, NOTHING),
    ],
)
def test_infinite_timestamps_and_those_beyond_four_digits_of_the_year(text: str, ms: Any, us: Any, ns: Any) -> None:
    for mode, wanted in (("connect", ms), ("microseconds", us), ("nanoseconds", ns)):
        conversion = timestamps.timestamp(6, mode, False)
        assert shown(conversion, text, MOMENTS[0]) == held(conversion, text, MOMENTS[0]) == [wanted, 0]
        # A server whose texts have more digits does not have these years.
        assert shown(timestamps.timestamp(7, mode, True), text, MOMENTS[0])[0] == NOTHING


def test_texts_may_have_more_digits_than_six() -> None:
    texts = ("2020-01-02 03:04:05.1234567", "1969-12-31 23:59:59.9999999", "2262-04-11 23:47:16.854775807")
    nanos = [1_577_934_245_123_456_700, -100, 2**63 - 1]
    assert shown(timestamps.timestamp(7, "adaptive", True), *texts) == nanos
    assert shown(timestamps.timestamp(7, "microseconds", True), *texts) == [number // 1000 for number in nanos]
    assert shown(timestamps.timestamp(7, "adaptive", False), *texts) == [NOTHING] * 3
    ends = ("2262-04-11 23:47:16.854775808", "1677-09-21 00:12:43.145224192", "1677-09-21 00:12:43.145224191")
    conversion = timestamps.timestamp(7, "nanoseconds", True)
    assert shown(conversion, *ends) == held(conversion, *ends) == [NOTHING, -(2**63), NOTHING]


@pytest.mark.parametrize("fine", [False, True])
def test_a_timestamp_may_be_iso_text(fine: bool) -> None:
    conversion = timestamps.timestamp(6, "isostring", fine)
    assert conversion.logical == semantic(STRING, DEBEZIUM + "IsoTimestamp")
    texts = ("1970-01-01 00:00:00", "1969-12-31 23:59:59.990", "9999-12-31 24:00:00", "0001-01-01 00:00:00.000001", "x")
    wanted = [
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59.99Z",
        "+10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000001Z",
        NOTHING,
    ]
    assert shown(conversion, *texts) == held(conversion, *texts) == wanted


def test_years_before_1_have_a_sign_in_iso_text() -> None:
    conversion = timestamps.timestamp(6, "isostring", False)
    assert shown(conversion, "0044-03-15 12:00:00 BC", "0001-12-31 00:00:00 BC", "infinity") == [
        "-0043-03-15T12:00:00Z", "0000-12-31T00:00:00Z", "+294247-01-10T04:00:25.2Z",
    ]  # fmt: skip


@pytest.mark.parametrize("fine", [False, True])
def test_a_timestamp_may_be_its_parts(fine: bool) -> None:
    conversion = timestamps.timestamp(3, "structured", fine)
    assert conversion.logical.name == DEBEZIUM + "StructuredTimestamp"
    wanted = {"year": 1969, "month": 12, "day": 31, "hour": 23, "minute": 59, "second": 59, "nanos": 500_000_000,
              "specialValue": None, "precision": 3}  # fmt: skip
    assert (
        shown(conversion, "1969-12-31 23:59:59.5", "x")
        == held(conversion, "1969-12-31 23:59:59.5", "x")
        == [wanted, NOTHING]
    )


def test_an_infinite_timestamp_has_a_name_and_no_parts() -> None:
    infinite, before = shown(timestamps.timestamp(6, "structured", False), "infinity", "-infinity")
    assert (infinite.pop("specialValue"), before.pop("specialValue")) == ("POSITIVE_INFINITY", "NEGATIVE_INFINITY")
    assert (
        infinite
        == before
        == dict.fromkeys(("year", "month", "day", "hour", "minute", "second", "nanos")) | {"precision": 6}
    )


INSTANTS = {
    "1970-01-01 00:00:00+00": ("1970-01-01T00:00:00", "", 0),
    "2020-01-02 03:04:05.1+00": ("2020-01-02T03:04:05", "1", 1_577_934_245_100_000),
    "2020-01-02 03:04:05.12345+02": ("2020-01-02T01:04:05", "12345", 1_577_927_045_123_450),
    "2020-01-01 00:30:00-05:30": ("2020-01-01T06:00:00", "", 1_577_858_400_000_000),
    "1969-12-31 23:59:59.999999+00": ("1969-12-31T23:59:59", "999999", -1),
    "0001-01-01 00:00:00+01:02:03": ("0000-12-31T22:57:57", "", -62_135_600_523_000_000),
    "0044-03-15 00:00:00+00 BC": ("-0043-03-15T00:00:00", "", -63_517_824_000_000_000),
    "9999-12-31 23:59:59-01": ("+10000-01-01T00:59:59", "", 253_402_304_399_000_000),
}
"""Texts with an offset: the UTC time to the second, the further digits, and µs since 1970."""


@pytest.mark.parametrize("digits", [0, 1, 3, 6])
def test_an_instant_has_the_digits_of_its_column(digits: int) -> None:
    conversion = instants.instant(digits, "adaptive", True)
    assert conversion.logical == semantic(STRING, DEBEZIUM + "ZonedTimestamp")
    point = "." if digits else ""
    wanted = [f"{second}{point}{fraction.ljust(6, '0')[:digits]}Z" for second, fraction, _ in INSTANTS.values()]
    assert shown(conversion, *INSTANTS) == wanted
    unit = 10 ** (6 - digits)
    assert held(conversion, *INSTANTS) == [us // unit * unit for _, _, us in INSTANTS.values()]


@pytest.mark.parametrize("mode", ["adaptive", "connect", "isostring", "nanoseconds"])
def test_an_instant_may_have_the_digits_that_it_needs(mode: str) -> None:
    conversion = instants.instant(3, mode, False)
    wanted = [f"{second}.{fraction}Z" if fraction else f"{second}Z" for second, fraction, _ in INSTANTS.values()]
    assert shown(conversion, *INSTANTS) == wanted
    assert held(conversion, *INSTANTS) == [us for _, _, us in INSTANTS.values()]


def test_infinite_instants_are_words() -> None:
    for cut in (True, False):
        conversion = instants.instant(6, "adaptive", cut)
        assert shown(conversion, "infinity", "-infinity") == ["infinity", "-infinity"]
        assert held(conversion, "infinity", "-infinity") == [9_223_372_036_825_200_000, -9_223_372_036_832_400_000]


@pytest.mark.parametrize(
    "text",
    ["2020-01-02 03:04:05", "2020-01-02 03:04:05Z", "2020-01-02T03:04:05+00", "2020-01-02 03:04:60+00", "", "+00"],
)
def test_what_is_no_instant_is_lost(text: str) -> None:
    conversion = instants.instant(6, "adaptive", True)
    assert shown(conversion, text, "1970-01-01 00:00:00+00")[0] == NOTHING
    assert held(conversion, text, "1970-01-01 00:00:00+00") == [NOTHING, 0]


def test_an_instant_beyond_arrows_years_is_shown_and_not_held() -> None:
    conversion = instants.instant(6, "adaptive", True)
    assert shown(conversion, "294276-12-31 23:59:59+00") == ["+294276-12-31T23:59:59.000000Z"]
    assert held(conversion, "294276-12-31 23:59:59+00") == [NOTHING]


def test_an_instant_may_be_its_parts_in_utc() -> None:
    found = shown(instants.instant(6, "structured", True), "2020-01-02 03:04:05.5+02", "-infinity")
    assert found[0] == {
        "year": 2020, "month": 1, "day": 2, "hour": 1, "minute": 4, "second": 5, "nanos": 500_000_000,
        "offsetSeconds": 0, "zoneId": "Z", "specialValue": None, "precision": 6,
    }  # fmt: skip
    assert (found[1]["specialValue"], found[1]["zoneId"], found[1]["year"]) == ("NEGATIVE_INFINITY", None, None)


@pytest.mark.parametrize(
    ("text", "iso", "us"),
    [
        ("2019-05-27 13:58:28.1234567 +02:00", "2019-05-27T13:58:28.1234567+02:00", 1_558_958_308_123_456),
        ("2019-05-27 13:58:28.5000000 -05:30", "2019-05-27T13:58:28.5-05:30", 1_558_985_308_500_000),
        ("0001-01-01 00:00:00 +00:00", "0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("9999-12-31 23:59:59.9999999 -14:00", "9999-12-31T23:59:59.9999999-14:00", 253_402_351_199_999_999),
        ("1969-12-31 23:59:59.9999999 +00:00", "1969-12-31T23:59:59.9999999Z", -1),
        ("2019-05-27 13:58:28", NOTHING, NOTHING),
        ("2019-05-27 13:58:28 +2:00", NOTHING, NOTHING),
        ("2019-05-27 13:58:28 +02:60", NOTHING, NOTHING),
        ("2019-02-30T13:58:28 +02:00", NOTHING, NOTHING),
    ],
)
def test_a_timestamp_with_an_offset_keeps_it(text: str, iso: str, us: Any) -> None:
    conversion = instants.offset_timestamp(7, "adaptive")
    assert shown(conversion, text, "1970-01-01 00:00:00 +00:00") == [iso, "1970-01-01T00:00:00Z"]
    assert held(conversion, text, "1970-01-01 00:00:00 +00:00") == [us, 0]


def test_the_parts_of_a_timestamp_with_an_offset_are_of_its_own_zone() -> None:
    (found,) = shown(instants.offset_timestamp(7, "structured"), "2019-05-27 13:58:28.1234567 -05:30")
    assert (found["hour"], found["nanos"], found["offsetSeconds"], found["zoneId"]) == (
        13,
        123_456_700,
        -19_800,
        "-05:30",
    )
