"""Unknown values are read again for tables, without Spark and without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from tailrace.columns.blocks import BlockForm
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.row_lookup import PostgresTable
from tailrace.connectors.row_lookup import Values
from tailrace.sinks.tables.row_lookup import ValueFilling, marked_rows
from tailrace.sinks.tables.rows import row_schema
from tailrace.sinks.tables.statements import ReducedBatch, moved
from tests.event_settings import event_settings

FORM = BlockForm(("id", "v", "big", "doc"), (pa.int64(), pa.string(), pa.string(), pa.string()), (0,))


class Held:
    """A table whose rows are the keys of `known`."""

    def __init__(self, known: Sequence[int]) -> None:
        self.known, self.asked = known, list[tuple[list[int], list[str]]]()

    def called(self, columns: Sequence[tuple[str, int]]) -> list[str]:
        return [name for name, _ in columns]

    def values(self, key: Sequence[str], keys: Sequence[pa.Array], columns: Sequence[str]) -> Iterator[Values]:
        assert key == ["id"]
        wanted: list[int] = keys[0].to_pylist()
        self.asked.append((wanted, list(columns)))
        for place, number in reversed(list(enumerate(wanted))):
            if number in self.known:
                yield [place], [pa.array([f"{name} of {number}"]) for name in columns]


def row(key: int, *misses: int) -> dict[str, Any]:
    told = {"position": "0A", "ordinal": 0, "part": 0, "since": "0A", "missing": list(misses), "origin": {"k0": 7}}
    return {"op": "u", **told, "c0": key, "c1": "v", "c2": None, "c3": "own"}


def test_rows_get_what_they_miss_and_those_that_are_gone_are_left_out() -> None:
    held = Held([1, 3])
    batch = pa.RecordBatch.from_pylist([row(1, 2), row(2, 2), row(3, 2, 3)], row_schema(FORM))
    found = [one for part in ValueFilling(FORM, held)(iter([batch])) for one in part.to_pylist()]
    assert {one["c0"]: (one["c1"], one["c2"], one["c3"]) for one in found} == {
        1: ("v", "big of 1", "own"),
        3: ("v", "big of 3", "doc of 3"),
    }
    assert {(one["missing"], one["origin"]) for one in found} == {(None, None)}
    assert held.asked == [([1, 2], ["big"]), ([3], ["big", "doc"])]


def test_a_column_is_read_under_the_name_that_it_has_now() -> None:
    """Since the batch the column big was renamed, and doc has got its name."""
    columns = [("id", "int8", 1), ("v", "text", 2), ("large", "text", 3), ("big", "text", 4)]
    now = TableSchema(
        TableId("d", "s", "t"), tuple(Column(name, kind, 0, number=number) for name, kind, number in columns), ("id",)
    )

    class Renamed(Held):
        called = PostgresTable(cast(Any, None), now, event_settings("server", "d")).called

    form, held = replace(FORM, numbers=(1, 2, 3, 4)), Renamed([1])
    batch = pa.RecordBatch.from_pylist([row(1, 2, 3)], row_schema(form))
    (found,) = [one for part in ValueFilling(form, held)(iter([batch])) for one in part.to_pylist()]
    assert (found["c2"], found["c3"]) == ("large of 1", "big of 1")
    # A column without a number, and one that is gone.
    assert held.called([("big", 0), ("gone", 9)]) == ["big", "gone"]


def test_what_a_row_misses_is_lost_where_its_old_key_is_not_there_or_may_be_of_a_later_row() -> None:
    text = marked_rows("lake", ReducedBatch(FORM, "rows", missing=True), "rows", True)
    assert "(o.`id` is null or s.origin is not null) as lost" in text
    assert "o.`id` = coalesce(s.origin.k0, s.c0)" in text
    assert "not s.op in ('d', 't') and true as lost" in marked_rows(
        "lake", ReducedBatch(FORM, "rows", emptied=True), "rows", False
    )


def test_a_moved_row_takes_nothing_over_where_it_may_be_of_another_row() -> None:
    assert "left join lake o on false" in moved("lake", FORM, "rows", "reselect", True)
    assert "raise_error" in moved("lake", FORM, "rows", "stop")
    assert "raise_error" not in moved("lake", FORM, "rows", "null")
