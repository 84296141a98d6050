"""Changes that cannot become events stop the query or are quarantined, and everything else is delivered in order."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailrace.columns import Column, Marker, Transactions
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.log.messages import MESSAGES, MessageTask
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.position import RowPositions, Segment
from tailrace.connectors.registry import parse
from tailrace.errors import ConversionError, DecodeError
from tailrace.events import quarantine
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.log.rows import tasks as log_tasks
from tailrace.log.rows.tasks import LogTask
from tests.event_settings import event_settings
from tests.unit.events.changes import Change, batch, table

PLAIN = event_settings(
    "server", "golden", key_schemas_enable=False, value_schemas_enable=False, header_schemas_enable=False, run_id="run"
)
FAIL = replace(PLAIN, converting_failure_mode="fail")
ASIDE = replace(FAIL, processing_failure_mode="skip")
LATE = "294276-12-31 23:59:59.999999"
SOUND = "2020-01-01 00:00:00"
TABLE = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")


def rows(changes: list[Change], settings: EventSettings, marker: list[int] | None = None) -> list[dict[str, Any]]:
    return [row for found in to_rows(batch(TABLE, changes, marker), settings, FORM) for row in found.to_pylist()]


CHANGES: list[Change] = [
    ("c", None, ("1", SOUND)),
    ("c", None, ("2", LATE)),
    ("u", ("1", SOUND), ("7", SOUND)),
    ("d", ("3", LATE), None),
    ("u", ("4", LATE), ("5", SOUND)),
    ("c", None, ("6", SOUND)),
]


def test_every_other_change_is_delivered_in_order() -> None:
    found = rows(CHANGES, ASIDE)
    assert [row["op"] for row in found] == ["c", "quarantine", "d", "tombstone", "c", "quarantine", "quarantine", "c"]
    sound = rows([CHANGES[0], CHANGES[2], CHANGES[5]], PLAIN)
    assert [row["key"] for row in found if row["op"] != "quarantine"] == [row["key"] for row in sound]


def test_a_change_put_aside_says_what_where_and_why() -> None:
    found = rows(CHANGES, ASIDE)
    first, deletion, _ = (row for row in found if row["op"] == "quarantine")
    assert (first["topic"], first["key"], first["table"]) == ("server.quarantine", None, "late")
    assert (first["position"], first["ordinal"], first["headers"]) == (f"{5015:016X}", 0, None)
    value = json.loads(first["value"])
    message = base64.b64decode(value.pop("message"))
    assert value == {
        "table": "public.late",
        "op": "c",
        "position": "0/1397",
        "ordinal": 0,
        "lsn": "0/1392",
        "column": "at",
        "reason": "a value does not fit its type in events",
        "key": '{"id":2}',
    }
    assert message.endswith(LATE.encode())
    assert json.loads(deletion["value"])["key"] == '{"id":3}'


def test_a_row_of_a_snapshot_is_put_aside_as_the_insert_that_would_carry_it() -> None:
    row = rows([("r", None, ("9", LATE))], ASIDE, [Marker.FIRST])[0]
    message = base64.b64decode(json.loads(row["value"])["message"])
    assert message == b"I\0\0\0\0N\0\x02t\0\0\0\x019t\0\0\0\x1c" + LATE.encode()
    assert (row["snapshot"], row["transaction"]) == ("first", None)


def test_the_value_has_its_schema_where_values_have() -> None:
    row = rows([CHANGES[1]], replace(ASIDE, value_schemas_enable=True, quarantine_topic="put aside"))[0]
    value = json.loads(row["value"])
    assert value["schema"]["name"] == "tailrace.Quarantine"
    assert [field["field"] for field in value["schema"]["fields"]] == list(value["payload"])
    assert row["topic"] == "put_aside"


def test_fail_stops_and_names_table_column_and_position() -> None:
    with pytest.raises(ConversionError) as caught:
        rows(CHANGES, FAIL)
    text = str(caught.value)
    for part in ("column at of public.late", "at 0/1392", "change 0 of", "commits at 0/1397", "processing.failure"):
        assert part in text
    assert "294276" not in text


def test_values_that_may_become_null_put_nothing_aside() -> None:
    assert "quarantine" not in [row["op"] for row in rows(CHANGES, replace(ASIDE, converting_failure_mode="warn"))]


def test_an_operation_that_gives_no_events_is_not_put_aside_either() -> None:
    found = rows(CHANGES, replace(ASIDE, skipped_operations=frozenset("c")))
    assert [row["op"] for row in found] == ["d", "tombstone", "quarantine", "quarantine"]
    assert rows(CHANGES, replace(ASIDE, skipped_operations=frozenset("cd"))) == []


def test_a_fault_that_only_the_compiled_conversion_sees_is_found_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "plain_json", lambda plan, text: b"1")
    assert [row["op"] for row in rows(CHANGES, ASIDE)] == [
        "c", "quarantine", "d", "tombstone", "c", "quarantine", "quarantine", "c",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["event.processing.failure.handling.mode", "event.deserialization.failure.handling.mode"]
)
@pytest.mark.parametrize(("word", "mode"), [("fail", "fail"), ("warn", "warn"), ("skip", "skip"), ("ignore", "skip")])
def test_the_mode_has_two_names_and_skip_has_two_words(name: str, word: str, mode: str) -> None:
    required = {"database.hostname": "db", "database.user": "u", "database.dbname": "d"}
    settings = EventSettings.from_options(parse("postgres", required | {name: word}))
    assert settings.processing_failure_mode == mode


def test_a_large_block_loses_only_what_fails() -> None:
    many: list[Change] = [("c", None, (str(n), LATE if n % 500 == 3 else SOUND)) for n in range(10_000)]
    found = rows(many, ASIDE)
    assert [row["position"] for row in found] == sorted(row["position"] for row in found)
    assert [n for n, row in enumerate(found) if row["op"] == "quarantine"] == list(range(3, 10_000, 500))


def test_warn_logs_each_table_and_reason_once_and_skip_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    quarantine._reported.clear()
    with caplog.at_level(logging.WARNING, "tailrace"):
        rows(CHANGES, ASIDE)
        assert not caplog.records
        part = batch(TABLE, CHANGES)
        for settings in [replace(ASIDE, processing_failure_mode="warn")] * 2:
            list(to_rows(part, settings, FORM))
    assert len(caplog.records) == 1
    assert "quarantined on server.quarantine" in caplog.text
    assert len(part.warnings) == 6


def insert(oid: int, number: int) -> bytes:
    text = str(number).encode()
    return b"I" + struct.pack(">IcHcI", oid, b"N", 1, b"t", len(text)) + text


def segment(messages: list[bytes]) -> Segment:
    offsets = np.cumsum([0, *map(len, messages)]).astype(np.int64)
    count = len(messages)
    numbers = np.arange(count, dtype=np.int64)
    return Segment(
        replace(table("t", [Column("id", "int4", 23, nullable=False)], "id"), oid=16_400),
        np.frombuffer(b"".join(messages), np.uint8),
        offsets,
        RowPositions(
            transaction=np.zeros(count, np.int32),
            ordinal=numbers,
            total_order=numbers + 1,
            table_order=numbers + 1,
            lsn=6000 + numbers,
        ),
        Transactions(*(np.array([value], np.int64) for value in (700, 6100, 1_795_222_827_639_575, -1))),
    )


BROKEN = [insert(16_400, 1), insert(16_400, 2)[:-1] + b"", insert(16_400, 3), b"X", insert(16_400, 5)]


def read(settings: EventSettings) -> list[dict[str, Any]]:
    return [
        row for found in LogTask((segment(BROKEN),), settings, PostgresRowLog()).read() for row in found.to_pylist()
    ]


def test_a_message_that_cannot_be_decoded_is_put_aside_in_its_place() -> None:
    found = read(replace(PLAIN, processing_failure_mode="skip"))
    assert [row["op"] for row in found] == ["c", "quarantine", "c", "quarantine", "c"]
    assert [row["ordinal"] for row in found] == [0, 1, 2, 3, 4]
    blocks = [json.loads(row["value"])["transaction"]["total_order"] for row in found if row["op"] == "c"]
    assert blocks == [1, 3, 5]
    value = json.loads(found[3]["value"])
    assert (value["op"], value["column"], value["key"]) == (None, None, None)
    assert base64.b64decode(value["message"]) == b"X"


def test_fail_names_table_and_position_of_a_message_that_cannot_be_decoded() -> None:
    with pytest.raises(DecodeError, match=r"A message of public\.t cannot be decoded, at 0/1771, change 1 of"):
        read(PLAIN)


LARGE = [insert(16_400, 1), insert(16_400, 10**4200), insert(16_400, 3), b"X", insert(16_400, 5)]


def test_a_change_that_is_too_large_is_put_aside_without_its_bytes() -> None:
    required = {"database.hostname": "db", "database.user": "u", "database.dbname": "d"}
    own = {"event.max.change.bytes": "4000", "event.processing.failure.handling.mode": "skip", "topic.prefix": "server"}
    settings = EventSettings.from_options(parse("postgres", required | own))
    whole = segment(LARGE)
    for given in (whole, whole.without_large(4000)):
        found = [row for rows in LogTask((given,), settings, PostgresRowLog()).read() for row in rows.to_pylist()]
        assert [row["op"] for row in found] == ["c", "quarantine", "c", "quarantine", "c"]
        assert [row["ordinal"] for row in found] == [0, 1, 2, 3, 4]
        value = json.loads(found[1]["value"])["payload"]
        assert (value["table"], value["position"], value["ordinal"]) == ("public.t", "0/17D4", 1)
        assert value["reason"] == "the change is larger than event.max.change.bytes"
        assert value["message"] == ""


def test_fail_names_table_size_and_position_of_a_change_that_is_too_large() -> None:
    settings = replace(PLAIN, most_change_bytes=4000)
    whole = segment(LARGE)
    for given in (whole, whole.without_large(4000)):
        with pytest.raises(ConversionError) as caught:
            list(LogTask((given,), settings, PostgresRowLog()).read())
        text = str(caught.value)
        for part in (f"public.t has {len(LARGE[1])} bytes", "at 0/1771, change 1 of", "spark.driver.memory", "to warn"):
            assert part in text
    # the segment is larger than the limit, but no change is
    small = LARGE[:1] * 400
    assert sum(map(len, small)) > 4000
    assert len(list(LogTask((segment(small),), settings, PostgresRowLog()).read())) == 1


def test_a_task_does_not_hold_what_is_too_large() -> None:
    whole = segment([LARGE[1], LARGE[0], LARGE[1], LARGE[2], LARGE[1]])
    part = whole.without_large(4000)
    assert part.data.tobytes() == LARGE[0] + LARGE[2]
    assert part.left_out is not None
    assert part.left_out.tolist() == [len(LARGE[1]), 0] * 2 + [len(LARGE[1])]
    assert len(pickle.dumps(part)) < 4000
    assert whole.without_large(5000) is whole
    # a part of a segment has the sizes too
    for given in (part.cut(1, 3), whole.cut(1, 3).without_large(4000)):
        assert (given.data.tobytes()[given.offsets[0] : given.offsets[-1]]) == LARGE[0]
        assert given.left_out is not None
        assert given.left_out.tolist() == [0, len(LARGE[1])]


def test_a_large_segment_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a batch must stay below 2 GiB, even if a window or a trigger puts more into one task."""
    monkeypatch.setattr(log_tasks, "PIECE", 100)
    given = segment([insert(16_400, number) for number in range(1, 30)])
    parts = list(log_tasks.decoded(PostgresRowLog(), given, PLAIN))
    assert len(parts) > 4
    places = [first for first, _ in parts]
    assert places == np.cumsum([0, *(len(part) for _, part in parts)])[:-1].tolist()
    rows = [row for found in LogTask((given,), PLAIN, PostgresRowLog()).read() for row in found.to_pylist()]
    assert [json.loads(row["key"])["id"] for row in rows] == list(range(1, 30))
    assert [row["ordinal"] for row in rows] == list(range(29))
    # a message that is larger than a piece is a piece of its own
    monkeypatch.setattr(log_tasks, "PIECE", 5)
    assert len(list(log_tasks.decoded(PostgresRowLog(), given, PLAIN))) == 29


def test_logical_messages_have_the_limit_too() -> None:
    contents = [b"a", b"x" * 6000, b"\0" * 3500, b"b"]
    packed = [b"M" + struct.pack(">BQ", 1, 6001) + b"app\0" + struct.pack(">I", len(one)) + one for one in contents]
    count = len(packed)
    whole = Segment(
        MESSAGES,
        np.frombuffer(b"".join(packed), np.uint8),
        np.cumsum([0, *map(len, packed)]).astype(np.int64),
        RowPositions(
            transaction=np.zeros(count, np.int32),
            ordinal=np.arange(count, dtype=np.int64),
            lsn=np.full(count, 6001, np.int64),
        ),
        segment(LARGE).transactions,
    )
    settings = replace(PLAIN, most_change_bytes=4000, processing_failure_mode="skip")
    for given in (whole, whole.without_large(4000)):
        found = [row for rows in MessageTask(given, settings).read() for row in rows.to_pylist()]
        # base64 makes bytes a third longer
        assert [row["op"] for row in found] == ["m", "quarantine", "quarantine", "m"]
        assert [row["ordinal"] for row in found] == [0, 1, 2, 3]
        value = json.loads(found[1]["value"])
        assert (value["table"], value["op"], value["message"]) == ("pg_catalog.pg_logical_emit_message", "m", "")
        with pytest.raises(ConversionError, match=f"has {len(packed[1])} bytes"):
            list(MessageTask(given, replace(settings, processing_failure_mode="fail")).read())
    assert len(pickle.dumps(whole.without_large(4000))) < 6000
