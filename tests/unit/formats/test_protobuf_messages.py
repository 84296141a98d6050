"""Protobuf: the bytes of records, which google's library reads by the schemas that were registered."""

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
from tailrace.records.layout import ComputedColumn, Constant
from tests.layout_blocks import BARE, LayoutBlock, each_way, encoded, stored, struct_of, unfilled
from tests.servers.registry import Registry

pytest.importorskip("google.protobuf")
pytest.importorskip("httpx2")
pytest.importorskip("fastavro")

from tests.unit.formats.registered import confluent, read_protobuf, schema_text

CONNECT = "org.apache.kafka.connect.data."
MESSAGE = "ConnectDefault1"
"""The name of the message for a struct without a name."""


def shown(registry: Registry, kind: LogicalType, *values: Any, **options: str) -> list[Any]:
    """Return the messages of structs of one field `v` of this type."""
    found = each_way(confluent(registry, "protobuf", **options), kind, *values)
    return [read_protobuf(registry, data, MESSAGE) for data in found if data is not None]


@pytest.mark.parametrize(("kind", "bits"), [(INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)])
def test_whole_numbers_reach_to_the_ends_of_their_type(registry: Registry, kind: LogicalType, bits: int) -> None:
    numbers = [-(2 ** (bits - 1)), -1, 0, 1, 127, 2 ** (bits - 1) - 1]
    assert [message.v for message in shown(registry, kind, *numbers)] == numbers


def test_a_null_and_a_default_are_both_left_out(registry: Registry) -> None:
    for kind, default, other in (
        (INT64, 0, 5), (DOUBLE, 0.0, 0.5), (FLOAT, 0.0, 0.5), (BOOLEAN, False, True), (STRING, "", "a"),
        (BYTES, "", "AA=="),
    ):  # fmt: skip
        found = each_way(confluent(registry, "protobuf"), kind.with_optional(True), None, default, other)
        assert [data is not None and len(data) > 6 for data in found] == [False, False, True]


def test_a_zero_with_a_sign_is_no_default(registry: Registry) -> None:
    for kind in (FLOAT, DOUBLE):
        (message,) = shown(registry, kind, -0.0)
        assert math.copysign(1, message.v) == -1


@pytest.mark.parametrize(
    ("option", "label"), [("optional_for_nullables", "optional"), ("wrapper_for_nullables", "google.protobuf.")]
)
def test_nulls_and_defaults_may_be_told_apart(registry: Registry, option: str, label: str) -> None:
    for kind, values in (
        (INT64, (None, 0, -1)), (DOUBLE, (None, 0.0, 1.5)), (BOOLEAN, (None, False, True)), (STRING, (None, "", "é")),
        (BYTES, (None, "", "AP8=")), (INT8, (None, 0, 1)), (FLOAT, (None, 0.0, "NaN")),
    ):  # fmt: skip
        found = shown(registry, kind.with_optional(True), *values, **{option: "true"})
        assert [message.HasField("v") for message in found] == [False, True, True]
        assert f"  {label}" in registry.versions[-1].schema


def test_floating_numbers_keep_their_bits(registry: Registry) -> None:
    found = [message.v for message in shown(registry, DOUBLE, 5e-324, "NaN", "-Infinity", 1.7976931348623157e308)]
    assert (found[0], found[2:]) == (5e-324, [-math.inf, 1.7976931348623157e308])
    assert math.isnan(found[1])
    (data,) = each_way(confluent(registry, "protobuf"), FLOAT, "NaN")
    assert data is not None
    assert data[6:].hex() == "0d0000c07f"


def test_texts_and_bytes_are_as_they_are(registry: Registry) -> None:
    texts = ["", 'say "a\\b"\n\x00', "é東😀", "x" * 200]
    assert [message.v for message in shown(registry, STRING.with_optional(True), *texts)] == texts
    parts = [b"", b"\x00\xff", bytes(range(256))]
    assert [
        message.v for message in shown(registry, BYTES, *(base64.b64encode(part).decode() for part in parts))
    ] == parts


def test_lists_of_numbers_are_packed_and_others_are_not(registry: Registry) -> None:
    assert [list(message.v) for message in shown(registry, array(INT32), [], [0, -1, 300])] == [[], [0, -1, 300]]
    assert [list(message.v) for message in shown(registry, array(DOUBLE), [], [0.0, 1.5])] == [[], [0.0, 1.5]]
    assert [list(message.v) for message in shown(registry, array(STRING), [], ["", "é"])] == [[], ["", "é"]]
    packed, loose = (each_way(confluent(registry, "protobuf"), array(kind), value)[0]
                     for kind, value in ((INT32, [1, 2]), (STRING, ["a", "b"])))  # fmt: skip
    assert packed is not None
    assert loose is not None
    assert (packed[6:].hex(), loose[6:].hex()) == ("0a020102", "0a01610a0162")


def test_lists_may_hold_messages_of_one_value(registry: Registry) -> None:
    kind = array(INT32.with_optional(True))
    (message,) = shown(registry, kind, [0, 1], wrapper_for_nullables="true")
    assert [item.value for item in message.v] == [0, 1]


def test_a_list_with_a_null_is_refused(registry: Registry) -> None:
    kind = array(STRING.with_optional(True))
    with pytest.raises(ConversionError, match="a null among its items"):
        formats.find(confluent(registry, "protobuf")).one(struct_of(v=Constant(["a", None], kind)), True, BARE)


def test_maps_are_lists_of_entries(registry: Registry) -> None:
    kind = mapping(INT32.with_optional(True))
    empty, full = shown(registry, kind, {}, {"é": 1, "": None, "z": 0})
    assert list(empty.v) == []
    assert [(entry.key, entry.value) for entry in full.v] == [("é", 1), ("", 0), ("z", 0)]
    (wrapped,) = shown(registry, kind, {"n": None, "z": 0}, wrapper_for_nullables="true")
    assert [entry.HasField("value") for entry in wrapped.v] == [False, True]


@pytest.mark.parametrize(
    ("unscaled", "precision"), [(0, 1), (-1, 1), (99, 2), (-100, 3), (10**18, 19), (-(2**63), 19), (10**37, 38)]
)
def test_decimals_have_their_digits_counted(registry: Registry, unscaled: int, precision: int) -> None:
    kind = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="38")
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    data = unscaled.to_bytes(size, "big", signed=True)
    (message,) = shown(registry, kind, base64.b64encode(data).decode())
    assert (message.v.value, message.v.precision, message.v.scale) == (data, precision, 2)


def test_dates_are_those_of_javas_calendar(registry: Registry) -> None:
    """It has Julian days before 15 October 1582, which follows 4 October."""
    kind = semantic(INT32, CONNECT + "Date").with_optional(True)
    found = shown(registry, kind, 0, -1, 2_932_896, -141_427, -141_428, -719_164, None)
    assert [(one.v.year, one.v.month, one.v.day) for one in found[:-1]] == [
        (1970, 1, 1), (1969, 12, 31), (9999, 12, 31), (1582, 10, 15), (1582, 10, 4), (1, 1, 1),
    ]  # fmt: skip
    assert not found[-1].HasField("v")


def test_times_and_timestamps_are_googles_messages(registry: Registry) -> None:
    times = shown(registry, semantic(INT32, CONNECT + "Time"), 0, 3_723_004, 86_399_999)
    assert [(one.v.hours, one.v.minutes, one.v.seconds, one.v.nanos) for one in times] == [
        (0, 0, 0, 0), (1, 2, 3, 4_000_000), (23, 59, 59, 999_000_000),
    ]  # fmt: skip
    moments = shown(registry, semantic(INT64, CONNECT + "Timestamp"), 0, -1, -62_135_596_800_000, 253_402_300_799_999)
    assert [(one.v.seconds, one.v.nanos) for one in moments] == [
        (0, 0), (-1, 999_000_000), (-62_135_596_800, 0), (253_402_300_799, 999_000_000),
    ]  # fmt: skip
    assert moments[-1].v.ToJsonString() == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("timestamp", INT64, 253_402_300_800_000),
        ("timestamp", INT64, -62_135_596_800_001),
        ("time of day", INT32, -1),
        ("time of day", INT32, 86_400_001),
    ],
)
def test_a_moment_that_googles_messages_do_not_have_is_refused(
    registry: Registry, name: str, kind: LogicalType, value: int
) -> None:
    of = semantic(kind, CONNECT + ("Timestamp" if name == "timestamp" else "Time"))
    with pytest.raises(ConversionError, match=f"A {name} of a record is outside the range"):
        formats.find(confluent(registry, "protobuf")).one(struct_of(v=Constant(value, of)), True, BARE)


def test_debeziums_moments_are_numbers(registry: Registry) -> None:
    found = shown(registry, semantic(INT64, "io.debezium.time.MicroTimestamp"), -(2**63), 9_223_372_036_825_200_000)
    assert [message.v for message in found] == [-(2**63), 9_223_372_036_825_200_000]


def test_structs_are_messages_behind_their_size(registry: Registry) -> None:
    place = struct(Field("x", DOUBLE), Field("name", STRING.with_optional(True)), name="n.Place")
    kind = struct(Field("first", place.with_optional(True)), Field("rest", array(place)), name="n.Row")
    one = {"x": 1.5, "name": "é" * 100}
    none, some = shown(
        registry, kind, {"first": None, "rest": []}, {"first": one, "rest": [one, {"x": 0.0, "name": None}]}
    )
    assert not none.v.HasField("first")
    assert (some.v.first.x, some.v.first.name) == (1.5, "é" * 100)
    assert [item.name for item in some.v.rest] == ["é" * 100, ""]


def test_a_struct_of_columns_has_a_size_in_each_record(registry: Registry) -> None:
    block = LayoutBlock(4)
    encoding = formats.find(confluent(registry, "protobuf"))
    texts = block.column("t", STRING, "", "a", "b" * 127, "c" * 128)
    numbers = ComputedColumn((), lambda: stored(INT64.with_optional(True), None, 7), INT64.with_optional(True))
    inner = struct_of("n.Inner", t=texts, n=numbers, k=struct_of("n.Known", v=Constant(1, INT32)))
    document = encoding.compile(struct_of("n.R", a=inner, b=Constant("end", STRING)), True, BARE)
    found = encoding.block(block).encode([None, document], block.index[0] % 2).to_pylist()
    assert [data is None for data in found] == [True, False, True, False]
    messages = [read_protobuf(registry, data, "n.R") for data in found if data is not None]
    assert [(one.a.t, one.a.n, one.a.k.v, one.b) for one in messages] == [("a", 0, 1, "end"), ("c" * 128, 7, 1, "end")]


@pytest.mark.parametrize(
    ("kind", "values", "place"),
    [
        (DOUBLE, [1.5, 0.0], 0),
        (INT64, [5, 0], 2),
        (INT32, [-1, 0], 4),
        (BOOLEAN, [True, False], 6),
        (STRING, ["é", ""], 7),
        (BYTES, ["AP8=", ""], 8),
    ],
)
def test_a_value_alone_is_one_of_googles_wrappers(
    registry: Registry, kind: LogicalType, values: list[Any], place: int
) -> None:
    """Numbers in zig-zag form show which message of wrappers.proto; a null is no record, a default an empty message."""
    from google.protobuf import wrappers_pb2

    block = LayoutBlock(3)
    form = confluent(registry, "protobuf", "key")
    found = encoded(form, block.column("v", kind.with_optional(True), *values, None), block)
    head = b"\0\0\0\0\x01" + (bytes([2, place * 2]) if place else b"\0")
    assert found[1:] == [head, None]
    assert found[0].startswith(head)
    assert "message StringValue {" in schema_text(registry, found[0])
    wrapper = list(wrappers_pb2.DESCRIPTOR.message_types_by_name)[place]
    read = getattr(wrappers_pb2, wrapper).FromString(found[0][len(head) :]).value
    assert read == (base64.b64decode(values[0]) if kind is BYTES else values[0])


def test_names_are_scrubbed_where_the_option_says_so(registry: Registry) -> None:
    kind = struct(Field("a-b", INT32), Field("9", STRING), Field("_x", STRING), name="my-app.t.Value-1")
    with pytest.raises(ConversionError, match="is not a name that Protobuf allows"):
        formats.find(confluent(registry, "protobuf")).compile(unfilled(kind), True, BARE)
    form = confluent(registry, "protobuf", scrub_invalid_names="true")
    layout = struct_of(
        kind.name, **{"a-b": Constant(7, INT32), "9": Constant("n", STRING), "_x": Constant("u", STRING)}
    )
    data = formats.find(form).one(layout, True, BARE)
    text = schema_text(registry, data)
    assert "message Value_1 {\n  int32 a_b = 1;\n  string x9 = 2;\n  string x_x = 3;\n}" in text
    assert data[6:].hex() == "08071201" + "6e" + "1a01" + "75"
