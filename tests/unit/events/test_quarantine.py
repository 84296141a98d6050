"""Changes that cannot become events have quarantine records in every format of values."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from tailrace.columns import Column, Marker, TableId
from tailrace.errors import ConversionError
from tailrace.events import quarantine
from tailrace.events.mapping import ChangePlace
from tailrace.events.quarantine import QuarantinedChange, put_aside, report, too_large
from tests.unit.events import changes as by_hand
from tests.unit.events.changes import batch, plain_settings, read, table

ASIDE = plain_settings(processing_failure_mode="warn", converting_failure_mode="fail")
CHANGE = QuarantinedChange(
    TableId("golden", "public", "t"), ChangePlace("0/1388", "0/138D", f"{5005:016X}", "700"), 3, 1_795_222_827_639_575
)
PAYLOAD = {"op": "u", "column": "at", "reason": "it has no form", "key": '{"id":1}', "message": b"\0raw"}
LATE = "294276-12-31 23:59:59.999999"
SOUND = "2020-01-01 00:00:00"
EVENTS = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the reports of this process."""
    monkeypatch.setattr(quarantine, "_reported", set())


def test_a_record_says_where_the_change_stands_and_keeps_its_message() -> None:
    (row,) = put_aside(CHANGE, PAYLOAD, ASIDE).to_pylist()
    assert row["value"] == (
        b'{"table":"public.t","op":"u","position":"0/138D","ordinal":3,"lsn":"0/1388","column":"at",'
        b'"reason":"it has no form","key":"{\\"id\\":1}","message":"AHJhdw=="}'
    )
    assert base64.b64decode(json.loads(row["value"])["message"]) == PAYLOAD["message"]
    assert (row["op"], row["topic"], row["key"], row["headers"]) == ("quarantine", "server.quarantine", None, None)
    assert (row["database"], row["schema"], row["table"]) == ("golden", "public", "t")
    assert (row["position"], row["ordinal"], row["transaction"], row["snapshot"]) == (
        f"{5005:016X}",
        3,
        "700",
        "false",
    )


def test_the_value_has_its_schema_where_values_have_schemas() -> None:
    (row,) = put_aside(CHANGE, PAYLOAD, plain_settings(value_schemas_enable=True)).to_pylist()
    schema = json.loads(row["value"])["schema"]
    assert (schema["name"], schema["version"]) == ("tailrace.Quarantine", 1)
    assert [(field["field"], field["type"], field["optional"]) for field in schema["fields"]] == [
        ("table", "string", False),
        ("op", "string", True),
        ("position", "string", False),
        ("ordinal", "int64", False),
        ("lsn", "string", False),
        ("column", "string", True),
        ("reason", "string", False),
        ("key", "string", True),
        ("message", "bytes", False),
    ]


@pytest.mark.parametrize(
    ("more", "topic"),
    [
        ({}, "server.quarantine"),
        ({"quarantine_topic": "put aside"}, "put_aside"),
        ({"delimiter": "-"}, "server-quarantine"),
    ],
)
def test_the_topic_is_the_one_that_is_named_or_prefix_and_quarantine(more: dict[str, str], topic: str) -> None:
    assert put_aside(CHANGE, PAYLOAD, plain_settings(**more))["topic"].to_pylist() == [topic]


def test_a_row_of_a_snapshot_has_its_marker_and_no_transaction() -> None:
    change = QuarantinedChange(CHANGE.table, CHANGE.place, 0, CHANGE.commit_us, Marker.LAST)
    (row,) = put_aside(change, PAYLOAD | {"op": "r"}, ASIDE).to_pylist()
    assert (row["snapshot"], row["transaction"]) == ("last", None)


def test_a_format_that_has_no_form_for_it_leaves_it_json() -> None:
    settings = plain_settings(value_format="cloudevents")
    (row,) = put_aside(CHANGE, PAYLOAD, settings).to_pylist()
    assert json.loads(row["value"])["reason"] == "it has no form"


@pytest.mark.parametrize(("mode", "logged"), [("warn", 1), ("skip", 0), ("fail", 0)])
def test_a_warning_is_logged_once_for_table_and_reason(
    mode: str, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = plain_settings(processing_failure_mode=mode)
    with caplog.at_level(logging.WARNING, "tailrace"):
        said = {report(CHANGE, "it has no form", settings) for _ in range(3)}
    (sentence,) = said
    assert sentence == (
        "A change of public.t is quarantined on server.quarantine: it has no form, at 0/1388, change 3 of the "
        "transaction that commits at 0/138D."
    )
    assert [record.message for record in caplog.records] == [sentence] * logged
    with caplog.at_level(logging.WARNING, "tailrace"):
        report(CHANGE, "another reason", settings)
    assert len(caplog.records) == 2 * logged


@pytest.mark.parametrize(
    ("size", "reason", "error"),
    [
        (6000, "the change is larger than event.max.change.bytes", "has 6000 bytes, more than the 5000"),
        (None, "the event would have 2 GiB or more", "cannot become an event: it would have 2 GiB or more"),
    ],
)
def test_a_change_that_is_too_large_is_put_aside_without_its_values(size: int | None, reason: str, error: str) -> None:
    aside = plain_settings(processing_failure_mode="skip", most_change_bytes=5000)
    (row,) = too_large(CHANGE, size, aside, "c", '{"id":1}').to_pylist()
    value = json.loads(row["value"])
    assert (value["op"], value["column"], value["reason"]) == ("c", None, reason)
    assert (value["key"], value["message"]) == ('{"id":1}', "")
    with pytest.raises(ConversionError, match=error):
        too_large(CHANGE, size, plain_settings(most_change_bytes=5000))


def test_of_a_change_that_is_too_large_a_long_key_is_not_kept() -> None:
    aside = plain_settings(processing_failure_mode="skip", most_change_bytes=5000)
    for length, kept in ((4096, True), (4097, False)):
        (row,) = too_large(CHANGE, 6000, aside, "c", "k" * length).to_pylist()
        assert (json.loads(row["value"])["key"] is not None) is kept


CHANGES: list[by_hand.Change] = [
    ("c", None, ("1", SOUND)),
    ("c", None, ("2", LATE)),
    ("u", ("1", SOUND), ("7", LATE)),
    ("d", ("3", LATE), None),
    ("c", None, ("6", SOUND)),
]


def told(**more: Any) -> list[tuple[str, Any]]:
    found = read(batch(EVENTS, CHANGES), plain_settings(**more))
    return [(row["op"], row["key"] if row["op"] != "quarantine" else row["value"]["key"]) for row in found]


def test_a_change_is_put_aside_whole_and_the_others_are_delivered_around_it() -> None:
    assert told(processing_failure_mode="warn", converting_failure_mode="fail") == [
        ("c", {"id": 1}),
        ("quarantine", '{"id":2}'),
        ("quarantine", '{"id":7}'),
        ("quarantine", '{"id":3}'),
        ("c", {"id": 6}),
    ]


def test_what_is_put_aside_may_be_null_instead() -> None:
    assert "quarantine" not in dict(told(processing_failure_mode="warn", converting_failure_mode="skip"))


def test_where_nothing_may_be_put_aside_the_first_one_ends_the_query() -> None:
    with pytest.raises(ConversionError, match=r"column at of public\.late does not fit .* at 0/1392"):
        told(converting_failure_mode="fail")


def test_a_table_without_a_key_has_none_in_its_record() -> None:
    keyless = table("late", EVENTS.columns)
    (row,) = read(batch(keyless, CHANGES[1:2]), ASIDE)
    assert (row["op"], row["value"]["key"], row["value"]["op"]) == ("quarantine", None, "c")
