"""Heartbeats: records on a topic of their own that tell how far a batch reads the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.events.control_records import heartbeat_row
from tests.unit.events.changes import plain_settings
from tests.unit.events.recorded import line_of, lines_of, settings_of


@pytest.mark.parametrize(
    "case",
    [
        "postgres/heartbeat",
        "postgres/heartbeat_named",
        "postgres-1.7/heartbeat",
        "sqlserver-1.0/heartbeat",
        "sqlserver-3/heartbeat",
    ],
)
def test_heartbeats_are_as_recorded(case: str) -> None:
    settings = settings_of(case)
    found = [line for line in lines_of(case) if "ServerNameKey" in line]
    assert len(found) > 1
    for line in found[:3]:
        at_ms = json.loads(line)["value"]["payload"]["ts_ms"]
        assert list(map(line_of, heartbeat_row(at_ms, 5005, settings).to_pylist())) == [line]


def test_a_heartbeat_stands_where_its_batch_ends_and_differs_by_its_time() -> None:
    (row,) = heartbeat_row(1_795_221_898_879, 5005, plain_settings()).to_pylist()
    assert (row["op"], row["position"], row["ordinal"]) == ("heartbeat", f"{5005:016X}", 1_795_221_898_879)
    assert (row["database"], row["schema"], row["table"], row["transaction"]) == ("golden", None, None, None)
    assert (row["key"], row["value"]) == (b'{"serverName":"server"}', b'{"ts_ms":1795221898879}')
    assert (row["headers"], row["snapshot"]) == (None, "false")
    assert str(row["source_ts"]) == "2026-11-21 00:44:58.879000+00:00"


@pytest.mark.parametrize(
    ("more", "topic"),
    [
        ({}, "__debezium-heartbeat.server"),
        ({"heartbeat_prefix": "beats"}, "beats.server"),
        ({"heartbeat_topic": "my beats"}, "my_beats"),
        ({"delimiter": "-"}, "__debezium-heartbeat-server"),
    ],
)
def test_the_topic_is_the_one_that_is_named_or_prefix_and_name(more: dict[str, Any], topic: str) -> None:
    assert heartbeat_row(1, 2, plain_settings(**more))["topic"].to_pylist() == [topic]


def test_heartbeats_ask_for_the_first_partition() -> None:
    settings = plain_settings(columns=("topic", "key", "value", "partition", "timestamp"))
    (row,) = heartbeat_row(1, 2, settings).to_pylist()
    assert (row["partition"], row["timestamp"]) == (0, None)
