"""Names with the characters replaced that Avro does not allow."""

from __future__ import annotations

import pytest

from tailrace.columns.adjustment import adjusted


@pytest.mark.seed("000-08")
@pytest.mark.parametrize(
    ("name", "avro", "unicode"),
    [
        ("plain_1", "plain_1", "plain_u005f1"),
        ("1st", "_1st", "_u0031st"),
        ("naïve-col", "na_ve_col", "na_u00efve_u002dcol"),
        ("we\"ird", "we_ird", "we_u0022ird"),
        ("$d", "_d", "_u0024d"),
        # a character beyond the basic plane is two of Java's
        ("😀", "__", "_ud83d_ude00"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_each_java_character_that_is_not_allowed_is_replaced(name: str, avro: str, unicode: str) -> None:
    for dots in (True, False):
        assert adjusted(name, "avro", dots) == avro
        assert adjusted(name, "avro_unicode", dots) == unicode
        assert adjusted(name, "none", dots) == name


@pytest.mark.parametrize(
    ("mode", "with_dots", "without"),
    [
        ("avro", "a.b._c", "a_b__c"),
        ("avro_unicode", "a.b._u005fc", "a_u002eb_u002e_u005fc"),
        ("none", "a.b._c", "a.b._c"),
    ],
)
def test_dots_may_part_names(mode: str, with_dots: str, without: str) -> None:
    assert adjusted("a.b._c", mode, True) == with_dots
    assert adjusted("a.b._c", mode, False) == without


def test_digits_are_allowed_behind_the_first_character_of_the_whole_name() -> None:
    assert adjusted("a.1b", "avro", True) == "a.1b"
    assert adjusted("9a.1b", "avro", True) == "_9a.1b"
