"""A change larger than event.max.change.bytes is quarantined, or ends the query with its name, from any source."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailrace.columns import ChangeBatch, Column, Marker
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import numbered_rows
from tailrace.kernels import programs
from tailrace.kernels.buffers import ExceedsArrow
from tailrace.values import fragments
from tests.event_settings import event_settings
from tests.unit.events import captured_changes
from tests.unit.events.changes import Change, batch, table

FAIL = event_settings(
    "server", "golden", key_schemas_enable=False, value_schemas_enable=False, header_schemas_enable=False,
    run_id="run", most_change_bytes=5000,
)  # fmt: skip
ASIDE = replace(FAIL, processing_failure_mode="skip")
TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
LONG = "x" * 6000
SEVERAL: list[Change] = [
    ("c", None, ("1", "a")),
    ("c", None, ("2", LONG)),
    ("u", ("3", LONG), ("3", "b")),
    ("d", ("4", LONG), None),
    ("u", ("5", "c"), ("6", LONG)),
    ("c", None, ("7", "d")),
]


def read(
    found: ChangeBatch, settings: EventSettings, form: SourceForm = FORM
) -> tuple[list[dict[str, Any]], list[int]]:
    parts = list(numbered_rows(found, settings, form))
    rows = [row for part, _ in parts for row in part.to_pylist()]
    return rows, [int(number) for _, numbers in parts for number in numbers]


def test_large_changes_are_put_aside_in_their_places_as_a_whole() -> None:
    rows, numbers = read(batch(TABLE, SEVERAL), ASIDE)
    assert [row["op"] for row in rows] == ["c", *["quarantine"] * 4, "c"]
    assert numbers == list(range(6))
    values = [json.loads(row["value"]) for row in rows[1:5]]
    assert [value["op"] for value in values] == ["c", "u", "d", "u"]
    assert [value["key"] for value in values] == ['{"id":2}', '{"id":3}', '{"id":4}', '{"id":6}']
    for value in values:
        assert (value["table"], value["message"]) == ("public.t", "")
        assert value["reason"] == "the change is larger than event.max.change.bytes"
        assert len(json.dumps(value)) < 1000


def test_the_error_names_table_size_position_and_remedy() -> None:
    with pytest.raises(ConversionError) as caught:
        read(batch(TABLE, SEVERAL), FAIL)
    said = f"A change of public.t has 6001 bytes, more than the 5000 that event.max.change.bytes allows, at 0/{5010:X},"
    assert caught.value.message.startswith(said)
    for remedy in ("--conf spark.driver.memory=8g", "event.processing.failure.handling.mode to warn"):
        assert remedy in caught.value.remedy
    assert LONG not in str(caught.value)


def test_a_change_counts_as_the_event_that_it_becomes() -> None:
    """A control character of one byte has six in JSON."""
    changes: list[Change] = [("c", None, ("1", "a")), ("c", None, ("2", "\x01" * 1500)), ("c", None, ("3", "b"))]
    rows, numbers = read(batch(TABLE, changes), ASIDE)
    assert [row["op"] for row in rows] == ["c", "quarantine", "c"]
    assert numbers == [0, 1, 2]
    with pytest.raises(ConversionError, match=r"A change of public\.t has [0-9]{4,5} bytes"):
        read(batch(TABLE, changes), FAIL)
    assert [row["op"] for row in read(batch(TABLE, changes), replace(FAIL, most_change_bytes=20_000))[0]] == ["c"] * 3


def test_many_small_changes_are_no_large_one() -> None:
    rows, _ = read(batch(TABLE, [("c", None, (str(number), "x" * 1000)) for number in range(50)]), FAIL)
    assert [row["op"] for row in rows] == ["c"] * 50


def test_what_no_event_is_made_of_is_not_told() -> None:
    rows, _ = read(batch(TABLE, SEVERAL), replace(ASIDE, skipped_operations=frozenset("cud")))
    assert rows == []


def test_rows_of_snapshots_have_the_same_limit() -> None:
    changes: list[Change] = [("r", None, ("1", "a")), ("r", None, ("2", LONG)), ("r", None, ("3", "b"))]
    rows, _ = read(batch(TABLE, changes, [Marker.FIRST, Marker.TRUE, Marker.LAST]), ASIDE)
    assert [(row["op"], row["snapshot"]) for row in rows] == [("r", "first"), ("quarantine", "true"), ("r", "last")]
    value = json.loads(rows[1]["value"])
    assert (value["op"], value["key"]) == ("r", '{"id":2}')


@pytest.mark.parametrize("connector", ["sqlserver", "db2"])
def test_change_tables_have_the_same_limit(connector: str) -> None:
    source = captured_changes.CUSTOMERS if connector == "sqlserver" else captured_changes.DB2_CUSTOMERS
    large = (*captured_changes.JOHN[:3], LONG)
    found = captured_changes.batch(
        source,
        [("c", 1, None, captured_changes.JOHN), ("u", 2, captured_changes.JOHN, large), ("r", 3, None, large)],
    )
    form = captured_changes.FORMS[connector]
    rows, _ = read(found, replace(ASIDE, connector=connector), form)
    assert [row["op"] for row in rows] == ["c", "quarantine", "quarantine"]
    with pytest.raises(ConversionError, match=r"customers has [0-9]+ bytes|CUSTOMERS has [0-9]+ bytes"):
        read(found, replace(FAIL, connector=connector), form)


def test_a_key_that_is_large_itself_is_not_kept() -> None:
    keyed = replace(TABLE, key=("v",))
    rows, _ = read(batch(keyed, SEVERAL[1:2]), ASIDE)
    assert json.loads(rows[0]["value"])["key"] is None


@pytest.mark.parametrize("mode", ["fail", "skip"])
def test_an_event_that_no_array_holds_is_named(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """2 GiB, here 9,000 bytes, is the limit for any setting."""
    whole = programs.Programs.run

    def run(self: programs.Programs, program: Any, index: Any) -> Any:
        data, offsets = whole(self, program, index)
        if len(data) > 9000:
            raise ExceedsArrow("too large")
        return data, offsets

    monkeypatch.setattr(programs.Programs, "run", run)
    settings = replace(FAIL, most_change_bytes=0, processing_failure_mode=mode)
    changes: list[Change] = [("c", None, ("1", "a")), ("c", None, ("2", LONG * 2)), ("c", None, ("3", LONG))]
    if mode == "fail":
        with pytest.raises(
            ConversionError, match=r"A change of public\.t cannot become an event: it would have 2 GiB or more"
        ):
            read(batch(TABLE, changes), settings)
        return
    rows, _ = read(batch(TABLE, changes), settings)
    assert [row["op"] for row in rows] == ["c", "quarantine", "c"]
    assert json.loads(rows[1]["value"])["reason"] == "the event would have 2 GiB or more"


def test_offsets_do_not_wrap() -> None:
    """The texts exceed 2 GiB in all; each has the same bytes."""
    part = bytes(1 << 20)
    with pytest.raises(ExceedsArrow):
        fragments.strings_fragment([part] * 2049)
    assert fragments.strings_fragment([part] * 3).offsets.tolist() == (np.arange(4) << 20).tolist()
