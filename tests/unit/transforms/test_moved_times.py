"""TimezoneConverter shows instants at a zone's offset, and reads wall times as the zone's."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.records.layout import Constant, Node
from tests.layout_blocks import LayoutBlock, change_event, source_block, struct_of
from tests.unit.transforms.rewritten_layouts import debezium, one, record_of, seen

DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
INSTANT = semantic(STRING, DEBEZIUM + "ZonedTimestamp")
MICROS = semantic(INT64, DEBEZIUM + "MicroTimestamp")


def zone(name: str = "Europe/Berlin", **options: str) -> dict[str, str]:
    return debezium("TimezoneConverter", converted_timezone=name, **options)


def moved(step: dict[str, str], kind: LogicalType, *given: Any, image: str = "after") -> list[Any]:
    """Return the column `v` of the rows after the transform, with a null as the last value."""
    block = LayoutBlock(len(given) + 1)
    row = struct_of("r.Value", v=block.column("v", kind.with_optional(True), *given, None))
    event = change_event("c", None, row) if image == "after" else change_event("d", row, None)
    found = [record and record.value[image]["v"] for record in seen(step, record_of(event), block)]
    assert found.pop() is None
    return found


@pytest.mark.parametrize("image", ["after", "before"])
@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("Europe/Berlin", "2020-01-02T03:04:05.1Z", "2020-01-02T04:04:05.1+01:00"),
        ("Europe/Berlin", "2020-07-02T23:04:05Z", "2020-07-03T01:04:05+02:00"),
        ("America/St_Johns", "2020-01-02T00:00:00.123456Z", "2020-01-01T20:30:00.123456-03:30"),
        ("+05:30", "1969-12-31T23:59:59.999999Z", "1970-01-01T05:29:59.999999+05:30"),
        ("UTC", "2020-01-02T03:04:05.100000Z", "2020-01-02T03:04:05.1Z"),
        ("Asia/Tokyo", "0001-01-01T00:00:00Z", "0001-01-01T09:18:59+09:18:59"),
        ("+01:00", "9999-12-31T23:30:00Z", "+10000-01-01T00:30:00+01:00"),
    ],
)
def test_an_instant_is_shown_at_the_zones_offset(name: str, given: str, wanted: str, image: str) -> None:
    assert moved(zone(name), INSTANT, given, image=image) == [wanted]


@pytest.mark.parametrize(
    ("name", "per_second"),
    [("Timestamp", 1000), ("MicroTimestamp", 10**6), ("NanoTimestamp", 10**9)],
)
def test_a_wall_time_is_read_as_the_zones(name: str, per_second: int) -> None:
    texts = ("2020-01-02 03:04:05", "2020-07-02 03:04:05", "1950-07-02 03:04:05", "1970-01-01 00:00:00")
    walls = [datetime.fromisoformat(text) for text in texts]
    utc, berlin = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")
    given = [int(wall.replace(tzinfo=utc).timestamp()) * per_second + 1 for wall in walls]
    wanted = [int(wall.replace(tzinfo=berlin).timestamp()) * per_second + 1 for wall in walls]
    assert moved(zone(), semantic(INT64, DEBEZIUM + name), *given) == wanted


def test_connects_own_timestamps_move_too() -> None:
    assert moved(zone("-02:00"), semantic(INT64, CONNECT + "Timestamp"), 0, -1) == [7_200_000, 7_199_999]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (semantic(INT32, DEBEZIUM + "Date"), 5),
        (semantic(INT64, DEBEZIUM + "MicroTime"), 5),
        (semantic(INT32, CONNECT + "Date"), 5),
        (INT64, 5),
        (STRING, "2020-01-02T03:04:05Z"),
    ],
)
def test_other_columns_stay(kind: LogicalType, value: Any) -> None:
    assert moved(zone(), kind, value) == [value]


def test_a_time_with_an_offset_takes_the_one_of_a_zone_without_rules() -> None:
    times = semantic(STRING, DEBEZIUM + "ZonedTime")
    assert moved(zone("+05:30"), times, "23:59:59.5Z", "00:00:00Z") == ["05:29:59.5+05:30", "05:30:00+05:30"]
    assert moved(zone("-00:30"), times, "00:15:00.120Z") == ["23:45:00.12-00:30"]


EPOCHS = {name: Constant(0, INT64) for name in ("ts_ms", "ts_us", "ts_ns")}


@pytest.mark.parametrize(
    ("options", "converted"),
    [
        ({}, {"after.v", "after.w"}),
        ({"include_list": "source:t"}, {"after.v", "after.w"}),
        ({"include_list": "source:t:v"}, {"after.v"}),
        ({"include_list": "source:other"}, set()),
        ({"include_list": "topic:server.public.t:w"}, {"after.w"}),
        ({"include_list": "t:before.v"}, set()),
        ({"include_list": "t:after.v,t:w"}, {"after.v", "after.w"}),
        ({"include_list": "source:t:source.ts_ms,t:source.ts_ns"}, {"source.ts_ms", "source.ts_ns"}),
        ({"exclude_list": "source:t:v"}, {"after.w"}),
        ({"exclude_list": "topic:server.public.t"}, set()),
        ({"exclude_list": "source:other"}, {"after.v", "after.w"}),
    ],
)
def test_rules_name_what_is_converted(options: dict[str, str], converted: set[str]) -> None:
    nodes: dict[str, Node] = {name: Constant(0, MICROS) for name in ("v", "w")}
    event = change_event("c", None, struct_of("r.Value", **nodes), source=source_block(**EPOCHS))
    found = one(zone("-01:00", **options), record_of(event)).value
    moves = {f"after.{name}" for name in "vw" if found["after"][name]}
    moves |= {f"source.{name}" for name in EPOCHS if found["source"][name]}
    assert moves == converted


def test_moments_of_the_source_move_by_the_offset() -> None:
    event = change_event("c", None, struct_of("r.Value"), source=source_block(**EPOCHS))
    rules = ",".join(f"source:t:source.{name}" for name in EPOCHS)
    found = one(zone("-01:00", include_list=rules), record_of(event)).value["source"]
    assert [found[name] for name in EPOCHS] == [-3_600_000, -3_600_000_000, -3_600_000_000_000]


def test_what_is_no_event_passes() -> None:
    row = struct_of("r.Value", v=Constant(0, MICROS))
    assert one(zone(), record_of(row)).value == {"v": 0}
    assert one(zone(), record_of(None)).value is None
