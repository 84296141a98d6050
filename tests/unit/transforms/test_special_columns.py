"""Geometries, vectors and long values of events; headers put into values; schema changes left out by their kind."""

from __future__ import annotations

import base64
import struct as binary
from typing import Any

import pytest

from tailrace import values as families
from tailrace.columns.logical import BYTES, INT32, INT64, STRING, Field, LogicalType, array, struct
from tailrace.records.layout import Constant, Node, RecordLayout
from tests.layout_blocks import TOPIC, LayoutBlock, change_event, struct_of
from tests.unit.transforms.rewritten_layouts import debezium, one, record_of, refused, seen

GEOMETRY, GEOGRAPHY = families.geometry.GEOMETRY, families.geometry.GEOGRAPHY


def wkb(kind: int, *numbers: float, order: str = "<", srid: int | None = None, count: int | None = None) -> bytes:
    """Return a geometry of this type with these coordinates."""
    data = bytes([order == "<"]) + binary.pack(order + "I", kind | (0 if srid is None else 0x20000000))
    data += b"" if srid is None else binary.pack(order + "i", srid)
    data += b"" if count is None else binary.pack(order + "I", count)
    return data + binary.pack(f"{order}{len(numbers)}d", *numbers)


def changed(step: dict[str, str], kind: LogicalType, data: bytes, srid: int | None) -> bytes:
    """Return the bytes of a geometry after the transform, which are the same in an event and in a single row."""
    value = {"wkb": base64.b64encode(data).decode(), "srid": srid}
    found = []
    for event in (True, False):
        block = LayoutBlock(2)
        row = struct_of("r.Value", g=block.column("g", kind.with_optional(True), value, None))
        record = record_of(change_event("c", None, row) if event else row)
        first, second = seen(step, record, block)
        assert first is not None
        assert second is not None
        rows = [one.value["after"] if event else one.value for one in (first, second)]
        assert (rows[0]["g"]["srid"], rows[1]["g"]) == (srid, None)
        found.append(base64.b64decode(rows[0]["g"]["wkb"]))
    assert found[0] == found[1]
    return found[0]


SWAP = debezium("SwapGeometryCoordinates")


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_axes_of_points_are_swapped(order: str) -> None:
    point = wkb(1, 1.0, 2.0, order=order)
    assert changed(SWAP, GEOMETRY, point, 4326) == wkb(1, 2.0, 1.0, order=order)
    extended = wkb(1, 1.0, 2.0, order=order, srid=4326)
    assert changed(SWAP, GEOMETRY, extended, 4326) == wkb(1, 2.0, 1.0, order=order, srid=4326)
    assert changed(SWAP, GEOGRAPHY, extended, 4326) == extended


def test_the_axes_are_swapped_in_arrays_too() -> None:
    block = LayoutBlock(2)
    data = [{"wkb": base64.b64encode(wkb(1, *axes)).decode(), "srid": 4326} for axes in ((1.0, 2.0), (2.0, 1.0))]
    column = block.column("g", array(GEOMETRY.with_optional(True)).with_optional(True), [data[0], None], None)
    record = record_of(struct_of("r.Value", g=column))
    assert [one and one.value["g"] for one in seen(SWAP, record, block)] == [[data[1], None], None]
    step = debezium("GeometryFormatTransformer")
    assert [one and one.value["g"] for one in seen(step, record, block)] == [[data[0], None], None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (wkb(2, 1, 2, 3, 4, count=2), wkb(2, 2, 1, 4, 3, count=2)),
        # Heights and measures keep their places.
        (wkb(0x80000001, 1, 2, 9), wkb(0x80000001, 2, 1, 9)),
        (wkb(0xC0000001, 1, 2, 8, 9), wkb(0xC0000001, 2, 1, 8, 9)),
        (wkb(1001, 1, 2, 9), wkb(1001, 2, 1, 9)),
        (wkb(3, count=1) + binary.pack("<I", 2) + binary.pack("<4d", 1, 2, 3, 4),
         wkb(3, count=1) + binary.pack("<I", 2) + binary.pack("<4d", 2, 1, 4, 3)),
        (wkb(7, count=2) + wkb(1, 1, 2) + wkb(1, 3, 4, order=">"),
         wkb(7, count=2) + wkb(1, 2, 1) + wkb(1, 4, 3, order=">")),
        (wkb(4, count=0), wkb(4, count=0)),
    ],
)  # fmt: skip
def test_the_axes_of_all_geometries_are_swapped(before: bytes, after: bytes) -> None:
    assert changed(SWAP, GEOMETRY, before, 3857) == after


def test_other_spatial_references_are_left_alone() -> None:
    point = wkb(1, 1.0, 2.0)
    assert changed(SWAP, GEOMETRY, point, 25832) == changed(SWAP, GEOMETRY, point, None) == point
    assert changed(debezium("SwapGeometryCoordinates", srids="25832"), GEOMETRY, point, 25832) == wkb(1, 2.0, 1.0)


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x01\x00\x00\x00", wkb(99, 1.0), wkb(2, 1.0, count=5)])
def test_what_is_no_geometry_is_refused(data: bytes) -> None:
    block = LayoutBlock(1)
    value = {"wkb": base64.b64encode(data).decode(), "srid": 4326}
    row = struct_of("r.Value", g=block.column("g", GEOMETRY, value))
    assert refused(SWAP, record_of(row), block) == "SwapGeometryCoordinates finds no geometry in the field wkb"


def test_spatial_references_go_in_and_out() -> None:
    bare, extended = wkb(1, 1.0, 2.0, order=">"), wkb(1, 1.0, 2.0, order=">", srid=4326)
    into, out = (debezium("GeometryFormatTransformer", format=name) for name in ("wkb", "ewkb"))
    assert changed(into, GEOMETRY, bare, 4326) == extended
    assert changed(into, GEOMETRY, extended, 4326) == bare
    assert changed(out, GEOMETRY, extended, 4326) == changed(out, GEOMETRY, bare, 4326) == bare
    assert changed(into, GEOMETRY, bare, None) == bare
    assert changed(into, GEOGRAPHY, bare, 4326) == bare


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (families.lists.vector(True).logical, [1.0, 0.1, 65504.0], '{ "values": [1.0, 0.1, 65504.0] }'),
        (families.lists.vector(False).logical, [1e10, -0.0], '{ "values": [1.0E10, -0.0] }'),
        (families.lists.vector(False).logical, [], '{ "values": [] }'),
        (families.maps.sparse().logical, {"dimensions": 3, "vector": [[1, 2.0], [3, -0.5]]},
         '{ "dimensions": 3, "vector": { "1": 2.0, "3": -0.5 } }'),
    ],
)  # fmt: skip
def test_vectors_become_json(kind: LogicalType, value: Any, text: str) -> None:
    block = LayoutBlock(2)
    row = struct_of("r.Value", v=block.column("v", kind.with_optional(True), value, None), w=Constant(1, INT32))
    found = seen(debezium("VectorToJsonConverter"), record_of(change_event("c", None, row)), block)
    assert [record and record.value["after"] for record in found] == [{"v": text, "w": 1}, {"v": None, "w": 1}]
    assert found[0] is not None
    assert found[0].value_schema is not None
    images = [part.type for part in found[0].value_schema.fields if part.name in ("before", "after")]
    assert {image.fields[0].type.name for image in images} == {"io.debezium.data.Json"}


# --- EnforceRecordSize ----------------------------------------------------------------------------------------------


def cut(block: LayoutBlock, most: int, least: int = 10, **columns: Node) -> list[Any]:
    step = debezium("EnforceRecordSize", max_bytes=str(most), min_field_size=str(least))
    record = record_of(change_event("c", None, struct_of("r.Value", **columns)))
    return [found and found.value["after"] for found in seen(step, record, block)]


def test_long_values_are_cut_until_a_record_fits() -> None:
    block = LayoutBlock(4)
    texts = block.column("t", STRING.with_optional(True), "a" * 5000, "b" * 9, None, "é" * 3000)
    data = block.column("d", BYTES.with_optional(True), base64.b64encode(bytes(5000)).decode(), "AA==", None, None)
    found = cut(block, 6000, t=texts, d=data)
    kept = [len(found[0]["t"]), len(base64.b64decode(found[0]["d"]))]
    # Both have one length, and share the excess.
    assert kept[0] == kept[1]
    assert 0 < kept[0] < 3000
    assert [row["t"] for row in found[1:3]] == ["b" * 9, None]
    assert set(found[3]["t"]) == {"é"}
    assert len(found[3]["t"]) < 3000
    # Values that fit stay.
    assert [len(row["t"] or "") for row in cut(block, 60_000, t=texts, d=data)] == [5000, 9, 0, 3000]


def test_short_values_are_left_alone_though_the_record_is_too_large() -> None:
    block = LayoutBlock(1)
    assert cut(block, 1, least=5000, t=block.column("t", STRING, "a" * 5000)) == [{"t": "a" * 5000}]
    assert cut(block, 1, least=4999, t=block.column("t", STRING, "a" * 5000)) == [{"t": ""}]


def test_moments_and_decimals_are_never_cut() -> None:
    block = LayoutBlock(1)
    kind = LogicalType("bytes", "org.apache.kafka.connect.data.Decimal", 1, (("scale", "0"),))
    moment = LogicalType("string", "io.debezium.time.IsoTimestamp", 1)
    columns = {"n": block.column("n", kind, "APo="), "at": block.column("at", moment, "1970-01-01T00:00:00Z")}
    assert cut(block, 1, least=0, **columns) == [{"n": "APo=", "at": "1970-01-01T00:00:00Z"}]


def test_what_is_no_event_is_never_cut() -> None:
    step = debezium("EnforceRecordSize", max_bytes="1", min_field_size="0")
    assert one(step, record_of(struct_of("r.Value", t=Constant("abc", STRING)))).value == {"t": "abc"}
    assert one(step, record_of(None)).value is None


# --- HeaderToValue --------------------------------------------------------------------------------------------------

ROW = struct_of("r.Value", id=Constant(1, INT32), s=struct_of("r.S", x=Constant(2, INT32)))
HEADERS = {"h": Constant("é", STRING), "n": Constant(5, INT64)}


def with_headers(value: Node | None, **headers: Node) -> RecordLayout:
    return record_of(value, headers=headers or HEADERS)


@pytest.mark.parametrize(
    ("headers", "fields", "value"),
    [
        ("h", "f", {"id": 1, "s": {"x": 2}, "f": "é"}),
        ("h,n", "f,id", {"id": 5, "s": {"x": 2}, "f": "é"}),
        # the order of the record's headers counts
        ("n,h", "g,f", {"id": 1, "s": {"x": 2}, "f": "é", "g": 5}),
        ("h", "s.f", {"id": 1, "s": {"x": 2, "f": "é"}}),
        ("h,n", "a.b.c,d", {"id": 1, "s": {"x": 2}, "d": 5, "a": {"b": {"c": "é"}}}),
        ("none,n", "f,g", {"id": 1, "s": {"x": 2}, "g": 5}),
    ],
)
def test_headers_become_fields(headers: str, fields: str, value: Any) -> None:
    for operation, left in (("copy", {"h", "n"}), ("move", {"h", "n"} - set(headers.split(",")))):
        found = one(debezium("HeaderToValue", headers=headers, fields=fields, operation=operation), with_headers(ROW))
        assert list(found.value.items()) == list(value.items())
        assert {name for name, _ in found.headers} == left


def test_a_struct_that_gets_a_field_is_required_and_a_new_one_is_not() -> None:
    row = struct_of("r.Value", s=struct_of("r.S", optional=True, x=Constant(2, INT32)))
    step = debezium("HeaderToValue", headers="h,n", fields="s.f,new.g", operation="copy")
    found = one(step, with_headers(row)).value_schema
    assert found is not None
    assert {part.name: part.type.optional for part in found.fields} == {"s": False, "new": True}


def test_records_without_the_headers_or_a_value_pass() -> None:
    step = debezium("HeaderToValue", headers="h", fields="f", operation="move")
    assert one(step, with_headers(ROW, x=Constant(1, INT32))).value == {"id": 1, "s": {"x": 2}}
    tombstone = one(step, with_headers(None))
    assert (tombstone.value, tombstone.headers) == (None, [("h", "é"), ("n", 5)])


def test_a_struct_that_is_null_stays_one_and_has_the_field_in_its_schema() -> None:
    kind = struct(Field("x", INT32), name="r.S").with_optional(True)
    step = debezium("HeaderToValue", headers="h", fields="s.f", operation="copy")
    found = one(step, with_headers(struct_of("r.Value", s=Constant(None, kind))))
    assert found.value == {"s": None}
    assert found.value_schema is not None
    assert [part.name for part in found.value_schema.fields[0].type.fields] == ["x", "f"]


def test_a_field_within_what_is_no_struct_is_refused() -> None:
    step = debezium("HeaderToValue", headers="h", fields="id.f", operation="copy")
    assert refused(step, with_headers(ROW)) == "HeaderToValue finds no struct in the field id"
    said = refused(step, with_headers(Constant("a", STRING)))
    assert said == "HeaderToValue finds no struct in the value"


# --- SchemaChangeEventFilter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "excluded", "stays"),
    [
        ([{"type": "CREATE"}], "CREATE", False),
        ([{"type": "CREATE"}], "alter,drop", True),
        ([{"type": "ALTER"}, {"type": "CREATE"}], "CREATE", True),
        ([], "DATABASE", False),
        ([], "TRUNCATE", True),
        (None, "DROP", False),
    ],
)
def test_schema_changes_are_left_out_by_their_kind(changes: Any, excluded: str, stays: bool) -> None:
    kind = array(struct(Field("type", STRING))).with_optional(True)
    record = record_of(
        struct_of("io.debezium.connector.sqlserver.SchemaChangeValue", tableChanges=Constant(changes, kind))
    )
    step = debezium("SchemaChangeEventFilter", schema_change_event_exclude_list=excluded)
    assert (seen(step, record)[0] is not None) is stays
    assert one(step, record_of(change_event("c", None, ROW))).topic == TOPIC
