"""A record that a transform or a converter cannot handle gives one error that names it and its place.

With errors.tolerance=all, all other records are delivered, and the failed ones counted.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConversionError, TransformError
from tailrace.events.control_records import heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.unit.events.changes import Change, batch, table

CONNECT = "org.apache.kafka.connect.transforms."
DEBEZIUM = "io.debezium.transforms."
REQUIRED = {
    "database.hostname": "db", "database.user": "u", "database.dbname": "golden", "topic.prefix": "s",
    "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false", "skipped.operations": "none",
}  # fmt: skip
ITEMS = table("items", [Column("id", "int4", 23, nullable=False), Column("n", "text", 25)], "id")
OUTBOX = table(
    "outbox",
    [
        Column("id", "int4", 23, nullable=False),
        Column("aggregatetype", "text", 25),
        Column("aggregateid", "text", 25),
        Column("payload", "text", 25),
    ],
    "id",
)
UNWRAP = {"type": f"{DEBEZIUM}ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite"}
NUMBERS: tuple[Change, ...] = tuple(("c", None, (str(row), str(row * 100))) for row in range(5))
EVENTS: tuple[Change, ...] = (
    ("c", None, ("1", "order", "7", "{}")),
    ("u", None, ("1", "order", "7", "{}")),
    ("c", None, ("2", None, "7", "{}")),
    ("c", None, ("3", "order", "8", "{}")),
)


def settings(*chain: dict[str, str], **more: str) -> EventSettings:
    options = REQUIRED | {name.replace("_", "."): text for name, text in more.items()}
    options["transforms"] = ",".join(f"t{place}" for place in range(len(chain)))
    for place, given in enumerate(chain):
        options |= {f"transforms.t{place}.{name}": text for name, text in given.items()}
    found: EventSettings = pickle.loads(pickle.dumps(EventSettings.from_options(parse("postgres", options), "run")))
    return found


def records(changes: Sequence[Change], schema: Any, chosen: EventSettings) -> list[tuple[str, Any]]:
    """Return op and key of each record."""
    rows = (row for part in to_rows(batch(schema, changes), chosen, FORM) for row in part.to_pylist())
    return [(row["op"], row["key"] and json.loads(row["key"])) for row in rows]


CASES = [
    pytest.param(
        [UNWRAP, {"type": f"{CONNECT}ValueToKey", "fields": "no_such"}], ITEMS, NUMBERS,
        "ValueToKey finds no field no_such in the value", "0/1388", [], 5, id="a field that is not there",
    ),
    pytest.param(
        [{"type": f"{DEBEZIUM}Filter", "language": "jsr223.groovy", "condition": "value.after.no_such > 3"}],
        ITEMS, NUMBERS, "Filter's condition finds no field no_such at character 12", "0/1388", [], 5,
        id="a condition over a field that is not there",
    ),
    pytest.param(
        [UNWRAP, {"type": f"{CONNECT}Cast$Value", "spec": "n:int8"}], ITEMS, NUMBERS,
        "Cast finds a number beyond int8 in the field n", "0/139C", [("c", {"id": 0}), ("c", {"id": 1})], 3,
        id="a cast out of range",
    ),
    pytest.param(
        [{"type": f"{DEBEZIUM}outbox.EventRouter", "table.field.event.payload": "body"}], OUTBOX, EVENTS[:1],
        "EventRouter finds no column body", "0/1388", [], 1, id="an outbox without payload",
    ),
    pytest.param(
        [{"type": f"{DEBEZIUM}outbox.EventRouter", "table.op.invalid.behavior": "fatal"}], OUTBOX, EVENTS[:2],
        "EventRouter takes no update of an outbox (table.op.invalid.behavior)", "0/1392", [("c", "7")], 1,
        id="an operation that an outbox does not have",
    ),
    pytest.param(
        [{"type": f"{DEBEZIUM}outbox.EventRouter"}], OUTBOX, [EVENTS[0], *EVENTS[2:]],
        "EventRouter finds no value in the field aggregatetype, by which it routes", "0/1392",
        [("c", "7"), ("c", "8")], 1, id="an outbox row without a route",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("chain", "schema", "changes", "said", "place", "left", "dropped"), CASES)
def test_one_error_names_transform_field_table_and_position(
    chain: list[dict[str, str]], schema: Any, changes: Sequence[Change], said: str, place: str, left: Any, dropped: int
) -> None:
    with pytest.raises(TransformError) as caught:
        records(changes, schema, settings(*chain))
    assert caught.value.message.startswith(f"{said}, in a record of {schema.id}, at {place}, change 0 of the transac")
    assert caught.value.remedy


@pytest.mark.parametrize(("chain", "schema", "changes", "said", "place", "left", "dropped"), CASES)
def test_tolerance_drops_the_record_alone_and_tells_how_many(
    chain: list[dict[str, str]],
    schema: Any,
    changes: Sequence[Change],
    said: str,
    place: str,
    left: Any,
    dropped: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "tailrace"):
        found = records(changes, schema, settings(*chain, errors_tolerance="all"))
    assert found == left
    (told,) = caplog.messages
    assert told.startswith(f"{dropped} records of {schema.id} are dropped because of errors.tolerance=all: {said};")
    assert f"the first is at {place}, change 0 of the transaction" in told


def test_of_a_change_the_records_that_a_transform_takes_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A delete's tombstone has no value that a field could be taken from."""
    keep = {"type": f"{DEBEZIUM}Filter", "language": "jsr223.groovy", "condition": "value.op != 'x'"}
    keep["null.handling.mode"] = "evaluate"
    changes: list[Change] = [("d", ("1", "a"), None), ("c", None, ("2", "b")), ("u", ("2", "b"), ("3", "b"))]
    with pytest.raises(TransformError, match="op of null"):
        records(changes, ITEMS, settings(keep))
    with caplog.at_level(logging.ERROR, "tailrace"):
        found = records(changes, ITEMS, settings(keep, errors_tolerance="all"))
    assert found == [("d", {"id": 1}), ("c", {"id": 2}), ("d", {"id": 2}), ("c", {"id": 3})]
    assert caplog.messages[0].startswith("2 records of public.items are dropped")


def test_many_bad_records_are_all_dropped_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    cast = {"type": f"{CONNECT}Cast$Value", "spec": "n:int8"}
    changes: list[Change] = [("c", None, (str(row), str(row % 4 * 100))) for row in range(400)]
    with caplog.at_level(logging.ERROR, "tailrace"):
        found = records(changes, ITEMS, settings(UNWRAP, cast, errors_tolerance="all"))
    assert [key["id"] for _, key in found] == [row for row in range(400) if row % 4 < 2]
    (told,) = caplog.messages
    assert told.startswith("200 records of public.items are dropped")


def test_a_condition_that_cannot_be_compiled_is_refused_before_the_start() -> None:
    wrong = {"type": f"{DEBEZIUM}Filter", "language": "jsr223.groovy", "condition": "value.op == 'c' &&"}
    with pytest.raises(ConfigError, match=r"transforms\.t0\.type = .*Filter.*is not understood at character 19"):
        settings(wrong)


def test_a_schema_that_changes_in_mid_batch_is_an_error_from_its_position_on() -> None:
    chosen = settings(UNWRAP, {"type": f"{CONNECT}ValueToKey", "fields": "n"})
    assert len(records(NUMBERS, ITEMS, chosen)) == 5
    dropped = table("items", [Column("id", "int4", 23, nullable=False)], "id")
    with pytest.raises(TransformError, match=r"ValueToKey finds no field n in the value, .*public\.items, at 0/1388,"):
        records([("c", None, ("9",))], dropped, chosen)


def test_a_converter_that_cannot_write_a_key_is_tolerated_too(caplog: pytest.LogCaptureFixture) -> None:
    integers = {"key_converter": "org.apache.kafka.connect.converters.IntegerConverter"}
    with pytest.raises(ConversionError, match="IntegerConverter"):
        records(NUMBERS, ITEMS, settings(**integers))
    with caplog.at_level(logging.ERROR, "tailrace"):
        assert records(NUMBERS, ITEMS, settings(**integers, errors_tolerance="all")) == []
    assert caplog.messages[0].startswith("5 records of public.items are dropped")


def test_records_beside_changes_are_tolerated_too(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"type": f"{CONNECT}ExtractField$Value", "field": "no_such"}
    with pytest.raises(TransformError):
        heartbeat_row(1, 1, settings(wrong))
    with caplog.at_level(logging.ERROR, "tailrace"):
        assert heartbeat_row(1, 1, settings(wrong, errors_tolerance="all")).num_rows == 0
    assert "is dropped because of errors.tolerance=all" in caplog.messages[0]


def test_a_change_that_is_no_event_is_not_a_matter_of_tolerance() -> None:
    """event.processing.failure.handling.mode decides about it."""
    dates = table("dates", [Column("id", "int4", 23, nullable=False), Column("d", "date", 1082)], "id")
    chosen = settings(errors_tolerance="all", **{"event.converting.failure.handling.mode": "fail"})
    with pytest.raises(ConversionError, match=r"column d of public\.dates"):
        records([("c", None, ("1", "no date"))], dates, chosen)


def test_what_is_dropped_beside_a_record_that_is_too_large_counts_once() -> None:
    # As JSON it is six times as large as its text.
    large: Change = ("c", None, ("4", "order", "9", "\x01" * 300))
    chosen = settings(
        {"type": f"{DEBEZIUM}Filter", "language": "jsr223.groovy", "condition": "value.after.aggregateid != 'x'"},
        {"type": f"{DEBEZIUM}outbox.EventRouter", "table.op.invalid.behavior": "fatal"},
        errors_tolerance="all",
        event_max_change_bytes="1000",
        event_processing_failure_handling_mode="warn",
    )
    found = batch(OUTBOX, [*EVENTS[:2], large, EVENTS[3]])
    ops = [row["op"] for part in to_rows(found, chosen, FORM) for row in part.to_pylist()]
    assert ops == ["c", "quarantine", "c"]
    (told,) = [one for one in found.warnings if "dropped" in one]
    assert told.startswith(f"1 records of {OUTBOX.id} are dropped")
