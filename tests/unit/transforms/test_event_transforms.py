"""The smaller transforms of Debezium: routing, headers, partitions, zones, sizes, geometries, vectors, messages."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import zoneinfo
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.columns import Column
from tailrace.columns.logical import BYTES, INT16, INT32, STRING, Field, array
from tailrace.columns.logical import struct as struct_of
from tailrace.errors import TransformError
from tailrace.records.layout import Constant, Header, Member, RecordLayout, Struct, constants
from tailrace.transforms.conversions.geometries import other_format, plain, swapped
from tailrace.transforms.conversions.zones import timezone_converter
from tailrace.transforms.headers.header_to_value import header_to_value
from tailrace.transforms.outbox.messages import decode_logical_decoding_message_content
from tailrace.transforms.routers.partition_routing import has_lasting_hash, java, murmur
from tailrace.transforms.routers.schema_change_filter import schema_change_event_filter
from tests.unit.events.changes import table
from tests.unit.transforms.told import faults, told

DEBEZIUM = "io.debezium.transforms."
ANN, BEN = ["1", "Ann", "north", "30"], ["1", "Ben", None, "30"]


def transform(name: str, **options: str) -> dict[str, str]:
    return {"type": DEBEZIUM + name, **{key.replace("_", "."): text for key, text in options.items()}}


# --- routing ---------------------------------------------------------------------------------------------------------


def test_tables_are_routed_to_one_topic_with_a_field_that_tells_them_apart() -> None:
    options = transform("ByLogicalTableRouter", topic_regex=r"(.*)\.customers", topic_replacement="$1.all")
    found = told([options], [("c", None, ANN), ("d", ANN, None), ("t", None, None)])
    assert {one.topic for one in found} == {"p.public.all"}
    assert [one.key for one in found[:3]] == [{"id": 1, "__dbz__physicalTableIdentifier": "p.public.customers"}] * 3
    assert (found[2].value, found[3].key) == ("TOMBSTONE", "TOMBSTONE")


def test_the_field_of_the_key_may_have_another_name_and_value_or_be_left_out() -> None:
    same = {"topic_regex": r".*\.(c.*)", "topic_replacement": "$1"}
    (found,) = told(
        [
            transform(
                "ByLogicalTableRouter",
                **same,
                key_field_name="of",
                key_field_regex=r".*(cust).*",
                key_field_replacement="$1!",
            )
        ],
        [("c", None, ANN)],
    )
    assert (found.topic, found.key) == ("customers", {"id": 1, "of": "cust!"})
    (found,) = told([transform("ByLogicalTableRouter", **same, key_enforce_uniqueness="false")], [("c", None, ANN)])
    assert found.key == {"id": 1}


def test_a_topic_that_depends_on_values_is_routed_as_well() -> None:
    unwrap = transform("ExtractNewRecordState", route_by_field="region")
    router = transform("ByLogicalTableRouter", topic_regex="nor(.*)", topic_replacement="sou$1")
    found = told([unwrap, router], [("c", None, ANN), ("c", None, BEN)])
    assert [one.topic for one in found] == ["south", "p.public.customers"]
    assert found[0].key["__dbz__physicalTableIdentifier"] == "north"


def test_a_router_without_its_options_is_refused() -> None:
    (fault,) = faults([transform("ByLogicalTableRouter", topic_regex="x")])
    assert "It needs the option topic.replacement" in fault
    (fault,) = faults([transform("ByLogicalTableRouter", topic_regex="x", topic_replacement="y", key_field_regex="z")])
    assert "need each other" in fault


# --- changed columns -------------------------------------------------------------------------------------------------


def test_the_columns_that_an_update_changed_are_named() -> None:
    options = transform("ExtractChangedRecordState", header_changed_name="C", header_unchanged_name="U")
    rows = [("c", None, ANN), ("u", ANN, BEN), ("u", ANN, ANN), ("u", None, BEN), ("d", BEN, None)]
    found = told([options], rows)
    none: list[str] = []
    assert [(one.headers.get("C"), one.headers.get("U")) for one in found] == [
        (none, none),
        (["name", "region"], ["id", "age"]),
        (none, ["id", "name", "region", "age"]),
        (none, none),
        (none, none),
        # A tombstone has its headers at the same place as its delete.
        (none, none),
    ]


def test_a_default_is_no_value() -> None:
    options = transform("ExtractChangedRecordState", header_changed_name="C")
    (found,) = told([options], [("u", ["1", "Ann", None, None], ["1", "Ann", None, "18"])])
    assert found.headers == {"C": ["age"]}


# --- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "hashes"),
    [
        (pa.array(["", "a", "ab", "r", "customers", "orders", "東", "hello world, hello world", None]),
         [89125410, -1119243492, -2035972426, -45493807, 275871734, 110124605, -400117077, -1159976391, 0]),
        (pa.array([1, 2, -1], pa.int32()), [-1931162451, -351805952, 171705313]),
        (pa.array([12345678901]), [1650017643]),
        (pa.array([True]), [-1891831265]),
        (pa.array([1.5]), [-1122085266]),
    ],
)  # fmt: skip
def test_murmur_hashes_are_those_that_debezium_has(values: pa.Array, hashes: list[int]) -> None:
    assert murmur(values).tolist() == hashes


def _java_text(text: str) -> int:
    found = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


@given(st.lists(st.none() | st.text()))
def test_java_hashes_of_texts_go_by_utf_16(texts: list[str | None]) -> None:
    wanted = [0 if text is None else _java_text(text) for text in texts]
    assert java(pa.array(texts, pa.string())).tolist() == wanted


def test_partitions_are_those_of_the_texts_and_defaults_that_events_show() -> None:
    of = table(
        "t",
        [
            Column("id", "int4", 23, nullable=False),
            Column("at", "timestamptz", 1184),
            Column("to", "text", 25, default="'x'::text"),
            Column("free", "text", 25),
        ],
        "id",
    )
    row = ["1", "2020-10-25 01:30:00.5+02", None, None]
    for field, text in (("change.at", "2020-10-24T23:30:00.500000Z"), ("change.to", "x"), ("source.snapshot", "false")):
        options = transform("partitions.PartitionRouting", partition_payload_fields=field, partition_topic_num="997")
        (found,) = told([options], [("c", None, row)], of)
        assert found.partition == (_java_text(text) & 0x7FFFFFFF) % 997
    beside = "id, change . at, change, after.free"
    options = transform("partitions.PartitionRouting", partition_payload_fields=beside, partition_topic_num="997")
    assert [one.partition for one in told([options], [("c", None, ["1", None, None, None])], of)] == [None]


def test_java_hashes_of_other_values() -> None:
    assert java(pa.array([[-1, 2, None], [], None], pa.list_(pa.int32()))).tolist() == [28892, 1, 0]
    assert java(pa.array([b"\x01\xff"])).tolist() == [931]
    assert java(pa.array([float("nan"), -0.0])).tolist() == [2146959360, -2147483648]
    assert not has_lasting_hash(struct_of(Field("a", INT32)))
    assert has_lasting_hash(array(STRING))


def test_records_are_placed_by_fields_that_are_there() -> None:
    options = transform("partitions.PartitionRouting", partition_payload_fields="change.region, change.none",
                        partition_topic_num="7")  # fmt: skip
    found = told([options], [("c", None, ANN), ("d", ANN, None), ("c", None, BEN), ("t", None, None)])
    placed = (_java_text("north") & 0x7FFFFFFF) % 7
    assert [(one.op, one.partition) for one in found] == [
        ("c", placed), ("d", placed), ("tombstone", None), ("c", None), ("t", None)
    ]  # fmt: skip
    (found,) = told([options | {"partition.payload.fields": "source.none"}], [("c", None, ANN)])
    assert found.partition is None


def test_a_value_without_a_lasting_hash_places_nothing() -> None:
    options = transform("partitions.PartitionRouting", partition_payload_fields="source", partition_topic_num="7")
    with pytest.raises(TransformError, match=r"by source, whose hash differs .*public\.customers"):
        told([options], [("c", None, ANN)])


# --- headers as fields -----------------------------------------------------------------------------------------------


def test_headers_become_fields_and_may_go() -> None:
    unwrap = transform("ExtractNewRecordState", add_headers="op,table")
    for operation, left in (("copy", {"__op", "__table"}), ("move", {"__table"})):
        to_value = transform("HeaderToValue", headers="__op,none", fields="meta.how,x", operation=operation)
        found = told([unwrap, to_value], [("c", None, ANN), ("d", ANN, None)])
        assert found[0].value["meta"] == {"how": "c"}
        assert set(found[0].headers) == left
        assert found[1].value is None
        assert set(found[1].headers) == {"__op", "__table"}


def test_a_parent_that_is_no_struct_takes_no_field() -> None:
    unwrap = transform("ExtractNewRecordState", add_headers="op")
    to_value = transform("HeaderToValue", headers="__op", fields="name.op", operation="copy")
    with pytest.raises(TransformError, match=r"HeaderToValue finds no struct in the field name"):
        told([unwrap, to_value], [("c", None, ANN)])
    (fault,) = faults([transform("HeaderToValue", headers="a,b", fields="c", operation="copy")])
    assert "lists of one length" in fault


def test_a_parent_that_is_null_stays_null_with_the_field_in_its_schema() -> None:
    row = struct_of(Field("id", INT32)).with_optional(True)
    value = Struct((Member("after", Constant(None, row)),))
    record = RecordLayout("d", "t", None, value, (Header("h", Constant("x", STRING)),))
    found = header_to_value({"headers": "h", "fields": "after.meta.h"}).rewrite(record)
    assert isinstance(found.value, Struct)
    after = found.value.part("after")
    assert isinstance(after, Constant)
    assert after.value is None
    assert [field.name for field in after.type.fields] == ["id", "meta"]
    assert [field.name for field in after.type.fields[1].type.fields] == ["h"]


# --- time zones ------------------------------------------------------------------------------------------------------

TIMES = table(
    "times",
    [
        Column("id", "int4", 23, nullable=False),
        Column("wall", "timestamp", 1114),
        Column("at", "timestamptz", 1184),
        Column("clock", "timetz", 1266),
        Column("day", "date", 1082),
    ],
    "id",
)
MOMENT = ["1", "2020-07-02 03:04:05.5", "2020-07-02 03:04:05.5+00", "03:04:05+00", "2020-07-02"]


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({}, {"wall", "at", "clock"}),
        ({"include_list": "source:times"}, {"wall", "at", "clock"}),
        ({"include_list": "source:times:at"}, {"at"}),
        ({"include_list": "source:times:after.at,times:before.wall"}, {"at"}),
        ({"include_list": "topic:p.public.times:wall"}, {"wall"}),
        ({"include_list": "times:wall,times:at"}, {"wall", "at"}),
        ({"include_list": "p.public.times:wall"}, {"wall"}),
        ({"include_list": "p.public.times:wall,times:at"}, {"wall"}),
        ({"include_list": "p.public.times:wall,times"}, {"wall"}),
        ({"include_list": "source:times,times:at"}, {"at"}),
        ({"include_list": "topic:p.public.times:wall,source:times:at"}, {"wall"}),
        ({"include_list": "source:other,times"}, {"wall", "at", "clock"}),
        ({"exclude_list": "times:at"}, {"wall", "clock"}),
        ({"exclude_list": "source:times"}, set()),
    ],
)
def test_rules_say_which_fields_are_converted(options: dict[str, str], changed: set[str]) -> None:
    (own,) = told([], [("c", None, MOMENT)], TIMES)
    (found,) = told(
        [transform("TimezoneConverter", converted_timezone="+02:00", **options)], [("c", None, MOMENT)], TIMES
    )
    after, before = found.value["after"], own.value["after"]
    assert {name for name in after if after[name] != before[name]} == changed
    shown = {"wall": before["wall"] - 7_200_000_000, "at": "2020-07-02T05:04:05.5+02:00", "clock": "05:04:05+02:00"}
    assert {name: after[name] for name in changed} == {name: shown[name] for name in changed}


def test_other_epochs_of_the_source_block_move_where_one_is_excluded() -> None:
    options = transform("TimezoneConverter", converted_timezone="-01:00", exclude_list="times:source.ts_us")
    (own,), (found,) = (told(chain, [("c", None, MOMENT)], TIMES) for chain in ([], [options]))
    moved = {name for name, shown in found.value["source"].items() if shown != own.value["source"][name]}
    assert moved == {"ts_ms", "ts_ns"}


def test_the_source_block_moves_where_it_is_named() -> None:
    options = transform("TimezoneConverter", converted_timezone="-01:00", include_list="times:source.ts_ms")
    (own,), (found,) = (told(chain, [("c", None, MOMENT)], TIMES) for chain in ([], [options]))
    assert found.value["source"]["ts_ms"] == own.value["source"]["ts_ms"] - 3_600_000
    assert found.value["source"]["ts_us"] == own.value["source"]["ts_us"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia"])
@given(us=st.lists(st.none() | st.integers(-3 * 10**15, 4 * 10**15), min_size=1))
def test_a_zones_offset_is_that_of_the_wall_time(zone: str, us: list[int | None]) -> None:
    from tailrace.transforms.conversions.zones import _as_wall_time, _at_offset

    info, epoch = zoneinfo.ZoneInfo(zone), dt.datetime(1970, 1, 1)
    given_us = pa.array(us, pa.int64())
    walls = _as_wall_time(zone, given_us.cast(pa.timestamp("us"))).cast(pa.int64()).to_pylist()
    texts = _at_offset(zone, given_us.cast(pa.timestamp("us", "UTC"))).to_pylist()
    for one, moved, text in zip(us, walls, texts, strict=True):
        if one is None:
            assert moved is None
            assert text is None
            continue
        offset = (epoch + dt.timedelta(microseconds=one)).replace(tzinfo=info).utcoffset()
        assert offset is not None
        assert moved == one - round(offset.total_seconds()) * 1_000_000
        assert dt.datetime.fromisoformat(text).replace(tzinfo=None) == epoch + dt.timedelta(microseconds=one) + offset


def test_a_zone_or_rules_that_mean_nothing_are_refused() -> None:
    for options, said in (
        ({}, "It needs the option converted.timezone"),
        ({"converted_timezone": "Mars"}, "converted.timezone must be a region"),
        ({"converted_timezone": "UTC", "include_list": "a", "exclude_list": "b"}, "exclude each other"),
        ({"converted_timezone": "UTC", "include_list": "a"}, "'a' is not a rule"),
        ({"converted_timezone": "UTC", "include_list": "source:a:b:c"}, "is not a rule"),
    ):
        (fault,) = faults([transform("TimezoneConverter", **options)])
        assert said in fault
    assert hash(timezone_converter({"converted.timezone": "UTC"})) == hash(
        timezone_converter({"converted.timezone": "UTC"})
    )


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_long_texts_are_cut_so_that_records_fit() -> None:
    def cut(least: str, *rows: list[str | None]) -> list[dict[str, Any]]:
        options = transform("EnforceRecordSize", max_bytes="4000", min_field_size=least)
        return [one.value["after"] for one in told([options], [("c", None, row) for row in rows])]

    small, large, both = (
        ["1", "n" * 90, "r" * 900, None],
        ["1", "n", "r" * 6000, None],
        ["1", "n" * 2000, "r" * 1000, None],
    )
    found = cut("100", small, large, both)
    assert (found[0]["name"], found[0]["region"]) == ("n" * 90, "r" * 900)
    room = 4000 - (len(found[1]["region"]) + 1)
    assert 1000 < room < 3000
    assert set(found[1]["region"]) == {"r"}
    left = 4000 - room - 1
    assert abs(len(found[2]["name"]) - 2 * len(found[2]["region"])) <= 2
    assert abs(len(found[2]["name"]) + len(found[2]["region"]) - left) <= 3
    (kept,) = cut("6000", large)
    assert kept["region"] == "r" * 6000
    (none,) = cut("100", ["1", "é" * 3000, "r" * 2000, None])
    assert (none["name"], none["region"]) == ("", "")


def test_sizes_count_as_debezium_estimates_them() -> None:
    def cut(row: list[str | None], **options: str) -> list[str]:
        step = transform("EnforceRecordSize", min_field_size="100", **options)
        (found,) = told([step], [("c", None, row)])
        return [found.value["after"]["name"], found.value["after"]["region"]]

    size = 3614
    assert cut(["1", "n" * 1000, "r" * 101, None], max_bytes=str(size)) == ["n" * 1000, "r" * 101]
    # 1,101 characters share the excess, and each share is rounded up
    assert cut(["1", "n" * 1000, "r" * 101, None], max_bytes=str(size - 10)) == ["n" * 990, "r" * 100]
    # the excess over the limit is that of the compressed size
    assert cut(["1", "n" * 1000, "r" * 101, None], max_bytes="1000", compression_ratio="0.5") == ["n" * 267, "r" * 26]
    # lengths are those of Java, where this character is two
    assert cut(["1", "\U0001f600" * 51, "r", None], max_bytes="1") == ["", "r"]
    assert cut(["1", "\U0001f600" * 50, "r", None], max_bytes="1") == ["\U0001f600" * 50, "r"]


# --- geometries and vectors ------------------------------------------------------------------------------------------


def _point(order: str, kind: int, *numbers: float, srid: int | None = None) -> bytes:
    start = struct.pack(order + "BI", order == "<", kind | (0x20000000 if srid is not None else 0))
    return (
        start
        + (b"" if srid is None else struct.pack(order + "i", srid))
        + struct.pack(order + "d" * len(numbers), *numbers)
    )


def test_the_axes_of_geometries_are_swapped() -> None:
    some = frozenset({4326})
    for order in "<>":
        assert swapped(some, _point(order, 1, 1, 2, srid=4326), 4326) == _point(order, 1, 2, 1, srid=4326)
        assert swapped(some, _point(order, 1, 1, 2), 9) == _point(order, 1, 1, 2)
        assert swapped(some, _point(order, 1, 1, 2), None) == _point(order, 1, 1, 2)
        with_height = 0x80000001
        assert swapped(some, _point(order, with_height, 1, 2, 3), 4326) == _point(order, with_height, 2, 1, 3)
        assert swapped(some, _point(order, 1001, 1, 2, 3), 4326) == _point(order, 1001, 2, 1, 3)
        line = struct.pack(order + "BII4d", order == "<", 2, 2, 1, 2, 3, 4)
        turned = struct.pack(order + "BII4d", order == "<", 2, 2, 2, 1, 4, 3)
        assert swapped(some, line, 4326) == turned
        several = struct.pack(order + "BII", order == "<", 7, 2) + line + _point(order, 1, 5, 6)
        assert swapped(some, several, 4326) == several[:9] + turned + _point(order, 1, 6, 5)
        rings = struct.pack(order + "BIII2d", order == "<", 3, 1, 1, 7, 8)
        assert swapped(some, rings, 4326) == struct.pack(order + "BIII2d", order == "<", 3, 1, 1, 8, 7)


def test_a_spatial_reference_is_put_in_and_taken_out() -> None:
    for order in "<>":
        bare, told_so = _point(order, 1, 1, 2), _point(order, 1, 1, 2, srid=4326)
        assert other_format(bare, 4326) == told_so
        assert other_format(bare, None) == bare
        assert other_format(told_so, 4326) == bare
        assert plain(told_so, 4326) == bare
        assert plain(bare, None) == bare


PLACES = table(
    "places",
    [
        Column("id", "int4", 23, nullable=False),
        Column("spot", "geometry", 90000),
        Column("dense", "vector", 90001),
        Column("thin", "sparsevec", 90002),
    ],
    "id",
)
SPOT = _point("<", 1, 1, 2, srid=4326)


def test_columns_of_geometries_and_vectors_are_changed_in_events_and_rows() -> None:
    row = ["1", SPOT.hex().upper(), "[1,2.5]", "{1:2,3:4}/5"]
    chain = [transform("SwapGeometryCoordinates"), transform("GeometryFormatTransformer", format="EWKB"),
             transform("VectorToJsonConverter")]  # fmt: skip
    (event, gone) = told(chain, [("c", None, row), ("d", ["1", None, None, None], None)], PLACES)[:2]
    (flat,) = told([transform("ExtractNewRecordState"), *chain], [("c", None, row)], PLACES)
    for found in (event.value["after"], flat.value):
        assert found["spot"] == {"wkb": base64.b64encode(_point("<", 1, 2, 1)).decode(), "srid": 4326}
        assert found["dense"] == '{ "values": [1.0, 2.5] }'
        assert found["thin"] == '{ "dimensions": 5, "vector": { "1": 2.0, "3": 4.0 } }'
    assert gone.value["before"] == {"id": 1, "spot": None, "dense": None, "thin": None}


def test_what_is_no_geometry_is_an_error_with_its_place() -> None:
    with pytest.raises(
        TransformError, match=r"SwapGeometryCoordinates finds no geometry in the field wkb.*public\.places"
    ):
        told([transform("SwapGeometryCoordinates")], [("c", None, ["1", SPOT[:12].hex(), None, None])], PLACES)


# --- messages and schema changes -------------------------------------------------------------------------------------

MESSAGE = struct_of(
    Field("op", STRING),
    Field("message", struct_of(Field("prefix", STRING), Field("content", BYTES))),
    name="x.MessageValue",
    version=1,
)


def _message(content: bytes, kind: Any = MESSAGE) -> RecordLayout:
    value = {"op": "m", "message": {"prefix": "p", "content": base64.b64encode(content).decode()}}
    return RecordLayout("m", "t", Constant("k", STRING), constants(value, kind))


def test_a_message_of_json_becomes_the_event_of_a_row() -> None:
    found = decode_logical_decoding_message_content({}).rewrite(_message(b'{"a":{"b":1},"c":null}'))
    assert isinstance(found.value, Struct)
    assert (found.key, found.value.name, found.value.version) == (None, "x.MessageValue.Envelope", None)
    assert [member.name for member in found.value.members] == ["op", "after"]
    after = found.value.part("after")
    assert isinstance(after, Struct)
    assert [member.name for member in after.members] == ["a"]
    assert after.members[0].node.type.name == "a"
    assert after.optional
    with_nulls = decode_logical_decoding_message_content({"fields.null.include": "true"}).rewrite(
        _message(b'{"c":null}')
    )
    assert isinstance(with_nulls.value, Struct)
    kept = with_nulls.value.part("after")
    assert isinstance(kept, Struct)
    assert kept.members[0].node.type.connect == "bytes"


@pytest.mark.parametrize("content", [b"text", b"[1]", b'{"a":[1,"x"]}', b"\xff"])
def test_a_message_of_anything_else_is_refused(content: bytes) -> None:
    from tailrace.records.transform import RefusedRecord

    with pytest.raises(RefusedRecord, match=r"message\.content"):
        decode_logical_decoding_message_content({}).rewrite(_message(content))


CHANGES = struct_of(Field("tableChanges", array(struct_of(Field("type", STRING)))))


@pytest.mark.parametrize(
    ("changes", "passes"),
    [([{"type": "CREATE"}], True), ([{"type": "DROP"}, {"type": "CREATE"}], False), ([], False), (None, False)],
)
def test_records_of_schema_changes_are_left_out_by_what_they_tell(changes: Any, passes: bool) -> None:
    filtering = schema_change_event_filter({"schema.change.event.exclude.list": "drop, DATABASE"})
    record = RecordLayout("schema", "t", None, constants({"tableChanges": changes}, CHANGES))
    assert (filtering.rewrite(record) is record) == passes
    other = RecordLayout("c", "t", None, constants({"a": 1}, struct_of(Field("a", INT16))))
    assert filtering.rewrite(other) is other


def test_every_transform_refuses_options_that_it_does_not_have() -> None:
    for name, options in (
        ("ExtractChangedRecordState", {}),
        ("partitions.PartitionRouting", {"partition_payload_fields": "op", "partition_topic_num": "1"}),
        ("HeaderToValue", {"headers": "a", "fields": "b", "operation": "copy"}),
        ("SchemaChangeEventFilter", {"schema_change_event_exclude_list": "DROP"}),
        ("EnforceRecordSize", {"max_bytes": "1"}),
        ("SwapGeometryCoordinates", {}),
        ("GeometryFormatTransformer", {}),
        ("VectorToJsonConverter", {}),
    ):
        assert not faults([transform(name, **options)])
        (fault,) = faults([transform(name, no_such="x", **options)])
        assert "It has no option no.such" in fault
    assert json.dumps(faults([transform("EnforceRecordSize", max_bytes="0")])).count("must be at least 1") == 1


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("io.debezium.connector.mysql.transforms.timescaledb.TimescaleDb", "does not have"),
        ("io.debezium.connector.v2.postgresql.transforms.timescaledb.TimescaleDb", "does not have"),
        ("io.debezium.transforms.tracing.ActivateTracingSpan", "No spans are traced"),
    ],
)
def test_what_is_not_there_is_refused_with_its_reason(kind: str, why: str) -> None:
    (fault,) = faults([{"type": kind}])
    assert kind in fault
    assert why in fault


def test_a_connectors_own_transform_is_known_by_its_class_or_its_last_part() -> None:
    for kind in (
        "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        "DecodeLogicalDecodingMessageContent",
    ):
        assert not faults([{"type": kind}])
