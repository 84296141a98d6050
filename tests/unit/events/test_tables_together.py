"""Batches of several tables become the records of each table, in log order."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import ChangeBatch, Column, Image, TableSchema
from tailrace.columns.batch import Marker
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import ColumnPool, rows_of_tables
from tailrace.events.table_plan import TablePlans
from tailrace.log.rows import small_tables
from tailrace.log.rows.small_tables import records_of_reads
from tests.unit.events.changes import Change, batch, plain_settings, rows, table
from tests.unit.events.recorded import settings_of

PLAIN = plain_settings(skipped_operations=frozenset())
A = table("a", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
B = table("b", [Column("w", "text", 25), Column("n", "int4", 23, nullable=False), Column("x", "text", 25)], "n")
KEYLESS = table("c", [Column("v", "text", 25)])
CHANGES: list[tuple[TableSchema, Change]] = [
    (A, ("c", None, ("1", "a"))),
    (B, ("c", None, ("w", "2", "x"))),
    (A, ("u", ("1", None), ("3", "a"))),
    (KEYLESS, ("c", None, ("k",))),
    (B, ("t", None, None)),
    (B, ("d", (None, "2", None), None)),
    (A, ("d", ("3", None), None)),
]


def wide(row: Any, places: Any, width: int) -> list[Any] | None:
    """Return a row of a table, with its columns at their places in the pool."""
    if row is None:
        return None
    found: list[Any] = [None] * width
    for value, place in zip(row, places, strict=True):
        found[place] = value
    return found


def joined(
    changes: list[tuple[TableSchema, Change]], settings: EventSettings = PLAIN
) -> tuple[ChangeBatch, TablePlans]:
    """Return the changes as one batch of the columns of a pool."""
    pool = ColumnPool(settings, FORM)
    tables = list(dict.fromkeys(of for of, _ in changes))
    pooled = pool.tables(tables)
    assert all(one.fits for one in pooled)
    columns = [Column(f"p{number}", "text", 25) for number in range(len(pool.columns))]
    found = []
    for of, (op, old, new) in changes:
        places = pooled[tables.index(of)].places
        found.append((op, wide(old, places, len(columns)), wide(new, places, len(columns))))
    numbers = np.array([tables.index(of) for of, _ in changes], np.int32)
    return batch(table("pool", columns), found), TablePlans([one.plan for one in pooled], numbers)


def together(changes: list[tuple[TableSchema, Change]], settings: EventSettings = PLAIN) -> list[dict[str, Any]] | None:
    part, plans = joined(changes, settings)
    found = rows_of_tables(part, plans, settings, FORM)
    return None if found is None else [row for one in found for row in one.to_pylist()]


def apart(changes: list[tuple[TableSchema, Change]], settings: EventSettings = PLAIN) -> list[dict[str, Any]]:
    """Return the rows of the same changes, each from a batch of its own, at the same place."""
    found = []
    for place, (of, change) in enumerate(changes):
        many = batch(of, [change] * (place + 1))
        found += rows(many.part(place, place + 1), settings)
    return found


def without_moment(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"value": row["value"] and row["value"].partition(b'"op"')[0]} for row in found]


def test_tables_together_become_what_each_becomes_by_itself() -> None:
    found = together(CHANGES)
    assert found is not None
    assert without_moment(found) == without_moment(apart(CHANGES))
    assert [(row["table"], row["op"]) for row in found] == [
        ("a", "c"),
        ("b", "c"),
        *(("a", "d"), ("a", "tombstone"), ("a", "c")),
        ("c", "c"),
        ("b", "t"),
        *(("b", "d"), ("b", "tombstone")),
        *(("a", "d"), ("a", "tombstone")),
    ]


def test_an_update_changes_the_key_of_its_own_table_alone() -> None:
    # Column n of b is not a key, though its place in the pool is that of a's key.
    b = replace(B, key=("w",))
    changes: list[tuple[TableSchema, Change]] = [
        (A, ("u", ("1", None), ("2", "a"))),
        (b, ("u", ("w", "1", None), ("w", "2", None))),
    ]
    found = together(changes)
    assert found is not None
    assert [(row["table"], row["op"]) for row in found] == [("a", "d"), ("a", "tombstone"), ("a", "c"), ("b", "u")]


def test_columns_that_are_shown_alike_share_a_place_and_those_of_one_table_do_not() -> None:
    pool = ColumnPool(PLAIN, FORM)
    a, b = pool.tables([A, B])
    assert a.places.tolist() == [0, 1]
    # The first texts of both tables are at the same place.
    assert b.places.tolist() == [1, 0, 2]
    assert len(pool.columns) == 3
    assert pool.tables([A])[0] is a


def test_a_table_whose_key_shows_a_column_otherwise_is_in_no_pool() -> None:
    masking = settings_of("postgres/tutorial", **{"column.mask.with.3.chars": "public.a.v"})
    keyed = replace(A, key=("v",))
    one, other = ColumnPool(masking, FORM).tables([keyed, B])
    assert (one.fits, other.fits) == (False, True)


def test_a_column_that_events_do_not_show_has_no_place() -> None:
    leaving_out = settings_of("postgres/tutorial", **{"column.exclude.list": "public.a.v"})
    (one,) = ColumnPool(leaving_out, FORM).tables([A])
    assert one.places.tolist() == [0, -1]


@pytest.mark.parametrize("mode", ["warn", "skip", "fail"])
def test_a_change_that_cannot_become_an_event_leaves_all_to_be_made_apart(mode: str) -> None:
    late = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")
    changes: list[tuple[TableSchema, Change]] = [
        (A, ("c", None, ("1", "a"))),
        (late, ("c", None, ("2", "294276-12-31 23:59:59.999999"))),
    ]
    assert together(changes, replace(PLAIN, converting_failure_mode=mode)) is None


def test_a_record_that_is_too_large_leaves_all_to_be_made_apart() -> None:
    assert together(CHANGES, replace(PLAIN, most_change_bytes=20)) is None
    assert together(CHANGES, replace(PLAIN, most_change_bytes=2000)) is not None


def test_blocks_are_of_one_table_each() -> None:
    part, plans = joined(CHANGES)
    assert rows_of_tables(part, plans, replace(PLAIN, blocks="last"), FORM) is None


def test_changes_without_records_are_no_rows() -> None:
    skipping = replace(PLAIN, skipped_operations=frozenset("cudt"))
    assert together(CHANGES, skipping) == []


def test_an_image_that_no_change_has_is_none() -> None:
    part, plans = joined([(A, ("c", None, ("1", "a"))), (B, ("c", None, ("w", "2", None)))])
    assert part.before is None
    assert isinstance(part.after, Image)
    found = rows_of_tables(part, plans, PLAIN, FORM)
    assert found is not None
    assert pa.Table.from_batches(found)["op"].to_pylist() == ["c", "c"]


# --- rows of a snapshot


LARGE = table("large", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
LATE = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")
READS: list[tuple[TableSchema, list[tuple[str, ...]]]] = [
    (A, [("1", "a"), ("2", "b")]),
    (B, [("w", "2", "x")]),
    (KEYLESS, [("k",), ("l",)]),
    (LARGE, [("1", "x" * 300_000)]),
    (A, [("3", "c")]),
    (LATE, [("1", "2026-11-21 01:00:27"), ("2", "2026-11-21 01:00:28.5")]),
]


def reads(given: list[tuple[TableSchema, list[tuple[str, ...]]]]) -> list[ChangeBatch]:
    """Return the rows as a snapshot reads them, each table's in a batch."""
    return [
        batch(of, [("r", None, row) for row in found], [Marker.TRUE] * len(found), together=True) for of, found in given
    ]


def records_of(given: list[ChangeBatch], settings: EventSettings) -> tuple[list[dict[str, Any]], int]:
    """Return the records of `given`, and how many of the tables were converted with others."""
    counts = []
    real = small_tables.rows_of_tables

    def counted(part: ChangeBatch, plans: TablePlans, *more: Any) -> Any:
        made = real(part, plans, *more)
        counts.append(0 if made is None else len(plans.plans))
        return made

    with patch.object(small_tables, "rows_of_tables", counted):
        found = [row for one in records_of_reads(given, settings, FORM) for row in one.to_pylist()]
    return found, sum(counts)


def test_rows_of_small_tables_become_what_each_becomes_by_itself() -> None:
    found, count = records_of(reads(READS), PLAIN)
    expected = [row for one in reads(READS) for row in rows(one, PLAIN)]
    assert without_moment(found) == without_moment(expected)
    assert [row["table"] for row in found] == ["a", "a", "b", "c", "c", "large", "a", "late", "late"]
    # three before the large table, which is converted alone, and two after it
    assert count == 5


def test_tables_of_many_columns_are_converted_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_tables, "MOST_PLACES", 3)
    found, count = records_of(reads(READS[:3] + READS[4:]), PLAIN)
    expected = [row for one in reads(READS[:3] + READS[4:]) for row in rows(one, PLAIN)]
    # in order within each topic
    found, expected = (sorted(without_moment(one), key=itemgetter("topic")) for one in (found, expected))
    assert found == expected
    assert 0 < count < 5


def test_more_rows_than_a_batch_has_records_are_converted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_tables, "MAX_RECORDS", 3)
    found, count = records_of(reads(READS[:3]), PLAIN)
    assert [row["table"] for row in found] == ["a", "a", "b", "c", "c"]
    assert count == 2


def test_a_value_that_does_not_fit_is_that_of_its_own_table() -> None:
    wrong = [*READS[:2], (LATE, [("7", "294276-12-31 23:59:59.999999")])]
    failing = replace(PLAIN, converting_failure_mode="fail", processing_failure_mode="fail")
    with pytest.raises(ConversionError, match=r"public\.late"):
        records_of(reads(wrong), failing)
    found, count = records_of(reads(wrong), replace(PLAIN, converting_failure_mode="skip"))
    assert [row["table"] for row in found] == ["a", "a", "b", "late"]
    assert count == 0


@pytest.mark.parametrize(
    "more", [{"blocks": "last"}, {"most_change_bytes": 1, "processing_failure_mode": "warn"}], ids=str
)
def test_rows_that_are_not_joined_are_converted_one_by_one(more: dict[str, Any]) -> None:
    settings = replace(PLAIN, **more)
    found, count = records_of(reads(READS[:3]), settings)
    assert count == 0
    assert len(found) == len([row for one in reads(READS[:3]) for row in rows(one, settings)])
