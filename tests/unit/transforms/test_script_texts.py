"""Texts are cut, compared and read as Java and JavaScript do it, in UTF-16, also if they are not ASCII."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tailrace.scripting import script_texts


def of(found: Callable[..., pa.Array], text: str | None, *more: Any) -> Any:
    return found(pa.array([text], pa.string()), *more)[0].as_py()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.0, "0"),
        (-0.0, "0"),
        (120.0, "120"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (-1.25e22, "-1.25e+22"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (0.1 + 0.2, "0.30000000000000004"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_javascript_writes_a_number_in_its_own_form(number: float, text: str) -> None:
    assert script_texts.number_texts(pa.array([number, None])).to_pylist() == [text, None]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        (" \n\ufeff", 0),
        (" 12 ", 12),
        ("-1.5e2", -150),
        (".5", 0.5),
        ("5.", 5),
        ("0x1F", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("010", 10),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_javascript_reads_a_number_from_a_text(text: str, number: float) -> None:
    assert script_texts.read_number(text) == number


@pytest.mark.parametrize("text", ["abc", "1_0", "-0x1", "1 2", "inf", "nan", "1e", "٣", "."])
def test_a_text_that_is_no_number_of_javascript_is_nan(text: str) -> None:
    assert math.isnan(script_texts.read_number(text))


@pytest.mark.parametrize(("text", "count"), [("", 0), ("abc", 3), ("é", 1), ("a😀", 3), (None, None)])
def test_a_length_counts_units_of_utf_16(text: str | None, count: int | None) -> None:
    assert of(script_texts.length, text) == count


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("North", "nORTH", True),
        ("é", "É", True),
        ("K", "k", True),  # the sign of kelvin
        ("ı", "I", True),  # Java compares the capitals of both too
        ("ß", "SS", False),
        ("a", "b", False),
    ],
)
def test_texts_are_equal_without_regard_to_case_as_in_java(text: str, other: str, same: bool) -> None:
    assert of(script_texts.ignoring_case, text, other) is same
    assert of(script_texts.ignoring_case, other, text) is same


def test_texts_sort_by_utf_16_where_code_points_sort_otherwise() -> None:
    private, smile = script_texts.ordered(pa.array(["\ue000", "😀"])).to_pylist()
    assert smile < private
    assert script_texts.ordered(pa.array(["a", None])).to_pylist() == [b"\0a", None]


@pytest.mark.parametrize(
    ("text", "start", "end", "java", "javascript"),
    [
        ("abcd", 1, 3, "bc", "bc"),
        ("abcd", 1, None, "bcd", "bcd"),
        ("a😀b", 1, 3, "😀", "😀"),
        ("é😀b", 3, None, "b", "b"),
        ("abcd", 3, 1, None, "bc"),
        ("abcd", -1, 2, None, "ab"),
        ("abcd", 2, 9, None, "cd"),
        ("abcd", 5, None, None, ""),
    ],
)
def test_java_refuses_a_part_that_is_not_in_the_text(
    text: str, start: int, end: int | None, java: str | None, javascript: str
) -> None:
    found, wrong = script_texts.part(pa.array([text]), start, end, False)
    assert wrong.to_pylist() == [java is None]
    if java is not None:
        assert found.to_pylist() == [java]
    found, wrong = script_texts.part(pa.array([text]), start, end, True)
    assert (found.to_pylist(), len(wrong)) == ([javascript], 0)


@pytest.mark.parametrize(
    ("text", "old", "new", "java", "javascript"),
    [
        ("a-b-c", "-", "+", "a+b+c", "a+b-c"),
        ("abc", "x", "y", "abc", "abc"),
        ("abc", "", "-", "-a-b-c-", "-abc"),
        ("abc", "b", "[$&]", "a[$&]c", "a[b]c"),
        ("abc", "b", "$$", "a$$c", "a$c"),
        ("abc", "b", "<$`|$'>", "a<$`|$'>c", "a<a|c>c"),
        ("abc", "b", "$1", "a$1c", "a$1c"),
    ],
)
def test_javascript_replaces_the_first_part_alone_and_knows_dollars(
    text: str, old: str, new: str, java: str, javascript: str
) -> None:
    assert of(script_texts.replaced, text, old, new, False) == java
    assert of(script_texts.replaced, text, old, new, True) == javascript


def test_java_and_javascript_have_their_own_white_space() -> None:
    text = "\x01\u00a0 a \u00a0\x01"
    assert of(script_texts.trim, text, False) == "\u00a0 a \u00a0"
    assert of(script_texts.trim, "\u00a0 a\ufeff", True) == "a"
    assert of(script_texts.trim, text, True) == text


@pytest.mark.parametrize(("text", "low", "high"), [("AbC", "abc", "ABC"), ("Éß", "éß", "ÉSS"), ("ΑΣ", "ας", "ΑΣ")])
def test_letters_change_case_as_in_java(text: str, low: str, high: str) -> None:
    assert (of(script_texts.lower, text), of(script_texts.upper, text)) == (low, high)
