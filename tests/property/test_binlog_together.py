"""Rows of several tables of the binary log that are decoded together have the texts that each table's have alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.binlog.log.decoder import decode_together
from tailrace.connectors.binlog.log.forms import ColumnForm
from tailrace.connectors.binlog.log.position import MixedSegment, RowPlaces, RowsEventForm
from tests.extent import examples
from tests.property.binlog_rows import Rows, drawn
from tests.property.test_binlog_rows import as_numbers, plain, texts


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[Rows], list[tuple[int, int]], list[list[int]], int]:
    """Draw rows of tables, an order of (table, row), the places of each table's columns, and the number of places."""
    tables = draw(st.lists(drawn(), min_size=1, max_size=4))
    order = draw(st.permutations([(number, row) for number, one in enumerate(tables) for row in range(len(one.rows))
                                  if one.images[one.rows[row][1]].op != ord("t")]))  # fmt: skip
    width = draw(st.integers(max(len(one.table.form) for one in tables), 12))
    places = [draw(st.permutations(range(width)))[: len(one.table.form)] for one in tables]
    hidden = draw(st.booleans())
    return tables, order, [[-1, *of[1:]] if hidden else of for of in places], width


def mixed(tables: list[Rows], order: list[tuple[int, int]]) -> MixedSegment:
    known: dict[RowsEventForm, int] = {}
    rows = [tables[number].rows[row] for number, row in order]
    image = [known.setdefault(tables[number].images[of], len(known))
             for (number, _), (_, of) in zip(order, rows, strict=True)]  # fmt: skip
    zeros = np.zeros(len(rows), np.int64)
    by_row = RowPlaces(
        transaction=zeros.astype(np.int32), ordinal=zeros, pos=zeros, row=zeros.astype(np.int32),
        image=np.array(image, np.int32), statement=zeros.astype(np.int32) - 1, images=tuple(known),
    )  # fmt: skip
    data = b"".join(message for message, _ in rows)
    offsets = np.cumsum([0, *(len(message) for message, _ in rows)]).astype(np.int64)
    return MixedSegment(
        tuple(one.table for one in tables), np.array([number for number, _ in order], np.int32),
        np.frombuffer(data or b"\0", np.uint8)[: len(data)], offsets, by_row, tables[0].segment().transactions,
    )  # fmt: skip


@settings(deadline=None, max_examples=examples(150))
@given(mixtures())
def test_each_row_has_its_texts_at_the_places_of_its_table(
    drawn_rows: tuple[list[Rows], list[tuple[int, int]], list[list[int]], int],
) -> None:
    tables, order, places, width = drawn_rows
    flat = np.array([place for of in places for place in of], np.int32)
    bounds = np.cumsum([0, *map(len, places)]).astype(np.int64)
    batch = decode_together(mixed(tables, order), flat, bounds, width)
    assert batch is not None
    assert [chr(op) for op in batch.op] == [chr(tables[of].images[tables[of].rows[row][1]].op) for of, row in order]
    alone = [as_numbers(one, plain(one)) for one in tables]
    for row, (number, at) in enumerate(order):
        rows, of = tables[number], places[number]
        sides = texts(batch.before, row), texts(batch.after, row)
        for side in sides:
            assert side is None or all(value is None for place, value in enumerate(side) if place not in of)
        found = [None if side is None else [side[place] if place >= 0 else None for place in of] for side in sides]
        expected = [None if side is None else [value if place >= 0 else None
                    for value, place in zip(side, of, strict=True)] for side in alone[number][at]]  # type: ignore[arg-type, call-overload]  # fmt: skip
        assert list(as_numbers(rows, [(found[0], found[1])])[0]) == expected


def test_a_row_that_is_cut_is_left_to_its_own_table() -> None:
    from tailrace.columns.table import Column, TableId
    from tailrace.connectors.binlog.log.forms import BinlogTable, ValueKind

    table = BinlogTable(
        TableId("d", "d", "t"), (Column("c0", "", 0),), ("c0",), form=(ColumnForm(ValueKind.INTEGER, 4),)
    )
    rows = Rows(table, (RowsEventForm(ord("c"), b"", b"\1"),), ((b"\0\1\0", 0),))
    assert decode_together(mixed([rows], [(0, 0)]), np.zeros(1, np.int32), np.array([0, 1], np.int64), 1) is None
