"""Logical messages that applications have written to the log become events."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from tailrace.columns.batch import LogicalMessage
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.control_records import message_rows
from tests.unit.events.changes import plain_settings
from tests.unit.events.recorded import line_of, lines_of, settings_of

MADE = re.compile(r'"op":"m","ts_ms":\d+')
MESSAGE = LogicalMessage("app", b"\x00\xff?", 4990, 700, 5005, 1_795_222_827_639_575, 4980, 2, 3)


def message_of(payload: dict[str, Any]) -> LogicalMessage:
    """Return the message in an event."""
    source, place = payload["source"], payload["transaction"]
    previous = json.loads(source["sequence"])[0]
    return LogicalMessage(
        payload["message"]["prefix"],
        base64.b64decode(payload["message"]["content"]),
        source["lsn"],
        source["txId"],
        source["lsn"] + 1,
        source["ts_us"],
        None if previous is None else int(previous),
        0,
        None if place is None else place["total_order"],
    )


@pytest.mark.parametrize(
    ("case", "count"),
    [("postgres/logical_messages", 7), ("postgres/messages_in_transactions", 6), ("postgres/messages_included", 2)],
)
def test_messages_are_as_recorded(case: str, count: int) -> None:
    settings = settings_of(case)
    found = [line for line in lines_of(case) if '"op":"m"' in line]
    messages = [message_of(json.loads(line)["value"]["payload"]) for line in found]
    made = map(line_of, message_rows(messages, settings, FORM).to_pylist())
    assert [MADE.sub("made", line) for line in made] == [
        re.sub(r'("ts_ns":\d+)\d{3}', r"\g<1>000", MADE.sub("made", line)) for line in found
    ]
    assert len(found) == count


def test_rows_of_messages_stand_in_the_log_and_have_no_table() -> None:
    (row,) = message_rows([MESSAGE], plain_settings(), FORM).to_pylist()
    assert (row["op"], row["topic"], row["key"]) == ("m", "server.message", b'{"prefix":"app"}')
    assert (row["database"], row["schema"], row["table"]) == ("golden", None, None)
    assert (row["position"], row["ordinal"], row["transaction"]) == (f"{5005:016X}", 2, "700")
    assert row["headers"] is None


@pytest.mark.parametrize(
    ("mode", "content"), [("bytes", "AP8/"), ("base64", "AP8/"), ("base64-url-safe", "AP8_"), ("hex", "00ff3f")]
)
def test_the_content_is_shown_as_binary_handling_mode_says(mode: str, content: str) -> None:
    settings = plain_settings(binary_handling_mode=mode, value_schemas_enable=True)
    (row,) = message_rows([MESSAGE], settings, FORM).to_pylist()
    value = json.loads(row["value"])
    assert value["payload"]["message"] == {"prefix": "app", "content": content}
    kind = value["schema"]["fields"][4]["fields"][1]["type"]
    assert kind == ("bytes" if mode == "bytes" else "string")


def test_a_message_outside_of_transactions_has_none() -> None:
    alone = LogicalMessage("app", b"", 4990, None, 4990, 1_000, None, 0, None)
    (row,) = message_rows([alone], plain_settings(), FORM, xmin=742).to_pylist()
    value = json.loads(row["value"])
    assert (row["transaction"], value["transaction"], value["source"]["txId"]) == (None, None, None)
    assert (value["source"]["sequence"], value["source"]["xmin"]) == ('[null,"4990"]', 742)
    assert (value["source"]["schema"], value["source"]["table"]) == ("", "")


def test_no_messages_are_no_rows() -> None:
    assert message_rows([], plain_settings(), FORM).num_rows == 0
