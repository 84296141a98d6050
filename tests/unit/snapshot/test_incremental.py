"""The state of an incremental snapshot: tables added, stopped, paused and read to their end, and its JSON."""

from __future__ import annotations

import json

import pytest

from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, requested
from tailrace.snapshot.signals import ExecuteSnapshot

A, B, C = (Collection("public", name) for name in "abc")
MIDDLE = Cursor(("20",), ("1000",), 20)


def snapshot(*collections: Collection, cursor: Cursor = MIDDLE, paused: bool = False) -> IncrementalSnapshot:
    return IncrementalSnapshot("1", collections, cursor, paused)


@pytest.mark.seed("002-06")
@pytest.mark.parametrize(
    "state",
    [
        snapshot(A, B),
        snapshot(A, cursor=Cursor()),
        snapshot(Collection("s", "t", "id > 1 -- é", "n"), paused=True),
        snapshot(A, cursor=Cursor(None, (), 0)),
        snapshot(A, cursor=Cursor(("x", ""), ("y", "ÿ"), 7)),
    ],
)
def test_it_survives_its_json(state: IncrementalSnapshot) -> None:
    assert IncrementalSnapshot.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_the_next_table_begins_at_its_start() -> None:
    after = snapshot(A, B, C).next_table()
    assert after == snapshot(B, C, cursor=Cursor())
    assert snapshot(C).next_table() is None


@pytest.mark.seed("002-07")
def test_tables_that_are_added_wait_behind_the_others_and_are_read_as_often_as_they_are_asked_for() -> None:
    added = snapshot(A, B).added("2", [B, C, A])
    assert added == IncrementalSnapshot("2", (A, B, B, C, A), MIDDLE)
    filtered = Collection("public", "b", "id > 1")
    assert snapshot(A, B).added("2", [filtered]).collections == (A, B, filtered)


def test_without_entries_all_stops() -> None:
    assert snapshot(A, B).without([]) is None
    assert snapshot(A, B).without([r"public\..*"]) is None


def test_stopping_a_table_that_waits_leaves_the_one_that_is_read_where_it_is() -> None:
    assert snapshot(A, B, C).without(["public.b"]) == snapshot(A, C)
    assert snapshot(A, B, C).without(["public.none"]) == snapshot(A, B, C)


def test_stopping_the_table_that_is_read_goes_on_with_the_next_from_its_start() -> None:
    assert snapshot(A, B, C).without(['"public"."a"', "public.c"]) == snapshot(B, cursor=Cursor())


def test_stopping_keeps_a_pause() -> None:
    left = snapshot(A, B, paused=True).without(["public.a"])
    assert left is not None
    assert left.paused


def test_a_request_gives_each_table_the_first_condition_that_is_meant_for_it() -> None:
    action = ExecuteSnapshot("1", False, (), (("public.a", "x"), (r"public\.[ab]", "y"), (".*", "z")), "n")
    assert requested(action, [("public", "a"), ("public", "b"), ("s", "c")]) == [
        Collection("public", "a", "x", "n"),
        Collection("public", "b", "y", "n"),
        Collection("s", "c", "z", "n"),
    ]
    assert requested(ExecuteSnapshot("1", False, ()), [("s", "c")]) == [Collection("s", "c")]
