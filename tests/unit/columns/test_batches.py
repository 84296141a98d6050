"""Change batches can be cut, and know their positions and transactions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, TableId, TableSchema, Transactions
from tailrace.columns.batch import position_text, position_texts
from tests.unit.events.changes import Change, batch, table

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES: list[Change] = [
    ("c", None, ("1", "a")),
    ("u", ("1", None), ("2", None)),
    ("d", ("2", None), None),
    ("t", None, None),
]


def whole() -> ChangeBatch:
    """Return a batch with all optional parts."""
    return batch(
        TABLE, CHANGES, [0, 1, 2, 3], orders=[(1, 1), (2, 2), (4, 4), (5, 5)],
        unavailable={"v": [False, True, False, False]},
        messages=(np.frombuffer(b"aabbbc", np.uint8), np.array([0, 2, 5, 6, 6], np.int64)),
        serial=pa.array([1, 2, 3, None], pa.int64()), command=np.array([10, 20, 30, 40]),
        reselected=np.array([-1, 2, 0, -1], np.int32), superseded=9,
    )  # fmt: skip


def told(found: ChangeBatch) -> list[dict[str, Any]]:
    """Return everything that a batch holds about each change."""

    def image(side: Any, row: int) -> Any:
        if side is None or (side.present is not None and not side.present[row]):
            return None
        texts = [column[row].as_py() for column in side.columns]
        return [texts, [flags is not None and bool(flags[row]) for flags in side.unavailable]]

    assert found.marker is not None
    assert found.total_order is not None
    assert found.table_order is not None
    assert found.serial is not None
    assert found.command is not None
    assert found.reselected is not None
    return [
        {
            "op": chr(found.op[row]),
            "lsn": int(found.lsn[row]),
            "transaction": int(found.transactions.commit_us[found.transaction[row]]),
            "ordinal": int(found.ordinal[row]),
            "marker": int(found.marker[row]),
            "orders": (int(found.total_order[row]), int(found.table_order[row])),
            "serial": found.serial[row].as_py(),
            "command": int(found.command[row]),
            "reselected": int(found.reselected[row]),
            "before": image(found.before, row),
            "after": image(found.after, row),
        }
        for row in range(len(found))
    ]


@pytest.mark.parametrize(("low", "high"), [(0, 4), (0, 2), (1, 3), (3, 4), (2, 2)])
def test_a_part_says_of_its_changes_what_the_whole_says(low: int, high: int) -> None:
    part = whole().part(low, high)
    assert told(part) == told(whole())[low:high]
    assert part.messages is not None
    data, bounds = part.messages
    raw = [data[bounds[row] : bounds[row + 1]].tobytes() for row in range(len(part))]
    assert raw == [b"aa", b"bbb", b"c", b""][low:high]


def test_what_was_left_out_before_counts_in_the_first_part_alone() -> None:
    found = whole()
    assert [found.part(0, 2).superseded, found.part(2, 4).superseded, found.part(0, 4).superseded] == [9, 0, 9]


def test_a_part_shares_the_list_of_warnings() -> None:
    found = whole()
    found.part(1, 2).warnings.append("told")
    assert found.warnings == ["told"]


def test_some_changes_in_another_order() -> None:
    places = np.array([2, 0])
    found = whole().some(lambda values: values[places], lambda values: values.take(pa.array(places)))
    assert told(found) == [told(whole())[2], told(whole())[0]]
    assert found.messages is None


def test_a_batch_that_has_little_has_as_little_in_its_parts() -> None:
    part = batch(TABLE, CHANGES[:2]).part(0, 1)
    assert (part.marker, part.total_order, part.serial, part.messages, part.reselected) == (None,) * 5
    assert batch(TABLE, [("t", None, None)] * 2).part(0, 1).after is None


@pytest.mark.parametrize(
    ("position", "text"), [(0, "0" * 16), (5005, "000000000000138D"), (2**63 - 1, "7FFFFFFFFFFFFFFF"), ("0aB", "0aB")]
)
def test_a_position_is_a_text_that_sorts_in_log_order(position: int | str, text: str) -> None:
    assert position_text(position) == text


def test_many_positions_are_the_same_texts() -> None:
    numbers = np.array([0, 1, 255, 5005, 2**40 + 7, 2**63 - 1], np.int64)
    found = position_texts(numbers)
    found.validate(full=True)
    assert found.to_pylist() == [position_text(int(number)) for number in numbers]
    assert found.to_pylist() == sorted(found.to_pylist())
    assert position_texts(numbers[:0]).to_pylist() == []
    # A slice of a view with gaps.
    assert position_texts(numbers[::2]).to_pylist() == found.to_pylist()[::2]


def test_transactions_are_taken_apart_and_joined() -> None:
    four = [np.arange(4, dtype=np.int64) * 10 + offset for offset in range(4)]
    found = Transactions(*four)
    joined = Transactions.joined([found.part(slice(0, 1)), found.part(np.array([1, 2, 3]))])
    assert len(joined) == 4
    for name, values in zip(("xid", "commit_lsn", "commit_us", "previous_end"), four, strict=True):
        assert getattr(joined, name).tolist() == values.tolist()
    assert len(CapturedTransactions(pa.array([b"1", b"2"], pa.binary()), np.zeros(2, np.int64))) == 2


def test_tables_sort_as_snapshots_read_them_and_are_called_without_their_database() -> None:
    tables = [TableId("d", "s", "b"), TableId("d", "a", "z"), TableId("c", "s", "b"), TableId("d", "s", "B")]
    assert sorted(tables) == [tables[2], tables[1], tables[3], tables[0]]
    assert str(tables[0]) == "s.b"


def test_a_column_has_a_place_in_its_table() -> None:
    schema = TableSchema(TableId("d", "s", "t"), TABLE.columns, ("id",))
    assert [schema.index("id"), schema.index("v")] == [0, 1]
    with pytest.raises(KeyError):
        schema.index("ID")
