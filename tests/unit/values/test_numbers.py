"""Whole numbers, floating-point numbers, booleans and bits."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest

from tailrace.columns.logical import BOOLEAN, BYTES, LogicalType, semantic
from tailrace.values import booleans, floats, integers
from tests.unit.values.shown_values import NOTHING, converted, held, shown


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_whole_numbers_reach_to_the_ends_of_their_type(bits: int) -> None:
    conversion = integers.integer(bits)
    assert conversion.logical == LogicalType(f"int{bits}")
    ends = [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1]
    assert shown(conversion, *map(str, ends)) == held(conversion, *map(str, ends)) == ends
    # A number beyond the type's limits has no place in Arrow.
    beyond = str(2 ** (bits - 1)), str(-(2 ** (bits - 1)) - 1)
    assert held(conversion, *beyond, "7") == [NOTHING, NOTHING, 7]


@pytest.mark.parametrize("text", ["", "-", "+1", "-0", "007", " 1", "1 ", "1.0", "1e3", "x", "9" * 20, "1" * 1000, "١"])
def test_what_is_no_whole_number_is_lost(text: str) -> None:
    for bits in (16, 32, 64):
        assert shown(integers.integer(bits), "5", text, "-6") == [5, NOTHING, -6]
        assert held(integers.integer(bits), "5", text, "-6") == [5, NOTHING, -6]


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("0", "0.0"),
        ("-0", "-0.0"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("0.001", "0.001"),
        ("0.00099", "9.9E-4"),
        ("9999999", "9999999.0"),
        ("1e+07", "1.0E7"),
        ("123456789", "1.23456789E8"),
        ("1.0E-10", "1.0E-10"),
        ("NaN", '"NaN"'),
        ("nan", '"NaN"'),
        ("Infinity", '"Infinity"'),
        ("-inf", '"-Infinity"'),
    ],
)
def test_floating_numbers_are_shown_as_java_prints_them(text: str, java: str) -> None:
    for single in (False, True):
        assert converted(floats.floating(single), text, "1").shown == [java, "1.0"]


def test_the_smallest_and_the_largest_numbers() -> None:
    """Java prints two digits of the smallest ones, the nearest to the value."""
    double = ("1.7976931348623157e+308", "2.2250738585072014e-308", "5e-324", "1e-323", "1.5e-323")
    assert converted(floats.floating(False), *double).shown == [
        "1.7976931348623157E308", "2.2250738585072014E-308", "4.9E-324", "9.9E-324", "1.5E-323",
    ]  # fmt: skip
    single = ("3.4028235e+38", "1.1754944e-38", "1e-45", "3e-45", "4e-45", "1e-44")
    assert converted(floats.floating(True), *single).shown == [
        "3.4028235E38", "1.1754944E-38", "1.4E-45", "2.8E-45", "4.2E-45", "9.8E-45",
    ]  # fmt: skip
    for conversion, texts in ((floats.floating(False), double), (floats.floating(True), single)):
        width = "<f" if conversion.logical.connect == "float" else "<d"
        wanted = [struct.unpack(width, struct.pack(width, float(text)))[0] for text in texts]
        assert held(conversion, *texts) == wanted


@pytest.mark.parametrize("text", ["", "x", "+1", "1,5", "1e", "1e12345", "--1", "0x1p3", "1" * 401, "infinit", "."])
def test_what_is_no_floating_number_is_lost(text: str) -> None:
    for single in (False, True):
        assert shown(floats.floating(single), text, "1.5") == [NOTHING, 1.5]
        assert held(floats.floating(single), text, "1.5") == [NOTHING, 1.5]


def test_what_is_not_finite_is_itself_in_arrow() -> None:
    for single in (False, True):
        found = held(floats.floating(single), "NaN", "Infinity", "-Infinity", "-0")
        assert math.isnan(found[0])
        assert found[1:3] == [math.inf, -math.inf]
        assert math.copysign(1, found[3]) == -1


def test_booleans_are_letters_or_words() -> None:
    conversion = booleans.boolean_type()
    assert conversion.logical == BOOLEAN
    cases: dict[str, Any] = {"t": True, "f": False, "true": True, "false": False}
    cases |= dict.fromkeys(("T", "1", "", "tr", "yes"), NOTHING)
    assert shown(conversion, *cases) == held(conversion, *cases) == list(cases.values())


def test_one_bit_is_a_boolean() -> None:
    cases: dict[str, Any] = {"1": True, "0": False, "": NOTHING, "10": NOTHING, "t": NOTHING, "2": NOTHING}
    conversion = booleans.single_bit()
    assert conversion.logical == BOOLEAN
    assert shown(conversion, *cases) == held(conversion, *cases) == list(cases.values())


def test_bits_are_little_endian_bytes_without_zeros_at_their_end() -> None:
    conversion = booleans.bits(70)
    assert conversion.logical == semantic(BYTES, "io.debezium.data.Bits", length="70")
    texts = ("", "0", "0" * 70, "1", "000000000001", "100000000000", "111111110", "1" + "0" * 69)
    wanted = [int(text or "0", 2).to_bytes(9, "little").rstrip(b"\0") for text in texts]
    assert [base64.b64decode(text) for text in shown(conversion, *texts)] == wanted
    assert held(conversion, *texts) == wanted
    assert shown(conversion, "2", "1x", " 1", "1") == [NOTHING, NOTHING, NOTHING, "AQ=="]
