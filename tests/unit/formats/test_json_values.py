"""JSON: values of each type equal those of Kafka Connect's JsonConverter, from every kind of column."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace import formats
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    LogicalType,
    array,
    mapping,
    semantic,
    struct,
)
from tailrace.config.formats import Format
from tailrace.records.layout import Constant, Struct, Text
from tests.layout_blocks import BARE, LayoutBlock, each_way, encoded, struct_of

CONNECT = "org.apache.kafka.connect.data."
DEBEZIUM = "io.debezium.time."
DECIMAL = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="38")
NUMERIC = Format("json", "value", (("decimal.format", "NUMERIC"),))


def shown(kind: LogicalType, *values: Any, form: Format | str = "json") -> list[str]:
    """Return the JSON of values, including null."""
    kind = kind.with_optional(True)
    found = [data.decode() for data in each_way(form, kind, *values, None) if data is not None]
    assert found.pop() == '{"v":null}'
    assert all(text.startswith('{"v":') and text.endswith("}") for text in found)
    return [text[5:-1] for text in found]


@pytest.mark.parametrize(("kind", "bits"), [(INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)])
def test_whole_numbers_reach_to_the_ends_of_their_type(kind: LogicalType, bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert shown(kind, least, -1, 0, most) == [str(least), "-1", "0", str(most)]


def test_doubles_have_javas_digits() -> None:
    """As Double.toString: plain digits from 0.001 up to 10,000,000, else an exponent; always a
    digit after the point."""
    assert shown(DOUBLE, 0.0, -0.0, 1.0, 0.001, 0.00099, 9999999.0, 1e7, -1.5e-9) == [
        "0.0", "-0.0", "1.0", "0.001", "9.9E-4", "9999999.0", "1.0E7", "-1.5E-9",
    ]  # fmt: skip
    ends = shown(DOUBLE, 1.7976931348623157e308, -2.2250738585072014e-308, 5e-324)
    assert ends == ["1.7976931348623157E308", "-2.2250738585072014E-308", "4.9E-324"]


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
def test_what_is_no_number_is_a_text(kind: LogicalType) -> None:
    assert shown(kind, "NaN", "Infinity", "-Infinity", 1.5) == ['"NaN"', '"Infinity"', '"-Infinity"', "1.5"]


def test_texts_are_escaped_as_jackson_does_it() -> None:
    """There are short escapes where JSON has them, upper-case digits for other control characters, and surrogates
    beyond the basic plane. All else, including DEL and line separators, stays unchanged."""
    assert shown(STRING, "", 'say "a\\b"', "\b\t\n\f\r", "\x00\x01\x1f", "\x7f\u2028/é東") == [
        '""', r'"say \"a\\b\""', r'"\b\t\n\f\r"', r'"\u0000\u0001\u001F"', '"\x7f\u2028/é東"',
    ]  # fmt: skip
    assert shown(STRING, "a😀b", "\U0010ffff") == [r'"a\uD83D\uDE00b"', r'"\uDBFF\uDFFF"']


def test_every_character_is_read_back() -> None:
    texts = [chr(code) for code in (*range(0x20), 0x22, 0x5C, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xFFFF, 0x10000)]
    long = "".join(texts) * 3
    assert [json.loads(text) for text in shown(STRING, *texts, long)] == [*texts, long]


def test_bytes_are_base64_with_padding() -> None:
    assert shown(BYTES, "", "AA==", "AP8=", "+/+/") == ['""', '"AA=="', '"AP8="', '"+/+/"']


def test_booleans_are_words() -> None:
    assert shown(BOOLEAN, True, False) == ["true", "false"]


def test_lists_and_maps_keep_their_nulls() -> None:
    assert shown(array(STRING.with_optional(True)), [], ["a", None, '"']) == ["[]", r'["a",null,"\""]']
    assert shown(array(array(INT32)), [], [[]], [[1, -2], [3]]) == ["[]", "[[]]", "[[1,-2],[3]]"]
    assert shown(mapping(INT32.with_optional(True)), {}, {"b": 1, "a\n": None}) == ["{}", r'{"b":1,"a\n":null}']


def test_a_map_without_texts_as_keys_is_a_list_of_pairs() -> None:
    kind = LogicalType("map", items=DOUBLE, keys=INT16)
    for value, text in (([], b"[]"), ([[1, 2.5], [-1, "NaN"]], b'[[1,2.5],[-1,"NaN"]]')):
        assert formats.find("json").one(Constant(value, kind), False, BARE) == text
        block = LayoutBlock(1)
        assert encoded("json", block.written_column("m", kind, value), block) == [text]


def test_structs_have_their_fields_in_the_order_of_the_schema() -> None:
    inner = struct(Field("x", BOOLEAN.with_optional(True)), name="n.Inner")
    kind = struct(Field("b", INT32), Field('a "é"', inner.with_optional(True)), Field("", array(STRING)))
    assert shown(kind, {"b": 1, 'a "é"': None, "": []}, {"b": -1, 'a "é"': {"x": None}, "": ["y"]}) == [
        r'{"b":1,"a \"é\"":null,"":[]}',
        r'{"b":-1,"a \"é\"":{"x":null},"":["y"]}',
    ]
    assert formats.find("json").one(Struct(()), False, BARE) == b"{}"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (semantic(INT32, DEBEZIUM + "Date"), (-(2**31), -1, 0, 2**31 - 1)),
        (semantic(INT32, CONNECT + "Date"), (-719_162, 2_932_896)),
        (semantic(INT32, DEBEZIUM + "Time"), (0, 86_399_999)),
        (semantic(INT64, DEBEZIUM + "MicroTime"), (0, 86_399_999_999)),
        (semantic(INT64, DEBEZIUM + "NanoTime"), (0, 86_399_999_999_999)),
        (semantic(INT64, DEBEZIUM + "Timestamp"), (-62_135_596_800_000, 253_402_300_799_999)),
        (semantic(INT64, DEBEZIUM + "MicroTimestamp"), (-(2**63), 9_223_372_036_825_200_000)),
        (semantic(INT64, DEBEZIUM + "NanoTimestamp"), (-(2**63), -1, 2**63 - 1)),
        (semantic(INT64, CONNECT + "Timestamp"), (-1, 0, 1)),
        (semantic(INT64, DEBEZIUM + "MicroDuration"), (-(2**63), 2**63 - 1)),
    ],
)
def test_moments_and_durations_are_their_numbers(kind: LogicalType, values: tuple[int, ...]) -> None:
    assert shown(kind, *values) == [str(value) for value in values]


def test_instants_are_iso_texts() -> None:
    texts = ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.1Z"]
    assert shown(semantic(STRING, DEBEZIUM + "ZonedTimestamp"), *texts) == [f'"{text}"' for text in texts]


def test_decimals_are_their_unscaled_bytes() -> None:
    """Two's complement, big-endian, in as few bytes as hold the sign."""
    numbers = {0: "AA==", -1: "/w==", 127: "fw==", 128: "AIA=", -128: "gA==", -129: "/38="}
    assert shown(DECIMAL, *numbers.values()) == [f'"{text}"' for text in numbers.values()]


@pytest.mark.parametrize(
    ("scale", "value", "text"),
    [
        (2, "AA==", "0.00"),
        (2, "/w==", "-0.01"),
        (2, "fw==", "1.27"),
        (0, "AIA=", "128"),
        (8, "AQ==", "1E-8"),
        (-2, "AQ==", "1E+2"),
    ],
)
def test_decimals_may_be_numbers_with_all_digits_of_their_scale(scale: int, value: str, text: str) -> None:
    """As Jackson writes Java's BigDecimal with `decimal.format=NUMERIC`."""
    kind = semantic(BYTES, CONNECT + "Decimal", scale=str(scale), connect__decimal__precision="20")
    (found,) = shown(kind, value, form=NUMERIC)
    assert json.loads(found) == json.loads(text)
    within = struct(Field("n", kind), Field("l", array(kind.with_optional(True))), Field("m", mapping(kind)))
    inside = {"n": value, "l": [value, None], "m": {"k": value}}
    assert shown(within, inside, form=NUMERIC) == [f'{{"n":{found},"l":[{found},null],"m":{{"k":{found}}}}}']


def test_bytes_that_are_no_decimals_stay_base64_beside_numbers() -> None:
    assert shown(BYTES, "AP8=", form=NUMERIC) == ['"AP8="']


def test_a_text_is_put_together_of_its_parts() -> None:
    block = LayoutBlock(3)
    words = block.column("w", STRING.with_optional(True), 'q"\\', None, "é😀")
    numbers = block.column("n", INT64, -5, 0, 2**63 - 1)
    same = block.same_column("s", STRING, 'x"')
    found = encoded("json", Text(('a"', words, ":", numbers, "/", same)), block)
    assert [json.loads(text) for text in found] == ['a"q"\\:-5/x"', 'a"null:0/x"', f'a"é😀:{2**63 - 1}/x"']
    assert encoded("json", Struct(()), block) == [b"{}"] * 3


def test_parts_of_a_struct_keep_their_records_apart() -> None:
    block = LayoutBlock(3)
    layout = struct_of(
        a=block.column("a", INT32.with_optional(True), 1, None, 3),
        b=struct_of(c=block.column("c", STRING, "x", "", "z"), d=Constant([1], array(INT32))),
    )
    assert encoded("json", layout, block) == [
        b'{"a":1,"b":{"c":"x","d":[1]}}',
        b'{"a":null,"b":{"c":"","d":[1]}}',
        b'{"a":3,"b":{"c":"z","d":[1]}}',
    ]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (INT64, -1, b"-1"),
        (STRING, 'a"', rb'"a\""'),
        (STRING.with_optional(True), None, b"null"),
        (BOOLEAN, True, b"true"),
    ],
)
def test_a_column_may_have_one_value_in_all_records(kind: LogicalType, value: Any, text: bytes) -> None:
    block = LayoutBlock(2)
    assert encoded("json", block.same_column("v", kind, value), block) == [text, text]
