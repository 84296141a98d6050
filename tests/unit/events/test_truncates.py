"""A truncate becomes an event for each table, without key and rows, if truncates are enabled."""

from __future__ import annotations

import pytest

from tailrace.columns import Column
from tests.unit.events.changes import Change, batch, plain_settings, read, table
from tests.unit.events.recorded import recorded

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES: list[Change] = [("c", None, ("1", "a")), ("t", None, None), ("c", None, ("2", "b"))]


@pytest.mark.seed("000-41", "000-42", "000-43")
@pytest.mark.parametrize(
    ("case", "truncates"),
    [
        ("postgres/truncate", 6),
        ("postgres/truncate_several", 8),
        ("postgres/truncate_create_skipped", 0),
        ("postgres/truncate_skipped", 0),
        ("postgres/truncate_skipped_explicit", 0),
        ("postgres-1.7/truncate", 0),
        ("postgres-1.7/truncate_several", 8),
        ("postgres-1.7/truncate_skipped", 0),
    ],
)
def test_truncates_are_as_recorded(case: str, truncates: int) -> None:
    found = recorded(case)
    assert sum('"op":"t"' in line for line in found.lines) == truncates
    assert found.made() == found.lines


@pytest.mark.seed("000-41")
@pytest.mark.parametrize(
    ("form", "more", "has"),
    [
        ("3", {}, False),
        ("3", {"skipped_operations": frozenset("c")}, True),
        ("3", {"skipped_operations": frozenset(), "truncate_handling_mode": "skip"}, True),
        ("1.7", {}, False),
        ("1.7", {"skipped_operations": frozenset()}, False),
        ("1.7", {"skipped_operations": frozenset(), "truncate_handling_mode": "include"}, True),
        ("1.7", {"skipped_operations": frozenset("t"), "truncate_handling_mode": "include"}, False),
    ],
)
def test_truncates_come_where_the_options_of_the_form_say_so(
    form: str, more: dict[str, frozenset[str] | str], has: bool
) -> None:
    found = read(batch(TABLE, CHANGES), plain_settings(event_format=form, **more))
    assert ("t" in [row["op"] for row in found]) is has


def test_a_truncate_has_no_key_no_rows_and_its_place_in_the_log() -> None:
    settings = plain_settings(skipped_operations=frozenset(), key_schemas_enable=True)
    _, row, _ = read(batch(TABLE, CHANGES), settings)
    value = row["value"]
    assert (row["op"], row["key"], row["topic"], row["table"]) == ("t", None, "server.public.t", "t")
    assert (value["before"], value["after"], value["op"]) == (None, None, "t")
    assert (value["source"]["lsn"], value["source"]["table"]) == (5010, "t")
    assert (row["position"], row["transaction"]) == (f"{5015:016X}", "701")


def test_a_truncate_of_a_table_without_a_key_is_the_same() -> None:
    keyless = table("t", TABLE.columns)
    (row,) = read(batch(keyless, [("t", None, None)]), plain_settings(skipped_operations=frozenset()))
    assert (row["op"], row["key"]) == ("t", None)
