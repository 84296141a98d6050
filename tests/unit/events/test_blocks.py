"""A batch's changes for a table become blocks with one row for each key, or with every change."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import ChangeBatch, Column, Marker, TableId, TableSchema
from tailrace.columns.blocks import EVERY, KEPT, LAST, ROWS, Head
from tailrace.columns.blocks import read as opened
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.packed_changes import block_row, storable, stored
from tailrace.events.record_assembly import numbered_rows, to_rows
from tailrace.events.table_routing import Routing
from tests.unit.events.changes import COMMIT_US, Change, batch, plain_settings, table

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
FULL = replace(TABLE, replica_identity="f")
Entries = list[tuple[str, int, Any, Any]]


def blocks(part: ChangeBatch, kind: str = LAST, **more: Any) -> list[tuple[Head, list[dict[str, Any]]]]:
    """Return the heads of the blocks of a batch, and their rows."""
    found = [row for rows in to_rows(part, plain_settings(blocks=kind, **more), FORM) for row in rows.to_pylist()]
    assert {row["op"] for row in found} <= {"block"}
    return [(Head.of(row["key"]), opened(row["value"]).to_pylist()) for row in found]


def left(part: ChangeBatch, kind: str = LAST, **more: Any) -> Entries:
    """Return op, part and values of each row of the only block."""
    ((_, rows),) = blocks(part, kind, **more)
    return [(row["op"], row["part"], row["c0"], row["c1"]) for row in rows]


CHANGES: list[Change] = [
    ("c", None, ("1", "a")),
    ("c", None, ("2", "b")),
    ("u", None, ("1", "aa")),
    ("d", ("2", None), None),
    ("c", None, ("3", "c")),
]


def test_the_last_change_of_each_key_is_left_in_the_order_of_the_log() -> None:
    found = left(batch(TABLE, CHANGES))
    assert [entry[:3] for entry in found] == [("u", 0, 1), ("d", 0, 2), ("c", 0, 3)]
    assert [entry[3] for entry in found if entry[0] != "d"] == ["aa", "c"]


def test_a_value_without_a_form_ends_the_run_or_is_null_with_a_warning() -> None:
    schema = table("n", [Column("id", "int4", 23, nullable=False), Column("v", "numeric", 1700, 655366)], "id")
    part = batch(schema, [("c", None, ("1", "NaN"))])
    with pytest.raises(ConversionError, match=r"column v of public\.n"):
        blocks(part, converting_failure_mode="fail")
    assert left(part, converting_failure_mode="warn") == [("c", 0, 1, None)]
    assert part.warnings[0].startswith("1 values of column v of public.n do not fit its type")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_infinite_values_are_days_that_can_be_read_and_a_warning_says_which(kind: str) -> None:
    schema = table("n", [Column("id", "int4", 23, nullable=False), Column("v", kind, 0)], "id")
    part = batch(schema, [("c", None, ("1", "infinity")), ("c", None, ("2", "-infinity")), ("c", None, ("3", None))])
    found = [None if value is None else str(value)[:10] for *_, value in left(part)]
    assert found == ["9999-12-31", "0001-01-03", None]
    assert part.warnings[0].startswith("Column v of public.n has infinite values, which are 9999-12-31 and 0001-01-03")


def test_every_change_is_left_where_that_is_wanted() -> None:
    assert [entry[0] for entry in left(batch(TABLE, CHANGES), EVERY)] == ["c", "c", "u", "d", "c"]


def test_a_head_tells_where_the_block_stands_and_of_how_many_changes_it_is() -> None:
    ((head, _),) = blocks(batch(TABLE, CHANGES))
    assert (head.database, head.schema, head.table) == ("golden", "public", "t")
    assert (head.rows, head.changes) == (3, 5)
    assert (head.first, head.last) == ((f"{5025:016X}", 0), (f"{5045:016X}", 0))
    assert (head.form.names, head.form.types, head.form.key) == (("id", "v"), (pa.int32(), pa.string()), (0,))
    assert (head.snapshot, head.truncate, head.missing, head.moved, head.routed, head.apart) == (
        "",
        None,
        False,
        False,
        False,
        False,
    )


def test_a_row_of_a_block_has_the_place_of_its_last_change() -> None:
    settings = plain_settings(blocks=LAST)
    ((rows, number),) = numbered_rows(batch(TABLE, CHANGES), settings, FORM)
    (row,) = rows.to_pylist()
    assert number.tolist() == [4]
    assert (row["topic"], row["table"], row["snapshot"]) == ("public.t", "t", "false")
    assert (row["position"], row["ordinal"]) == (f"{5045:016X}", 0)
    assert row["source_ts"] == datetime.datetime(2026, 11, 21, 1, 0, 27, 639579, datetime.UTC)


def test_a_key_change_takes_the_old_key_away_and_brings_the_new_one() -> None:
    part = batch(TABLE, [("u", ("1", None), ("9", "a"))])
    assert left(part) == [("d", 0, 1, None), ("c", 1, 9, "a")]


def test_a_key_that_is_left_and_taken_again_has_its_last_row() -> None:
    part = batch(TABLE, [("u", ("1", None), ("9", "a")), ("c", None, ("1", "new"))])
    assert left(part) == [("c", 1, 9, "a"), ("c", 0, 1, "new")]


def test_rows_that_take_over_a_key_from_one_another_are_all_there() -> None:
    # update t set id = id + 1: the log has the arrival at 2 before the row there has left.
    moves: list[Change] = [("u", ("1", "a"), ("2", "a")), ("u", ("2", "b"), ("3", "b"))]
    assert left(batch(FULL, moves, together=True)) == [("d", 0, 1, "a"), ("c", 1, 2, "a"), ("c", 1, 3, "b")]
    # In separate transactions, the second one takes the row that came.
    assert [(op, key) for op, _, key, _ in left(batch(FULL, moves))] == [("d", 1), ("d", 2), ("c", 3)]


def test_a_row_that_comes_and_goes_beside_rows_that_move_is_taken_away() -> None:
    changes: list[Change] = [
        ("c", None, ("5", "x")),
        ("u", ("1", "a"), ("2", "a")),
        ("d", ("5", "x"), None),
    ]
    assert left(batch(FULL, changes, together=True)) == [("d", 0, 1, "a"), ("c", 1, 2, "a"), ("d", 0, 5, "x")]


def test_a_value_that_the_log_did_not_carry_is_that_of_an_earlier_change() -> None:
    changes: list[Change] = [("c", None, ("1", "big")), ("u", None, ("1", None)), ("u", None, ("2", None))]
    part = batch(TABLE, changes, unavailable={"v": [False, True, True]})
    ((head, rows),) = blocks(part)
    assert [(row["c0"], row["c1"], row["missing"]) for row in rows] == [(1, "big", None), (2, None, [1])]
    assert head.missing


def test_a_missing_value_of_a_moved_row_names_the_key_that_it_had() -> None:
    part = batch(TABLE, [("u", ("1", None), ("9", None))], unavailable={"v": [True]})
    ((head, rows),) = blocks(part)
    assert [(row["op"], row["c0"], row["missing"], row["origin"]) for row in rows] == [
        ("d", 1, None, None),
        ("c", 9, [1], {"k0": 1}),
    ]
    assert head.moved


def test_what_is_before_a_truncate_is_gone() -> None:
    changes: list[Change] = [("c", None, ("1", "a")), ("t", None, None), ("c", None, ("2", "b"))]
    ((head, rows),) = blocks(batch(TABLE, changes), skipped_operations=frozenset())
    assert [(row["op"], row["c0"]) for row in rows] == [("c", 2)]
    assert (head.truncate, head.changes) == ((f"{5015:016X}", 0), 3)


def test_a_truncate_alone_is_a_block_without_rows() -> None:
    ((head, rows),) = blocks(batch(TABLE, [("t", None, None)]), skipped_operations=frozenset())
    assert (rows, head.rows) == ([], 0)
    assert head.first == head.last == head.truncate == (f"{5005:016X}", 0)


def test_a_truncate_that_is_skipped_leaves_no_trace() -> None:
    assert blocks(batch(TABLE, [("t", None, None)])) == []


def test_where_deleted_rows_are_kept_they_have_their_values_and_the_letter_that_took_them() -> None:
    changes: list[Change] = [
        ("c", None, ("1", "a")),
        ("c", None, ("2", "b")),
        ("d", ("2", "b"), None),
        ("t", None, None),
        ("c", None, ("3", "c")),
        ("d", ("4", "d"), None),
    ]
    found = left(batch(FULL, changes), KEPT, skipped_operations=frozenset())
    assert found == [("t", 0, 1, "a"), ("t", 0, 2, "b"), ("c", 0, 3, "c"), ("d", 0, 4, "d")]


def test_of_a_table_without_a_key_every_change_is_left() -> None:
    part = batch(table("t", TABLE.columns), CHANGES[:3])
    assert [entry[0] for entry in left(part)] == ["c", "c", "u"]


def test_a_snapshots_block_names_it() -> None:
    part = batch(TABLE, [("r", None, ("1", "a"))], [Marker.FIRST])
    ((head, _),) = blocks(part)
    assert head.snapshot == f"{5005:016X}@{COMMIT_US}"
    # The rows of an incremental snapshot are among the changes of the log.
    ((head, _),) = blocks(batch(TABLE, [("r", None, ("1", "a"))], [Marker.INCREMENTAL]))
    assert head.snapshot == ""


def test_of_a_snapshot_the_values_alone_may_be_wanted() -> None:
    part = batch(TABLE, [("r", None, ("1", "a")), ("r", None, ("2", None))], [Marker.FIRST, Marker.LAST])
    (found,) = to_rows(part, plain_settings(blocks=ROWS), FORM)
    assert found.to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": None}]


def test_a_change_that_does_not_tell_its_key_is_an_error() -> None:
    with pytest.raises(ConversionError, match=r"does not carry the key of a row of public\.t"):
        blocks(batch(TABLE, [("d", (None, "a"), None)]))
    with pytest.raises(ConversionError, match=r"A row of public\.t has null in a column of its key"):
        blocks(batch(TABLE, [("c", None, (None, "a"))]))


def test_an_update_that_lacks_the_old_row_is_an_error_where_there_should_be_one() -> None:
    with pytest.raises(ConversionError, match=r"does not carry the old row of an update of public\.t"):
        blocks(batch(FULL, [("u", None, ("1", "a"))]))


AT = table("t", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")


def test_a_value_without_a_form_is_null_or_an_error() -> None:
    part = batch(AT, [("c", None, ("1", "no timestamp")), ("c", None, ("2", "2020-01-01 00:00:00"))])
    assert [entry[3] for entry in left(part)] == [None, datetime.datetime(2020, 1, 1)]
    with pytest.raises(ConversionError, match=r"column at of public\.t"):
        left(part, converting_failure_mode="fail")


def test_a_key_without_a_form_is_an_error_always() -> None:
    keyed = table("t", [Column("at", "timestamp", 1114, nullable=False), Column("v", "text", 25)], "at")
    with pytest.raises(ConversionError, match=r"column at of public\.t .* read the table anew"):
        left(batch(keyed, [("c", None, ("no timestamp", "a"))]))


def test_a_routed_table_is_told_apart_by_its_key() -> None:
    routing = Routing(r".*\.t", "lake.public.all", "shard")
    ((head, rows),) = blocks(batch(TABLE, CHANGES[:2]), routing=routing)
    assert (head.database, head.schema, head.table, head.routed) == ("lake", "public", "all", True)
    assert [row["c2"] for row in rows] == ["golden.public.t"] * 2
    with pytest.raises(ConversionError, match=r"public\.t was truncated"):
        blocks(batch(TABLE, [("t", None, None)]), routing=routing, skipped_operations=frozenset())


def test_changes_that_were_left_out_before_count_too() -> None:
    ((head, _),) = blocks(batch(TABLE, CHANGES, superseded=100), apart=True)
    assert (head.changes, head.apart) == (105, True)


def test_a_block_of_many_bytes_is_several() -> None:
    big = "x" * (3 << 20)
    changes: list[Change] = [("c", None, (str(number), big)) for number in range(6)]
    found = blocks(batch(TABLE, changes))
    assert len(found) > 1
    assert [row["c0"] for _, rows in found for row in rows] == list(range(6))
    # The first block has the number of all changes.
    assert [head.changes for head, _ in found] == [6, *[0] * (len(found) - 1)]


def test_columns_that_older_rows_may_have_values_of_are_told() -> None:
    columns = [*TABLE.columns, Column("n", "int4", 23, default="7", number=3)]
    shown = TableSchema(TableId("golden", "public", "t"), tuple(columns), ("id",), oid=16384)
    ((head, _),) = blocks(batch(shown, [("c", None, ("1", "a", "7"))]))
    assert (head.form.added, head.form.numbers, head.form.relation) == ((2,), (0, 0, 3), 16384)


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (pa.int32(), pa.int32()),
        (pa.decimal128(38, 2), pa.decimal128(38, 2)),
        (pa.decimal256(39, 2), pa.string()),
        (pa.time64("us"), pa.int64()),
        (pa.duration("us"), pa.int64()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")),
        (pa.list_(pa.time32("ms")), pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_tables_hold_values_in_types_of_their_own(kind: pa.DataType, held: pa.DataType) -> None:
    assert storable(kind) == held


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (pa.array([datetime.time(1, 2, 3), None], pa.time64("us")), [3_723_000_000, None]),
        (pa.array([datetime.timedelta(seconds=2), None], pa.duration("us")), [2_000_000, None]),
        (pa.array([Decimal("1.50"), None], pa.decimal256(40, 2)), ["1.50", None]),
        (
            pa.array([[datetime.time(0, 0, 1), None], None, []], pa.list_(pa.time64("us"))),
            [[1_000_000, None], None, []],
        ),
        (
            pa.array([{"a": datetime.time(0, 0, 1)}, None], pa.struct([pa.field("a", pa.time64("us"))])),
            [{"a": 1_000_000}, None],
        ),
        (pa.array([1, None], pa.int32()), [1, None]),
    ],
)
def test_values_are_put_into_these_types(values: pa.Array, held: list[Any]) -> None:
    found = stored(values)
    assert found.type == storable(values.type)
    assert found.to_pylist() == held


def test_a_block_is_a_row_of_the_columns_that_a_query_has() -> None:
    settings = plain_settings(columns=("key", "value", "op", "table"))
    ((head, _),) = blocks(batch(TABLE, CHANGES))
    rows = pa.RecordBatch.from_pylist([], head.form.schema)
    (row,) = block_row(head, rows, COMMIT_US, settings).to_pylist()
    assert list(row) == ["key", "value", "op", "table"]
    assert (Head.of(row["key"]), row["op"], row["table"]) == (head, "block", "t")
    assert opened(row["value"]).num_rows == 0
