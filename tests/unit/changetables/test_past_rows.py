"""Rows before the changes of a range equal a plain account of every state."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT, ChangeRows
from tailrace.connectors.changetables.log.past_rows import PastRows, PastRowsBuilder
from tailrace.errors import PositionLost, PrerequisiteError

Row = tuple[str, str | None]
Change = tuple[int, int, Row]
"""Commit, operation, key and value."""


def table(kind: str = "varchar") -> TableSchema:
    named = (("id", "int"), ("v", kind))
    columns = tuple(Column(name=name, type_oid=0, type_name=type_name, modifier=-1) for name, type_name in named)
    return TableSchema(TableId("d", "s", "t"), columns, ("id",))


def texts(values: list[str | None]) -> pa.Array:
    return pa.array([None if one is None else one.encode() for one in values], pa.binary())


def past(changes: list[Change], kind: str = "varchar", touched: list[bool] | None = None, size: int = 3) -> PastRows:
    def fetches() -> object:
        for low in range(0, len(changes), size):
            part = changes[low : low + size]
            yield ChangeRows(
                pa.array([commit.to_bytes(2, "big") for commit, _, _ in part], pa.binary()),
                pa.array([b"\0\0"] * len(part), pa.binary()),
                np.array([operation for _, operation, _ in part], np.uint8),
                [texts([row[0] for _, _, row in part]), texts([row[1] for _, _, row in part])],
                touched={} if touched is None else {1: np.array(touched[low : low + size])},
            )

    return PastRowsBuilder(table(kind), ("id",), frozenset({"text"})).past(fetches())  # type: ignore[arg-type]


def undone(found: PastRows, present: list[Row]) -> dict[str, str | None]:
    """Return the rows before the changes, for rows that the table shows."""
    left = found.unchanged([texts([row[0] for row in present]), texts([row[1] for row in present])])
    parts = [left, found.rows(lambda key: True)]
    rows = [
        (one.decode(), None if value is None else value.decode())
        for keys, values in parts
        for one, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    ]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@pytest.mark.parametrize("seed", range(60))
def test_histories(seed: int) -> None:
    """Statements of every kind run in transactions, and are read at any time; moves come in the server's possible
    orders."""
    chance = random.Random(seed)
    first = {str(number): f"v{number}" for number in range(chance.randrange(8))}
    state: dict[str, str | None] = dict(first)
    states, changes = [dict(state)], []
    for commit in range(1, chance.randrange(2, 8)):
        for _ in range(chance.randrange(1, 4)):
            keys = sorted(state)
            wanted = [key for key in keys if chance.random() < 0.4]
            kind = chance.choice(("insert", "update", "delete", "move"))
            if kind == "insert":
                key = str(chance.randrange(12))
                if key not in state:
                    state[key] = f"i{commit}"
                    changes.append((commit, INSERT, (key, state[key])))
            elif kind == "update":
                for key in wanted:
                    changes += [(commit, BEFORE, (key, state[key])), (commit, AFTER, (key, f"u{commit}"))]
                    state[key] = f"u{commit}"
            elif kind == "delete":
                changes += [(commit, DELETE, (key, state.pop(key))) for key in wanted]
            else:
                # All keys grow by one: the new row of each may come before the old row of the next is gone.
                moved = {str(int(key) + 1): state[key] for key in keys}
                each = chance.random() < 0.5
                pairs = [
                    ((commit, DELETE, (key, state[key])), (commit, INSERT, (str(int(key) + 1), state[key])))
                    for key in keys
                ]
                changes += [one for pair in pairs for one in pair] if each else [
                    *(old for old, _ in pairs), *(new for _, new in pairs)
                ]  # fmt: skip
                state = dict(moved)
        states.append(dict(state))
    # Rows of different times, as a read without a snapshot may show them.
    present = chance.choice(states)
    assert undone(past(changes), list(present.items())) == first


def test_a_value_that_no_change_has_set_is_the_table_s() -> None:
    changes: list[Change] = [(1, BEFORE, ("1", None)), (1, AFTER, ("1", None))]
    assert undone(past(changes, "text", [False, False]), [("1", "kept")]) == {"1": "kept"}
    with pytest.raises(PositionLost, match=r"does not have the old value of v"):
        undone(past(changes, "text", [False, False]), [])
    # A later change has set it: its old row has the value, or no row has it.
    later: list[Change] = [*changes, (2, BEFORE, ("1", "old")), (2, AFTER, ("1", "new"))]
    assert undone(past(later, "text", [False, False, True, True]), [("1", "new")]) == {"1": "old"}
    later[2] = (2, BEFORE, ("1", None))
    with pytest.raises(PositionLost, match=r"s\.t was changed while it was read"):
        undone(past(later, "text", [False, False, True, True]), [("1", "new")])
    # For other types a null was really set.
    assert undone(past(later, "varchar", [False, False, True, True]), [("1", "new")]) == {"1": None}


def test_rows_for_a_moment_need_no_values() -> None:
    changes: list[Change] = [(1, INSERT, ("1", "x")), (2, DELETE, ("1", None))]
    assert undone(past(changes, "text"), []) == {}


def test_updates_without_old_rows_are_refused() -> None:
    with pytest.raises(PrerequisiteError, match="has no old rows of updates"):
        past([(1, AFTER, ("1", "x"))])
