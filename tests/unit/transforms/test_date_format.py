"""Instants become texts by the patterns of Java's SimpleDateFormat."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.transforms.conversions.date_format import DateFormat

MS = 1_577_934_245_678


def written(pattern: str, ms: int) -> str:
    (found,) = DateFormat.of(pattern).written(pa.array([ms], pa.int64())).to_pylist()
    return str(found)


def read(pattern: str, text: str) -> int | None:
    (found,) = DateFormat.of(pattern).read(pa.array([text])).to_pylist()
    return None if found is None else int(found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2020-01-02 03:04:05.678"),
        ("yy/M/d H:m:s", "20/1/2 3:4:5"),
        ("EEE, d MMM yyyy hh:mm a z", "Thu, 2 Jan 2020 03:04 AM UTC"),
        ("EEEE MMMM", "Thursday January"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2020-01-02T03:04:05Z"),
        ("HH''mm 'o''clock' Z", "03'04 o'clock +0000"),
        ("DDD u k K SSSSSS G", "002 4 3 3 000678 AD"),
        ("", ""),
    ],
)
def test_a_moment_is_written(pattern: str, text: str) -> None:
    assert written(pattern, MS) == text


def test_moments_before_1970_and_at_midnight_are_written() -> None:
    assert written("yyyy-MM-dd HH:mm:ss.SSS", -1) == "1969-12-31 23:59:59.999"
    assert written("k K h a", 0) == "24 0 12 AM"
    assert written("h a", 43_200_000) == "12 PM"


def test_days_before_the_gregorian_calendar_are_julian() -> None:
    assert written("yyyy-MM-dd", -141_427 * 86_400_000) == "1582-10-15"
    assert written("yyyy-MM-dd", -141_428 * 86_400_000) == "1582-10-04"
    assert read("yyyy-MM-dd", "1582-10-04") == -141_428 * 86_400_000
    assert written("yyyy G", -62_167_392_000_000) == "0001 BC"


def test_null_stays_null() -> None:
    assert DateFormat.of("yyyy").written(pa.array([None, 0], pa.int64())).to_pylist() == [None, "1970"]


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2020-01-02 03:04:05.678", MS),
        ("yyyyMMddHHmmss", "20200102030405", MS - 678),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2020-01-02T04:04:05+01:00", MS - 678),
        ("yyyy-MM-dd'T'HH:mm:ssZ", "2020-01-02T01:34:05-0130 and more", MS - 678),
        ("d MMM yyyy hh:mm a", "2 Jan 2020 03:04 pm", MS + 43_200_000 - 5678),
        ("yyyy-MM-dd", "2020-13-32", 1_612_137_600_000),
        ("EEE d M yyyy", "Thu 2 1 2020", 1_577_923_200_000),
        ("yyyy-MM-dd", "yesterday", None),
        ("yyyy-MM-dd'Z'", "2020-01-02", None),
    ],
)
def test_a_text_is_read(pattern: str, text: str, ms: int | None) -> None:
    assert read(pattern, text) == ms


def test_a_year_of_two_digits_is_near_this_one() -> None:
    assert read("yy", "26") == 1_767_225_600_000
    assert read("yy", "99") == 915_148_800_000


@pytest.mark.parametrize(("pattern", "said"), [("yyyy-ww", "the letter w"), ("yyyy 'x", "a quote without an end")])
def test_other_patterns_are_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DateFormat.of(pattern)
