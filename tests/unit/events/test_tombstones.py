"""A tombstone follows every delete, with its key, and nothing else."""

from __future__ import annotations

import pytest

from tailrace.columns import Column
from tests.unit.events.changes import Change, batch, plain_settings, read, table
from tests.unit.events.recorded import recorded

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES: list[Change] = [
    ("c", None, ("1", "a")),
    ("d", ("1", None), None),
    ("t", None, None),
    ("d", ("2", "b"), None),
    ("u", None, ("3", "c")),
]
EVERYTHING = {"skipped_operations": frozenset[str]()}


@pytest.mark.seed("000-40", "001-16")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/tombstones_off",
        "postgres-1.7/tombstones_off",
        "sqlserver-1.0/tombstones_off",
        "sqlserver-3/tombstones_off",
    ],
)
def test_without_tombstones_events_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert any('"op":"d"' in line for line in found.lines)
    assert not any('"value":null,' in line for line in found.lines)
    assert found.made() == found.lines


@pytest.mark.seed("000-39", "000-40")
@pytest.mark.parametrize("form", ["3", "1.7"])
def test_a_tombstone_follows_its_delete_with_the_same_key_and_place(form: str) -> None:
    settings = plain_settings(event_format=form, truncate_handling_mode="include", **EVERYTHING)
    found = read(batch(TABLE, CHANGES), settings)
    assert [row["op"] for row in found] == ["c", "d", "tombstone", "t", "d", "tombstone", "u"]
    for place in (1, 4):
        deletion, tombstone = found[place : place + 2]
        assert tombstone["value"] is None
        for name in ("topic", "key", "headers", "table", "position", "ordinal", "transaction", "source_ts", "snapshot"):
            assert tombstone[name] == deletion[name], name


def test_without_them_every_other_record_is_the_same() -> None:
    settings = plain_settings(**EVERYTHING, tombstones_on_delete=False)
    assert [row["op"] for row in read(batch(TABLE, CHANGES), settings)] == ["c", "d", "t", "d", "u"]


def test_a_skipped_delete_leaves_no_tombstone() -> None:
    settings = plain_settings(skipped_operations=frozenset("dt"))
    assert [row["op"] for row in read(batch(TABLE, CHANGES), settings)] == ["c", "u"]


def test_a_tombstone_has_neither_value_nor_schema_where_values_have_schemas() -> None:
    settings = plain_settings(value_schemas_enable=True, key_schemas_enable=True)
    deletion, tombstone = read(batch(TABLE, CHANGES[1:2]), settings)
    assert list(deletion["value"]) == list(deletion["key"]) == ["schema", "payload"]
    assert tombstone["key"] == deletion["key"]
    assert tombstone["value"] is None
