"""Columns of images: the server's texts in each encoding, with nulls, defaults, and values that the log lacks."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tailrace import formats, values
from tailrace.columns.logical import FLOAT, array
from tailrace.records.layout import AFTER, BEFORE, ImageColumn, ServerTexts, ShownTexts
from tailrace.values.conversion import Conversion
from tests.layout_blocks import BARE, LayoutBlock, encoded, struct_of
from tests.servers.registry import Registry

pytest.importorskip("fastavro")
pytest.importorskip("httpx2")

from tests.unit.formats.registered import avro, confluent, read_avro, read_protobuf

INTEGER = values.integers.integer(32)
TEXT = values.strings.text(unavailable="__unavailable")
PRICE = values.decimals.fixed(2, 5)
LIST = values.lists.list_of(array(FLOAT.with_optional(True)), values.floats.floating(True), ",", True)
INSTANT = values.instants.instant(6, "adaptive", True)
CASES: list[tuple[Conversion, tuple[str, ...], list[Any], list[Any], list[Any]]] = [
    (INTEGER, ("-2147483648", "0", "7"), [-(2**31), 0, 7], [-(2**31), 0, 7], [-(2**31), 0, 7]),
    (TEXT, ("", 'q"\\', "é😀"), ["", 'q"\\', "é😀"], ["", 'q"\\', "é😀"], ["", 'q"\\', "é😀"]),
    (PRICE, ("1.5", "-0.01", "0"), ["AJY=", "/w==", "AA=="], [b"\x00\x96", b"\xff", b"\x00"],
     [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")]),
    (values.binaries.binary("bytes", "AA=="), ("\\x", "\\x00ff", "\\x61"), ["", "AP8=", "YQ=="],
     [b"", b"\x00\xff", b"a"], [b"", b"\x00\xff", b"a"]),
    (values.booleans.boolean_type(), ("t", "f", "true"), [True, False, True], [True, False, True], [True, False, True]),
    (LIST, ("{}", "{1.5,NULL}", "{-0}"), *[[[], [1.5, None], [-0.0]]] * 3),
]  # fmt: skip
"""Conversions with texts, and their forms in JSON, in Avro and in Arrow."""


def column(block: LayoutBlock, conversion: Conversion, *texts: Any, **more: Any) -> ImageColumn:
    return block.image_column("v", conversion, *texts, **more)


def in_json(block: LayoutBlock, leaf: ImageColumn) -> list[Any]:
    return [json.loads(data)["v"] for data in encoded("json", struct_of(v=leaf), block)]


@pytest.mark.parametrize(("conversion", "texts", "shown", "in_avro", "typed"), CASES)
def test_values_are_what_their_texts_say_in_each_encoding(
    registry: Registry, conversion: Conversion, texts: tuple[str, ...], shown: Any, in_avro: Any, typed: Any
) -> None:
    block = LayoutBlock(4)
    layout = struct_of(v=column(block, conversion, *texts, None))
    assert [json.loads(data)["v"] for data in encoded("json", layout, block)] == [*shown, None]
    assert [read_avro(registry, data)["v"] for data in encoded(avro(registry), layout, block)] == [*in_avro, None]
    assert [row["v"] for row in encoded("typed", layout, block)] == [*typed, None]
    assert block.lost_values == {}


def test_protobuf_has_the_same_values(registry: Registry) -> None:
    block = LayoutBlock(3)
    columns = {f"c{place}": block.image_column(f"c{place}", case[0], *case[1]) for place, case in enumerate(CASES[:5])}
    found = encoded(confluent(registry, "protobuf"), struct_of("n.R", **columns), block)
    messages = [read_protobuf(registry, data, "n.R") for data in found]
    for place, (_, _, _, wanted, _) in enumerate(CASES[:5]):
        made = [getattr(message, f"c{place}") for message in messages]
        assert [one.value if place == 2 else one for one in made] == wanted


@pytest.mark.parametrize(("optional", "default", "null"), [(True, None, None), (True, 5, 5), (False, 5, 5)])
def test_a_null_is_shown_as_the_default(registry: Registry, optional: bool, default: Any, null: Any) -> None:
    block = LayoutBlock(3)
    leaf = column(block, INTEGER, "1", None, "-1", optional=optional, default=default)
    assert in_json(block, leaf) == [1, null, -1]
    assert [read_avro(registry, data)["v"] for data in encoded(avro(registry), struct_of(v=leaf), block)] == [
        1,
        null,
        -1,
    ]
    assert [row["v"] for row in encoded("typed", struct_of(v=leaf), block)] == [1, null, -1]


def test_a_value_that_the_log_lacks_is_the_placeholder_of_its_type(registry: Registry) -> None:
    block = LayoutBlock(3)
    leaf = column(block, TEXT, "a", None, None, missing=(1,))
    assert in_json(block, leaf) == ["a", "__unavailable", None]
    found = encoded(avro(registry), struct_of(v=leaf), block)
    assert [read_avro(registry, data)["v"] for data in found] == ["a", "__unavailable", None]


def test_a_text_that_is_none_of_its_type_is_null_and_counted(registry: Registry) -> None:
    for form in ("json", "typed", avro(registry)):
        block = LayoutBlock(3)
        leaf = column(block, INTEGER, "12", "twelve", b"\xff")
        found = encoded(form, struct_of(v=leaf), block)
        if form == "json":
            assert [json.loads(data)["v"] for data in found] == [12, None, None]
        elif form == "typed":
            assert [row["v"] for row in found] == [12, None, None]
        else:
            assert [read_avro(registry, data)["v"] for data in found] == [12, None, None]
        assert block.lost_values == {"v": 2}


def test_bytes_that_are_no_utf_8_are_no_text(registry: Registry) -> None:
    block = LayoutBlock(3)
    leaf = column(block, TEXT, "é", b"\xc3", b"\xed\xa0\x80")
    assert in_json(block, leaf) == ["é", None, None]
    assert block.lost_values == {"v": 2}


def test_one_column_may_stand_in_both_images_and_twice() -> None:
    block = LayoutBlock(2)
    before = block.image_column("v", INTEGER, "1", "2", image=BEFORE)
    after = block.image_column("v", INTEGER, "3", None, image=AFTER)
    layout = struct_of(before=struct_of(v=before), after=struct_of(v=after, again=after), key=struct_of(v=before))
    assert encoded("json", layout, block) == [
        b'{"before":{"v":1},"after":{"v":3,"again":3},"key":{"v":1}}',
        b'{"before":{"v":2},"after":{"v":null,"again":null},"key":{"v":2}}',
    ]


def test_computed_columns_get_texts_as_written_and_as_shown() -> None:
    """An instant's Arrow type has no number of digits; events show those of the column's type."""
    block = LayoutBlock(3)
    leaf = column(block, INSTANT, "2020-01-02 03:04:05.1+00", None, "infinity")
    records = block.index[0]
    assert formats.arrow.array_of(ServerTexts(leaf), block, records).to_pylist() == [
        b"2020-01-02 03:04:05.1+00",
        None,
        b"infinity",
    ]
    shown = formats.arrow.array_of(ShownTexts(leaf), block, records).to_pylist()
    assert shown == ["2020-01-02T03:04:05.100000Z", None, "infinity"]
    gaps = LayoutBlock(2)
    missing = column(gaps, TEXT, "a", None, missing=(1,))
    assert formats.arrow.array_of(ServerTexts(missing), gaps, gaps.index[0]).to_pylist() == [b"a", b"\xff"]


def test_a_key_of_plain_columns_is_a_struct_in_text() -> None:
    block = LayoutBlock(2)
    number = block.image_column("id", INTEGER, "7", "-7", optional=False)
    text = block.image_column("name", TEXT, 'a "b",', "é", optional=False)
    assert encoded("simplestring", struct_of(id=number, name=text), block) == [
        b'Struct{id=7,name=a "b",}', "Struct{id=-7,name=é}".encode(),
    ]  # fmt: skip
    # Nullable values are checked one by one.
    maybe = block.image_column("n", INTEGER, "1", None, default=5)
    assert encoded("simplestring", struct_of(id=number, n=maybe), block) == [b"Struct{id=7,n=1}", b"Struct{id=-7}"]


@pytest.mark.parametrize(
    ("name", "conversion", "texts", "data"),
    [
        ("integer", INTEGER, ("1", "-1"), [b"\0\0\0\1", b"\xff" * 4]),
        ("long", values.integers.integer(64), ("1", "-9223372036854775808"), [b"\0" * 7 + b"\1", b"\x80" + b"\0" * 7]),
        ("double", values.floats.floating(False), ("1.5", "NaN"), [b"\x3f\xf8" + b"\0" * 6, b"\x7f\xf8" + b"\0" * 6]),
        ("float", values.floats.floating(True), ("1.5", "-Infinity"), [b"\x3f\xc0\0\0", b"\xff\x80\0\0"]),
        ("boolean", values.booleans.boolean_type(), ("t", "f"), [b"\1", b"\0"]),
        ("bytearray", values.binaries.binary("bytes", None), ("\\x", "\\x00ff"), [b"", b"\0\xff"]),
        ("binary", values.binaries.binary("bytes", None), ("\\x", "\\x00ff"), [b"", b"\0\xff"]),
        ("integer", values.dates.date("adaptive", False), ("1970-01-02", "-infinity"), [b"\0\0\0\1", b"\x80\0\0\0"]),
        ("simpleheader", TEXT, ("a", ""), [b"a", b""]),
        ("simplestring", TEXT, ("é", ""), ["é".encode(), b""]),
    ],
)
def test_converters_of_one_type_write_the_column_alone(
    name: str, conversion: Conversion, texts: tuple[str, str], data: list[bytes]
) -> None:
    block = LayoutBlock(3)
    leaf = column(block, conversion, *texts, None)
    assert encoded(name, leaf, block) == [*data, None]
    assert formats.find(name).compile(leaf, True, BARE) is not None
