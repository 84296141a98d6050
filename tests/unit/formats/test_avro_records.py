"""Avro: another library reads the bytes of records, and writes the same bytes again."""

from __future__ import annotations

import base64
import math
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
from tailrace.errors import ConversionError
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout, Struct, Text
from tests.layout_blocks import BARE, LayoutBlock, each_way, encoded, stored, struct_of
from tests.servers.registry import Registry

pytest.importorskip("fastavro")

from tests.unit.formats.registered import avro, confluent, read_avro

CONNECT = "org.apache.kafka.connect.data."


def shown(registry: Registry, kind: LogicalType, *values: Any) -> list[Any]:
    """Return what another library reads of fields of this type."""
    return [read_avro(registry, data)["v"] for data in each_way(avro(registry), kind, *values) if data is not None]


@pytest.mark.parametrize(("kind", "bits"), [(INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)])
def test_whole_numbers_reach_to_the_ends_of_their_type(registry: Registry, kind: LogicalType, bits: int) -> None:
    numbers = [-(2 ** (bits - 1)), -65, -64, -1, 0, 63, 64, 2 ** (bits - 1) - 1]
    assert shown(registry, kind, *numbers) == numbers
    assert shown(registry, kind.with_optional(True), *numbers, None) == [*numbers, None]


def test_numbers_are_zig_zag_in_sevens_of_bits(registry: Registry) -> None:
    found = each_way(avro(registry), INT64, 0, -1, 1, 63, 64, -(2**63))
    assert [data[5:].hex() for data in found if data is not None] == ["00", "01", "02", "7e", "8001", "f" * 18 + "01"]


@pytest.mark.parametrize(("kind", "smallest"), [(FLOAT, 1.401298464324817e-45), (DOUBLE, 5e-324)])
def test_floating_numbers_keep_their_bits(registry: Registry, kind: LogicalType, smallest: float) -> None:
    found = shown(registry, kind.with_optional(True), 1.5, -0.0, smallest, "Infinity", "-Infinity", None)
    assert found == [1.5, 0.0, smallest, math.inf, -math.inf, None]
    assert math.copysign(1, found[1]) == -1


def test_what_is_no_number_has_javas_bits(registry: Registry) -> None:
    """Float.floatToIntBits and Double.doubleToLongBits have one value for every NaN."""
    (single,), (double,) = (each_way(avro(registry), kind, "NaN") for kind in (FLOAT, DOUBLE))
    assert single is not None
    assert double is not None
    assert (single[5:].hex(), double[5:].hex()) == ("0000c07f", "000000000000f87f")


def test_texts_are_utf_8_behind_their_length(registry: Registry) -> None:
    texts = ["", "a", 'say "a\\b"\n\x00', "é東😀", "x" * 64]
    assert shown(registry, STRING, *texts) == texts
    assert shown(registry, STRING.with_optional(True), *texts, None) == [*texts, None]


@pytest.mark.parametrize("data", [b"", b"\x00\xff", bytes(range(256))])
def test_bytes_are_as_they_are(registry: Registry, data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert shown(registry, BYTES.with_optional(True), text, None) == [data, None]


def test_booleans_are_a_byte(registry: Registry) -> None:
    assert shown(registry, BOOLEAN, True, False) == [True, False]
    assert shown(registry, BOOLEAN.with_optional(True), True, None) == [True, None]


@pytest.mark.parametrize("scale", [-2, 0, 2, 38])
def test_decimals_are_their_unscaled_bytes(registry: Registry, scale: int) -> None:
    kind = semantic(BYTES, CONNECT + "Decimal", scale=str(scale), connect__decimal__precision="38")
    numbers = [b"\x00", b"\xff", b"\x7f", b"\x00\x80", b"\x80", (10**36 - 1).to_bytes(15, "big")]
    assert shown(registry, kind, *(base64.b64encode(number).decode() for number in numbers)) == numbers


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (semantic(INT32, CONNECT + "Date"), (-719_162, 0, 2_932_896)),
        (semantic(INT32, CONNECT + "Time"), (0, 86_399_999)),
        (semantic(INT64, CONNECT + "Timestamp"), (-62_135_596_800_000, -1, 253_402_300_799_999)),
        (semantic(INT64, "io.debezium.time.MicroTimestamp"), (-(2**63), 9_223_372_036_825_200_000)),
        (semantic(INT64, "io.debezium.time.NanoTime"), (0, 86_399_999_999_999)),
        (semantic(STRING, "io.debezium.time.ZonedTimestamp"), ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z")),
    ],
)
def test_moments_are_what_events_show(registry: Registry, kind: LogicalType, values: tuple[Any, ...]) -> None:
    assert shown(registry, kind.with_optional(True), *values, None) == [*values, None]


def test_lists_maps_and_structs_are_nested(registry: Registry) -> None:
    optional = STRING.with_optional(True)
    assert shown(registry, array(optional), [], ["a", None, ""]) == [[], ["a", None, ""]]
    assert shown(registry, array(array(INT32)), [], [[]], [[1] * 65, [2]]) == [[], [[]], [[1] * 65, [2]]]
    assert shown(registry, mapping(optional), {}, {"é": "x", "": None}) == [{}, {"é": "x", "": None}]
    place = struct(Field("x", DOUBLE), Field("names", array(optional)), name="n.Place")
    kind = struct(
        Field("first", place.with_optional(True)), Field("rest", array(place.with_optional(True))), name="n.Row"
    )
    one = {"x": 1.5, "names": ["a", None]}
    rows = [{"first": None, "rest": []}, {"first": one, "rest": [None, one]}]
    assert shown(registry, kind, *rows) == rows


def test_a_map_without_texts_as_keys_is_a_list_of_records(registry: Registry) -> None:
    kind = LogicalType("map", items=DOUBLE, keys=INT16)
    block = LayoutBlock(2)
    found = encoded(avro(registry), struct_of(v=block.written_column("m", kind, [], [[1, 2.5], [-1, 0.0]])), block)
    assert [read_avro(registry, data)["v"] for data in found] == [
        [], [{"key": 1, "value": 2.5}, {"key": -1, "value": 0.0}],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (INT32.with_optional(True), None, "00"),
        (INT32.with_optional(True), 1, "0202"),
        (INT32.with_optional(True).with_default(5), None, "02"),
        (INT32.with_optional(True).with_default(5), 1, "0002"),
        (INT32.with_optional(True).with_default(None), 1, "0202"),
        (INT32.with_default(5), 1, "02"),
        (array(INT32).with_optional(True).with_default([]), None, "02"),
        (struct(Field("a", INT32)).with_optional(True), {"a": 1}, "0202"),
    ],
)
def test_a_union_has_its_null_first_unless_there_is_a_default(
    registry: Registry, kind: LogicalType, value: Any, data: str
) -> None:
    (found,) = each_way(avro(registry), kind, value)
    assert found is not None
    assert found[5:].hex() == data


def test_a_value_that_is_no_struct_is_written_alone(registry: Registry) -> None:
    form = avro(registry, "key")
    block = LayoutBlock(3)
    assert encoded(form, block.column("id", STRING, "a", "", "é"), block) == [
        b"\0\0\0\0\x01\x02a", b"\0\0\0\0\x01\x00", b"\0\0\0\0\x01\x04\xc3\xa9",
    ]  # fmt: skip
    assert registry.schemas == {1: '"string"'}
    # A null is not a record, wherever it comes from.
    nullable = block.column("n", INT64.with_optional(True), 5, None, -1)
    assert encoded(form, nullable, block) == [b"\0\0\0\0\x02\x02\x0a", None, b"\0\0\0\0\x02\x02\x01"]
    assert formats.find(form).one(Constant(None, STRING.with_optional(True)), True, BARE) is None


def test_a_struct_alone_has_no_byte_that_says_it_is_there(registry: Registry) -> None:
    """As with Apicurio's converter, its schema is the record, though it may be null."""
    row = Struct(struct_of(id=Constant(1, INT32)).members, "n.Row", optional=True)
    found = formats.find(avro(registry)).one(row, True, BARE)
    assert read_avro(registry, found) == {"id": 1}


def test_confluents_converter_says_that_an_optional_struct_is_there(registry: Registry) -> None:
    pytest.importorskip("httpx2")
    row = Struct(struct_of(id=Constant(1, INT32)).members, "n.Row", optional=True)
    found = formats.find(confluent(registry, "avro")).one(row, True, BARE)
    assert found == b"\0\0\0\0\x01\x02\x02"
    assert registry.schemas[1].startswith('["null",{"type":"record","name":"Row","namespace":"n"')


def test_columns_with_gaps_are_written_for_the_records_that_have_them(registry: Registry) -> None:
    """Two layouts are in one block, the second without a value, as deletes with their tombstones."""
    block = LayoutBlock(4)
    encoding = formats.find(avro(registry))
    moved = ComputedColumn((), lambda: stored(INT64, 10, 30), INT64)
    document = encoding.compile(struct_of(n=moved, t=Text(("id ", block.column("i", INT64, 1, 2, 3, 4)))), True, BARE)
    found = encoding.block(block).encode([document, None], block.index[0] % 2).to_pylist()
    assert [data and read_avro(registry, data) for data in found] == [
        {"n": 10, "t": "id 1"}, None, {"n": 30, "t": "id 3"}, None,
    ]  # fmt: skip


def test_a_topic_of_its_own_has_a_subject_of_its_own(registry: Registry) -> None:
    block = LayoutBlock(3)
    topics = ComputedColumn((block.column("t", STRING, "a", "b", "a"),), lambda topics: topics, STRING)
    form = confluent(registry, "avro")
    pytest.importorskip("httpx2")
    record = RecordLayout("c", topics, None, None)
    found = encoded(form, struct_of("n.R", v=block.column("v", INT32, 1, 2, 3)), block, record=record)
    assert sorted(version.subject for version in registry.versions) == ["a-value", "b-value"]
    assert [read_avro(registry, data) for data in found] == [{"v": 1}, {"v": 2}, {"v": 3}]


def test_a_null_where_there_may_be_none_is_an_error(registry: Registry) -> None:
    form = avro(registry)
    block = LayoutBlock(2)
    computed = ComputedColumn((), lambda: stored(INT32.with_optional(True), 1, None), INT32)
    for leaf in (computed, block.column("v", INT32, 1, None), block.written_column("w", INT32, 1, None)):
        with pytest.raises(ConversionError, match="A field of type int32 is null in a record, and its Avro schema"):
            encoded(form, struct_of(v=leaf), block)
    with pytest.raises(ConversionError, match="A field of type string is null"):
        formats.find(form).one(struct_of(v=Constant(None, STRING)), True, BARE)
