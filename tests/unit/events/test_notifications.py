"""Notifications equal Debezium's records, and are logged."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tailrace.events.control_records import notification_rows, write_to_log
from tailrace.snapshot.incremental import (
    Collection,
    Cursor,
    IncrementalSnapshot,
    InitialNotifications,
    Notification,
    Notifications,
)
from tests.event_settings import event_settings

# The output of Debezium 3.6.1 on the topic of notifications during an initial and two incremental snapshots.
RECORDING = Path(__file__).with_name("notifications.jsonl.gz")
SETTINGS = event_settings("dbserver1", "golden", notification_topic="notifications")
TABLES = [("public", "c"), ("public", "empty"), ("public", "nopk"), ("public", "t")]
# Debezium names the signal table among those it has scanned, though it does not read it.
WITH_SIGNALS = sorted([*TABLES, ("public", "debezium_signal")])


def recorded() -> list[dict[str, Any]]:
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def initial() -> list[Notification]:
    of = InitialNotifications("dbserver1")
    found = [of.of("STARTED")]
    for table, rows in zip(TABLES, (10, 0, 1, 50), strict=True):
        found += [of.begun(TABLES, table), of.scanned(WITH_SIGNALS, table, rows)]
    return [*found, of.of("COMPLETED")]


def first() -> list[Notification]:
    """Return the notifications of a snapshot of five tables: several chunks, a key of two columns, three unreadable
    ones."""
    of = Notifications("dbserver1")
    names = ("t", "c", "empty", "nopk", "none")
    left: IncrementalSnapshot | None = IncrementalSnapshot("ad-hoc-1", tuple(Collection("public", n) for n in names))
    assert left is not None
    found = [of.listing(left, "STARTED")]
    for last, rows in (("20", 20), ("40", 40), ("1000", 51)):
        left = left.moved(Cursor((last,), ("1000",), rows))
        found.append(of.progress(left))
    found.append(of.scanned(left, "SUCCEEDED"))
    left = left.next_table()
    assert left is not None
    left = left.moved(Cursor(("c", "8"), ("c", "8"), 10))
    found += [of.progress(left), of.scanned(left, "SUCCEEDED")]
    for status in ("EMPTY", "NO_PRIMARY_KEY", "UNKNOWN_SCHEMA"):
        left = left.next_table()
        assert left is not None
        found.append(of.scanned(left, status))
    assert left.next_table() is None
    return [*found, of.of("ad-hoc-1", "COMPLETED")]


def second() -> list[Notification]:
    """Return the notifications of a snapshot that is paused after its first chunk."""
    of = Notifications("dbserver1")
    state = IncrementalSnapshot("ad-hoc-2", (Collection("public", "c"), Collection("public", "t")))
    found = [of.listing(state, "STARTED")]
    state = state.moved(Cursor(("c", "8"), ("c", "8"), 10))
    found += [of.progress(state), of.listing(state, "PAUSED"), of.listing(state, "RESUMED")]
    found.append(of.scanned(state, "SUCCEEDED"))
    left = state.next_table()
    assert left is not None
    for last, rows in (("20", 20), ("40", 40), ("1000", 51)):
        left = left.moved(Cursor((last,), ("1000",), rows))
        found.append(of.progress(left))
    return [*found, of.scanned(left, "SUCCEEDED"), of.of("ad-hoc-2", "COMPLETED")]


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Return notifications without times and random ids; maps, and so the tables that Debezium keeps in a set, in any
    order."""
    for part in ("key", "value"):
        payload = record[part]["payload"]
        if len(payload["id"]) == 36:
            payload["id"] = "uuid"
        if "timestamp" in payload:
            payload["timestamp"] = 0
    payload = record["value"]["payload"]
    more = payload["additional_data"]
    if payload["aggregate_type"] == "Initial Snapshot" and "data_collections" in more:
        more["data_collections"] = sorted(more["data_collections"].split(","))
    return record | {"order": [list(payload), list(record["value"]["schema"])]}


def test_records_are_as_recorded() -> None:
    notifications = [
        (notification, 1_700_000_000_000 + at) for at, notification in enumerate([*initial(), *first(), *second()])
    ]
    rows = notification_rows(notifications, SETTINGS, 0x1A, 7).to_pylist()
    made = [
        {"topic": row["topic"], "key": json.loads(row["key"]), "value": json.loads(row["value"]), "headers": []}
        for row in rows
    ]
    assert [record["value"]["payload"]["timestamp"] for record in made] == [at for _, at in notifications]
    assert list(map(comparable, made)) == list(map(comparable, recorded()))


def test_rows_have_places_of_their_own_and_no_table() -> None:
    rows = notification_rows([(notification, 5) for notification in initial()[:2]], SETTINGS, 0x1A, 7).to_pylist()
    assert [(row["position"], row["ordinal"]) for row in rows] == [("000000000000001A", 7), ("000000000000001A", 8)]
    assert {row["op"] for row in rows} == {"notification"}
    assert {(row["table"], row["transaction"], row["headers"]) for row in rows} == {(None, None, None)}
    assert rows[0]["source_ts"].timestamp() == 0.005


def test_without_schemas_records_are_their_payloads() -> None:
    plain = event_settings(
        "p", "d", key_schemas_enable=False, value_schemas_enable=False, notification_topic="notifications"
    )
    notification = Notifications("p").of("1", "COMPLETED")
    row = notification_rows([(notification, 5)], plain, 1).to_pylist()[0]
    assert row["key"] == b'{"id":"1"}'
    assert row["value"] == (
        b'{"id":"1","type":"COMPLETED","aggregate_type":"Incremental Snapshot",'
        b'"additional_data":{"connector_name":"p"},"timestamp":5}'
    )


def test_a_snapshot_that_is_stopped_names_the_tables_only_when_others_go_on() -> None:
    of = Notifications("p")
    state = IncrementalSnapshot("1", (Collection("s", "a"), Collection("s", "b"), Collection("s", "c")))
    assert of.stopped(state).data == (("connector_name", "p"),)
    assert of.stopped(state, state.collections[:2]).data[1] == ("data_collections", "s.a,s.b")


def test_the_log_gets_one_line_each(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # Messages at INFO stay hidden.
    monkeypatch.setattr(logging.getLogger("tailrace"), "level", logging.WARNING)
    write_to_log([(notification, 5) for notification in second()])
    assert len(caplog.messages) == len(second())
    assert caplog.messages[0] == (
        "Incremental Snapshot STARTED id=ad-hoc-2 at=5 connector_name=dbserver1 data_collections=public.c,public.t"
    )
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_ids_of_the_initial_snapshot_are_all_different() -> None:
    assert len({notification.id for notification in initial()}) == len(initial())
