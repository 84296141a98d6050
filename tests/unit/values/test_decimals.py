"""Decimals in every handling mode: precise, with a scale of their own, as text and as doubles."""

from __future__ import annotations

import base64
import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns.logical import BYTES, DOUBLE, STRING, semantic
from tailrace.values import decimals
from tests.unit.values.shown_values import NOTHING, converted, held, shown, zero_of

EXACT = Context(prec=400)
NUMBERS = (
    "0", "-0", "-0.00", "1", "-1", "1.27", "1.28", "-1.28", "-1.29", "0.005", "-0.005", "0.00499", "99.995", "1.004",
    "32767", "-32768.99", "9223372036854775807.99", "-92233720368547758.08", "007", ".5", "5.",
)  # fmt: skip


def unscaled(text: str) -> int:
    return int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)


@pytest.mark.parametrize("scale", [0, 2, 10, -2])
def test_a_number_has_the_scale_of_its_column_halves_away_from_zero(scale: int) -> None:
    found = shown(decimals.fixed(scale, 38), *NUMBERS)
    wanted = [Decimal(text).scaleb(scale, EXACT).quantize(Decimal(1), ROUND_HALF_UP, EXACT) for text in NUMBERS]
    assert [unscaled(text) for text in found] == [int(number) for number in wanted]
    assert held(decimals.fixed(scale, 38), *NUMBERS) == [number.scaleb(-scale, EXACT) for number in wanted]


def test_bytes_are_as_few_as_hold_the_sign() -> None:
    """As BigInteger.toByteArray returns them."""
    cases = {"0": "00", "127": "7f", "128": "0080", "-128": "80", "-129": "ff7f", "255": "00ff", "-32768": "8000"}
    found = shown(decimals.fixed(0, 10), *cases)
    assert [base64.b64decode(text).hex() for text in found] == list(cases.values())


@pytest.mark.parametrize("digits", [18, 19, 37, 38, 75, 76])
def test_numbers_reach_to_the_last_digit_of_their_precision(digits: int) -> None:
    most = "9" * digits
    assert [unscaled(text) for text in shown(decimals.fixed(0, digits), most, f"-{most}")] == [int(most), -int(most)]
    assert held(decimals.fixed(0, digits), most, f"-{most}", f"1{'0' * digits}") == [
        Decimal(most),
        Decimal(f"-{most}"),
        NOTHING,
    ]


def test_a_number_of_thousands_of_digits_is_whole() -> None:
    long = "7" * 5000 + "." + "3" * 3000
    ((text,), _) = converted(decimals.fixed(3000, None), long)
    assert unscaled(text.strip('"')) == int(Decimal(long).scaleb(3000, Context(prec=9000)))
    assert shown(decimals.variable(), long)[0]["scale"] == 3000


def test_a_number_of_more_digits_than_any_database_has_is_lost() -> None:
    for conversion in (decimals.fixed(2, None), decimals.variable()):
        assert shown(conversion, "1" * 200_000, "1")[0] == NOTHING


@pytest.mark.parametrize("text", ["", " 1", "+1", "1e5", "1,5", "-", ".", "0x1", "1-", "--1", "nan", "١"])
def test_what_is_no_number_is_lost(text: str) -> None:
    for conversion in (decimals.fixed(2, 5), decimals.variable(), decimals.as_text(2, "u")):
        assert converted(conversion, text, "1").shown[0] == NOTHING


def test_what_is_not_finite_is_lost_as_bytes_and_has_a_word() -> None:
    words = ("NaN", "Infinity", "-Infinity")
    for conversion in (decimals.fixed(2, 5), decimals.variable(), decimals.floating_variable()):
        assert shown(conversion, *words) == held(conversion, *words) == [NOTHING] * 3
    named = ["NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY"]
    for conversion in (decimals.as_text(2, "u"), decimals.as_scientific_text(), decimals.floating_as_text()):
        assert shown(conversion, *words) == held(conversion, *words) == named
    for conversion in (decimals.as_double(), decimals.floating_as_double()):
        assert shown(conversion, *words) == list(words)
        found = held(conversion, *words)
        assert math.isnan(found[0])
        assert found[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("text", "scale", "whole"),
    [("0", 0, 0), ("-0.00", 0, 0), ("1.500", 1, 15), ("100", 0, 100), ("-0.00001", 5, -1), ("12.340", 2, 1234)],
)
def test_a_number_of_its_own_scale_drops_the_zeros_at_its_end(text: str, scale: int, whole: int) -> None:
    (found,) = shown(decimals.variable(), text)
    assert (found["scale"], unscaled(found["value"])) == (scale, whole)
    assert held(decimals.variable(), text) == [f"{Decimal(whole).scaleb(-scale):f}"]


def test_texts_have_the_digits_that_the_server_sends() -> None:
    texts = ("0", "-0.00", "1.50", "100", "0.000000001", "9" * 50 + ".5")
    assert shown(decimals.as_text(2, "u"), *texts) == held(decimals.as_text(2, "u"), *texts) == list(texts)
    assert shown(decimals.as_scientific_text(), "1.50", "0.00000001", "100", "0.0000001") == [
        "1.50",
        "1E-8",
        "100",
        "1E-7",
    ]


def test_doubles_are_the_nearest_ones() -> None:
    texts = (
        "0",
        "-0",
        "0.1",
        "123456789012345678901234567890",
        "1.7976931348623157",
        "5e-324",
        "1e400",
        "-1e400",
        "2e-400",
    )
    wanted = [float(text) for text in texts]
    for conversion in (decimals.as_double(), decimals.floating_as_double()):
        assert [float(one) for one in shown(conversion, *texts)] == wanted
        found = held(conversion, *texts)
        assert found == wanted
        assert math.copysign(1, found[1]) == -1


@pytest.mark.parametrize(
    ("text", "plain", "scale", "whole"),
    [
        ("1E+2", "100", 0, 100),
        ("-1.50E-3", "-0.00150", 4, -15),
        ("-0E+5", "000000", 0, 0),
        ("1e3", "1000", 0, 1000),
        ("0.10", "0.10", 1, 1),
    ],
)
def test_decimal_floating_point_numbers_are_plain_digits(text: str, plain: str, scale: int, whole: int) -> None:
    (found,) = shown(decimals.floating_as_text(), text)
    assert Decimal(found) == Decimal(plain)
    assert "E" not in found.upper()
    (variable,) = shown(decimals.floating_variable(), text)
    assert (variable["scale"], unscaled(variable["value"])) == (scale, whole)


def test_schemas_say_scale_and_precision() -> None:
    name = "org.apache.kafka.connect.data.Decimal"
    assert decimals.fixed(2, 5).logical == semantic(BYTES, name, scale="2", connect__decimal__precision="5")
    assert decimals.fixed(2, None).logical == semantic(BYTES, name, scale="2")
    assert (decimals.as_text(2, "u").logical, decimals.as_double().logical) == (STRING, DOUBLE)
    variable = decimals.variable().logical
    assert (variable.name, variable.version) == ("io.debezium.data.VariableScaleDecimal", 1)
    assert [(part.name, part.type.connect) for part in variable.fields] == [("scale", "int32"), ("value", "bytes")]


def test_zero_stands_for_a_default_that_only_the_server_computes() -> None:
    found: list[Any] = [zero_of(conversion) for conversion in (
        decimals.fixed(2, 5), decimals.variable(), decimals.as_text(2, "u"), decimals.as_text(None, "u"),
        decimals.as_double(),
    )]  # fmt: skip
    assert found == ['"AA=="', '{"scale":0,"value":"AA=="}', '"0.00"', '"0.0"', "0.0"]


@pytest.mark.parametrize(
    ("literal", "plain"),
    [("5", "5"), ("-1.50", "-1.50"), ("+7", "7"), ("1e3", "1000"), ("-1.5E-2", "-0.015"), (".5", ".5")],
)
def test_a_literal_of_a_statement_is_plain_digits(literal: str, plain: str) -> None:
    assert decimals.plain_number(literal) == plain


@pytest.mark.parametrize(
    ("kind", "wanted", "text"),
    [
        (pa.decimal128(5, 2), pa.decimal128(5, 2), "123.00"),
        (pa.decimal128(5, -2), pa.decimal128(7, 0), "12300"),
        (pa.decimal128(38, -2), pa.string(), "12300"),
        (pa.decimal256(60, 3), pa.string(), "123.000"),
    ],
)
def test_spark_has_decimals_without_negative_scales(kind: pa.DataType, wanted: pa.DataType, text: str) -> None:
    number = Decimal("12300") if kind.scale < 0 else Decimal("123")
    found = decimals.spark_decimals(pa.array([number, None], kind))
    assert found.type == wanted
    assert found.cast(pa.string()).to_pylist() == [text, None]
