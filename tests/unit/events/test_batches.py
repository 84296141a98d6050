"""Batches as a whole: empty ones, large ones, successive versions of a table, and what follows each."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId
from tailrace.columns.row import COLUMNS
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events import warnings
from tailrace.events.record_assembly import large_records, numbered_rows, record_size, to_rows
from tests.unit.events.changes import Change, batch, plain_settings, read, rows, table

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")


@pytest.mark.parametrize("more", [{}, {"event_format": "1.7"}, {"blocks": "last"}, {"most_change_bytes": 10}])
def test_an_empty_batch_has_no_rows(more: dict[str, Any]) -> None:
    assert list(to_rows(batch(TABLE, []), plain_settings(**more), FORM)) == []


@pytest.mark.parametrize("letters", ["cud", "cudt"])
def test_a_batch_whose_changes_are_all_skipped_has_no_rows(letters: str) -> None:
    changes: list[Change] = [
        ("c", None, ("1", "a")),
        ("u", ("1", None), ("2", "b")),
        ("d", ("2", None), None),
        ("t", None, None),
    ]
    assert rows(batch(TABLE, changes), plain_settings(skipped_operations=frozenset(letters) | {"t"})) == []


def test_rows_have_all_columns_in_their_order_and_types() -> None:
    (found,) = to_rows(batch(TABLE, [("c", None, ("1", "a"))]), plain_settings(), FORM)
    assert tuple(found.schema.names) == COLUMNS
    found.validate(full=True)
    assert found.schema == plain_settings().row_schema


def test_rows_have_the_columns_alone_that_a_query_wants() -> None:
    wanted = ("op", "value", "key", "reselected", "partition", "timestamp")
    (row,) = rows(batch(TABLE, [("c", None, ("1", "a"))]), plain_settings(columns=wanted))
    assert tuple(row) == wanted
    # Nothing was placed or read again.
    assert (row["reselected"], row["partition"], row["timestamp"]) == (None, None, None)


def test_many_changes_come_in_several_pieces_in_order() -> None:
    count = 9000
    changes: list[Change] = [("c", None, (str(number), None)) for number in range(count)]
    changes[8190] = ("u", ("8190", None), ("100000", "moved"))
    pieces = list(numbered_rows(batch(TABLE, changes), plain_settings(), FORM))
    assert len(pieces) > 1
    assert all(piece.num_rows <= 8192 for piece, _ in pieces)
    keys = [int(key[6:-1]) for piece, _ in pieces for key in piece["key"].to_pylist()]
    assert keys == [*range(8191), 8190, 100_000, *range(8191, count)]
    numbers = [number for _, numbers in pieces for number in numbers.tolist()]
    assert numbers == [*range(8191), 8190, 8190, *range(8191, count)]
    # The records of one change are never in two pieces.
    assert all(one[-1] < other[0] for (_, one), (_, other) in pairwise(pieces))


def test_a_part_of_a_batch_becomes_what_it_becomes_in_the_whole() -> None:
    changes: list[Change] = [
        ("c", None, ("1", "a")),
        ("u", ("1", None), ("2", "b")),
        ("u", None, ("2", None)),
        ("d", ("2", None), None),
    ]
    orders = [(1, 1), (2, 2), (4, 4), (5, 5)]
    part = batch(TABLE, changes, together=True, orders=orders, unavailable={"v": [False, False, True, False]})

    def told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"value": row["value"] and row["value"] | {"ts_ms": 0, "ts_us": 0, "ts_ns": 0}} for row in found]

    whole = told(read(part, plain_settings()))
    for cut in range(len(changes) + 1):
        assert told([*read(part.part(0, cut), plain_settings()), *read(part.part(cut, 4), plain_settings())]) == whole


def test_batches_of_further_versions_of_a_table_are_each_of_their_own() -> None:
    versions = [
        TABLE,
        table("t", [*TABLE.columns, Column("n", "int4", 23, nullable=False, default="7")], "id"),
        table("t", [Column("id", "int8", 20, nullable=False), Column("renamed", "text", 25)], "id"),
        table("t", [Column("renamed", "text", 25)]),
        TABLE,
    ]
    found = []
    for version in versions:
        row = dict.fromkeys((column.name for column in version.columns), "x") | {"id": "1", "n": "5"}
        changes: list[Change] = [("c", None, [row[column.name] for column in version.columns])]
        found += read(batch(version, changes), plain_settings(value_schemas_enable=True))
    afters = [row["value"]["payload"]["after"] for row in found]
    assert afters == [
        {"id": 1, "v": "x"},
        {"id": 1, "v": "x", "n": 5},
        {"id": 1, "renamed": "x"},
        {"renamed": "x"},
        {"id": 1, "v": "x"},
    ]
    assert [row["key"] for row in found] == [{"id": 1}] * 3 + [None, {"id": 1}]
    kinds = [[one["type"] for one in row["value"]["schema"]["fields"][1]["fields"]] for row in found]
    assert kinds[2] == ["int64", "string"]
    assert found[0]["value"]["schema"] == found[4]["value"]["schema"]
    assert {row["topic"] for row in found} == {"server.public.t"}


def test_reselected_values_are_counted_in_creates_and_updates_alone() -> None:
    changes: list[Change] = [
        ("c", None, ("1", "a")),
        ("u", ("1", None), ("2", "b")),
        ("u", None, ("3", "b")),
        ("d", ("2", None), None),
    ]
    part = batch(TABLE, changes, reselected=np.array([-1, 2, 0, -1], np.int32))
    found = rows(part, plain_settings(columns=("key", "value", "op", "reselected")))
    assert [(row["op"], row["reselected"]) for row in found] == [
        ("c", None),
        *(("d", None), ("tombstone", None), ("c", 2)),
        ("u", 0),
        *(("d", None), ("tombstone", None)),
    ]


def test_a_warning_is_logged_once_and_left_in_each_batch(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "_warned", set())
    odd = table("odd", [Column("id", "int4", 23, nullable=False), Column("b", "box", 603)], "id")
    parts = [batch(odd, [("c", None, ("1", "(2,2),(0,0)"))]) for _ in range(2)]
    with caplog.at_level(logging.WARNING, "tailrace"):
        for part in parts:
            rows(part, plain_settings())
    sentence = " ".join(warnings.left_out(TableId("db", "public", "odd"), "b", "box"))
    assert [record.message for record in caplog.records] == [sentence]
    assert [part.warnings for part in parts] == [[sentence], [sentence]]


@pytest.mark.parametrize(
    ("mode", "values", "warnings"),
    [
        ("warn", [None, 1_577_836_800_000_000], 1),
        ("skip", [None, 1_577_836_800_000_000], 0),
    ],
)
def test_a_value_that_does_not_fit_is_null(mode: str, values: list[int | None], warnings: int) -> None:
    late = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")
    changes: list[Change] = [
        ("c", None, ("1", "294276-12-31 23:59:59.999999")),
        ("c", None, ("2", "2020-01-01 00:00:00")),
    ]
    part = batch(late, changes)
    found = read(part, plain_settings(converting_failure_mode=mode))
    assert [row["value"]["after"]["at"] for row in found] == values
    assert len(part.warnings) == warnings


def test_a_record_is_as_large_as_its_key_and_its_value() -> None:
    found = pa.RecordBatch.from_pydict(
        {"key": [b"12", None, b"1"], "value": [b"12345", b"1", None]},
        pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())]),
    )
    assert [record_size(found, row) for row in range(3)] == [7, 1, 1]
    for most, large in ((0, []), (100, []), (8, []), (7, []), (6, [0]), (1, [0])):
        assert large_records(found, plain_settings(most_change_bytes=most)) == large
    cut = found.slice(1)
    assert [record_size(cut, row) for row in range(2)] == [1, 1]


def test_the_same_batch_makes_the_same_rows_again() -> None:
    part = batch(TABLE, [("c", None, ("1", "a")), ("u", ("1", None), ("2", "b"))])
    first, second = ([row | {"value": None} for row in rows(part, plain_settings())] for _ in range(2))
    assert first == second
