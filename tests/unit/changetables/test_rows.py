"""Rows of a change table are assembled into changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT, ChangeRows
from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, fixed
from tailrace.errors import DecodeError

TABLE = TableSchema(
    TableId("db", "dbo", "a"),
    (Column("id", "int", 56, 0, nullable=False), Column("t", "text", 35, 0), Column("v", "varchar", 167, 9)),
    ("id",),
)


def rows(*given: tuple[int, bytes | None, bytes | None]) -> ChangeRows:
    """Return rows of one key, each of a separate change except for the two rows of an update."""
    changes = np.cumsum([operation != AFTER for operation, *_ in given])
    return ChangeRows(
        pa.array([b"\1"] * len(given), pa.binary()),
        pa.array([bytes([change]) for change in changes.tolist()], pa.binary()),
        np.array([operation for operation, *_ in given], np.uint8),
        [
            pa.array([b"1"] * len(given), pa.binary()),
            pa.array([text for _, text, _ in given], pa.binary()),
            pa.array([text for *_, text in given], pa.binary()),
        ],
    )


GIVEN = rows(
    (INSERT, None, None),
    (BEFORE, None, None),
    (AFTER, b"x", None),
    (BEFORE, b"x", b""),
    (AFTER, None, b""),
    (DELETE, None, None),
)


def test_a_null_of_an_update_may_be_a_value_that_was_not_sent() -> None:
    batch = RowAssembly(TABLE, TimesByPosition.none(), False, (), frozenset(("text",))).batch(GIVEN)
    assert batch is not None
    assert bytes(batch.op) == b"cuud"
    assert batch.before is not None
    assert batch.after is not None
    flags = [side.unavailable[1] for side in (batch.before, batch.after)]
    assert [one.tolist() for one in flags if one is not None] == [
        [False, True, False, False],
        [False, False, True, False],
    ]
    assert [side.unavailable[place] for side in (batch.before, batch.after) for place in (0, 2)] == [None] * 4


def test_a_null_that_an_update_has_set_is_one() -> None:
    touched = replace(GIVEN, touched={1: GIVEN.operation == AFTER})
    for given, flags in ((touched, [False] * 4), (GIVEN, [False, False, True, False])):
        batch = RowAssembly(TABLE, TimesByPosition.none(), False, (), frozenset(("text",)), exact=True).batch(given)
        assert batch is not None
        assert batch.after is not None
        assert batch.before is not None
        assert batch.after.unavailable[1] is not None
        assert batch.after.unavailable[1].tolist() == flags
        # The values of an old row are unknown, whether it was updated or deleted.
        assert batch.before.unavailable[1] is not None
        assert batch.before.unavailable[1].tolist() == [False, True, False, True]


def test_a_null_of_an_old_row_is_one_where_the_update_has_set_a_column_of_another_large_type() -> None:
    given = rows((BEFORE, b"x", None), (AFTER, b"x", b"b"), (BEFORE, b"x", None), (AFTER, b"x", b"b"),
                 (DELETE, b"x", None))  # fmt: skip
    given = replace(given, touched={2: np.array([True, True, False, False, True])})
    for exact, flags in ((True, [False, True, False]), (False, None)):
        batch = RowAssembly(TABLE, TimesByPosition.none(), False, (), frozenset(("text",)), exact=exact).batch(given)
        assert batch is not None
        assert batch.before is not None
        assert batch.after is not None
        found = batch.before.unavailable[2]
        assert (None if found is None else found.tolist()) == flags
        assert batch.after.unavailable[2] is None


def test_every_null_is_one_where_all_values_are_sent() -> None:
    batch = RowAssembly(TABLE, TimesByPosition.none(), False).batch(GIVEN)
    assert batch is not None
    assert batch.before is not None
    assert batch.before.unavailable == [None] * 3


@pytest.mark.parametrize("operation", [0, 5, 7, 8, 255])
def test_an_operation_that_is_not_known_is_a_decode_error(operation: int) -> None:
    rows = replace(GIVEN, operation=np.array([operation, *GIVEN.operation[1:]], np.uint8))
    with pytest.raises(DecodeError):
        RowAssembly(TABLE, TimesByPosition.none(), False).batch(rows)


@pytest.mark.parametrize("positions", [[b"12", b"123"], [b"1", None], [b"", b""]])
def test_positions_of_several_widths_are_a_decode_error(positions: list[bytes | None]) -> None:
    with pytest.raises(DecodeError):
        fixed(pa.array(positions, pa.binary()))
