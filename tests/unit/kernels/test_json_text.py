"""JSON as Kafka Connect's converter writes it: compact, in order, with Java's escapes and numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns.logical import BYTES, INT32, STRING, Field, LogicalType, array, mapping, semantic, struct
from tailrace.values.json_text import Verbatim, dumps, java_number, quoted, schema_text


@pytest.mark.seed("000-44")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\0\x01\x1f\x7f", '"\\u0000\\u0001\\u001F\x7f"'),
        # Characters beyond the basic plane become two surrogates, and all others stay unchanged.
        ("é\u2028😀", '"é\u2028\\uD83D\\uDE00"'),
        ("/", '"/"'),
    ],
)
def test_texts_are_escaped_as_jackson_does_it(text: str, shown: str) -> None:
    assert quoted(text) == shown
    assert json.loads(shown) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-(2**63), "-9223372036854775808"),
        (1.0, "1.0"),
        (Verbatim('{"a": 1}'), '{"a": 1}'),
        ([], "[]"),
        ({}, "{}"),
        ({"b": [1, None], "a": {"c": "x"}}, '{"b":[1,null],"a":{"c":"x"}}'),
    ],
)
def test_values_are_compact_and_in_their_order(value: Any, shown: str) -> None:
    assert dumps(value) == shown


def test_a_value_without_a_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="no JSON form for bytes"):
        dumps({"a": b"x"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0", "0.0"),
        ("-0.0", "-0.0"),
        ("1", "1.0"),
        ("3.14", "3.14"),
        ("0.001", "0.001"),
        ("0.0001", "1.0E-4"),
        ("1234567", "1234567.0"),
        ("9999999", "9999999.0"),
        ("10000000", "1.0E7"),
        ("1.2345e+20", "1.2345E20"),
        ("-1e-05", "-1.0E-5"),
        ("NaN", '"NaN"'),
        ("inf", '"Infinity"'),
        ("-Infinity", '"-Infinity"'),
        # Java prints the smallest numbers with two digits.
        ("5e-324", "4.9E-324"),
        ("1.7976931348623157e308", "1.7976931348623157E308"),
    ],
)
def test_numbers_are_those_of_java(text: str, shown: str) -> None:
    assert java_number(text) == shown


def test_the_smallest_single_numbers_have_two_digits_too() -> None:
    assert java_number("1e-45", single=True) == "1.4E-45"
    assert java_number("3e-45", single=True) == "2.8E-45"
    assert java_number("3.4028235e38", single=True) == "3.4028235E38"


@pytest.mark.parametrize(
    ("schema", "field", "shown"),
    [
        (INT32, None, '{"type":"int32","optional":false}'),
        (INT32.with_optional(True), "id", '{"type":"int32","optional":true,"field":"id"}'),
        (STRING.with_default("x"), "s", '{"type":"string","optional":false,"default":"x","field":"s"}'),
        (
            STRING.with_optional(True).with_default(None),
            "s",
            '{"type":"string","optional":true,"default":null,"field":"s"}',
        ),
        (
            semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="2").with_default("AJY="),
            "n",
            '{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
            '"parameters":{"scale":"2"},"default":"AJY=","field":"n"}',
        ),
        (array(INT32), None, '{"type":"array","items":{"type":"int32","optional":false},"optional":false}'),
        (
            mapping(INT32.with_optional(True)),
            None,
            '{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"int32","optional":true},'
            '"optional":false}',
        ),
        (
            struct(Field("a", STRING), name="n", version=2, doc="told"),
            None,
            '{"type":"struct","fields":[{"type":"string","optional":false,"field":"a"}],"optional":false,'
            '"name":"n","version":2,"doc":"told"}',
        ),
        (struct(), None, '{"type":"struct","fields":[],"optional":false}'),
    ],
)
def test_schemas_have_their_members_in_the_converters_order(schema: LogicalType, field: str | None, shown: str) -> None:
    assert schema_text(schema, field) == shown
