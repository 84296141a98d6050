"""Rows may take keys from one another within a transaction, in any order of the log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns.blocks import EVERY, LAST, read
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import DELETE, INSERT, ChangeRows
from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, together, whole
from tailrace.connectors.db2.values.conversions import FORM
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.extent import examples

TABLE = TableSchema(
    TableId("DB", "S", "A"),
    (Column("ID", "INTEGER", 0, nullable=False), Column("T", "INTEGER", 0), Column("V", "VARCHAR", 0, 9)),
    ("ID",),
)
SOURCE = {
    "database.hostname": "h", "database.user": "u", "database.password": "p", "database.dbname": "DB",
    "topic.prefix": "p", "skipped.operations": "none",
}  # fmt: skip
CHOSEN = {
    word: EventSettings.from_options(parse("db2", {**SOURCE, "row.blocks": word}), "run") for word in (LAST, EVERY)
}

Rows = dict[int, str]
Half = tuple[int, int, int, str]
"""A transaction's number, an operation, a key and a value."""


def log_of(given: Sequence[Half]) -> ChangeRows:
    count = len(given)
    return ChangeRows(
        pa.array([number.to_bytes(2, "big") for number, *_ in given], pa.binary()),
        pa.array([place.to_bytes(2, "big") for place in range(count)], pa.binary()),
        np.array([operation for _, operation, *_ in given], np.uint8),
        [
            pa.array([str(key).encode() for *_, key, _ in given], pa.binary()),
            pa.nulls(count, pa.binary()),
            pa.array([value.encode() for *_, value in given], pa.binary()),
        ],
    )


def fetches(rows: ChangeRows, size: int) -> Iterator[ChangeRows]:
    for low in range(0, len(rows), size):
        part = slice(low, low + size)
        columns = [column[part] for column in rows.columns]
        yield ChangeRows(rows.commit[part], rows.change[part], rows.operation[part], columns)


def entries(given: Sequence[Half], size: int, blocks: str) -> list[dict[str, Any]]:
    """Return the rows of all blocks in order."""
    assembly = RowAssembly(TABLE, TimesByPosition.none(), pairs=True, exact=True)
    found = []
    for cut in together(whole(fetches(log_of(given), size), pairs=True), [0]):
        batch = assembly.batch(cut)
        assert batch is not None
        for block in to_rows(batch, CHOSEN[blocks], FORM):
            found += read(block["value"][0].as_py()).to_pylist()
    return sorted(found, key=lambda row: (row["position"], row["ordinal"], row["part"]))


def replayed(rows: Rows, found: Sequence[dict[str, Any]]) -> Rows:
    """Return the rows after the entries are applied one at a time."""
    after = dict(rows)
    for row in found:
        if row["op"] == "d":
            after.pop(row["c0"], None)
        else:
            after[row["c0"]] = row["c2"]
    return after


def moves(rows: Rows, to: dict[int, int], order: Sequence[int], number: int) -> list[Half]:
    """Return a statement that gives the rows `order`, one after another, new keys."""
    return [half for key in order for half in ((number, DELETE, key, rows[key]), (number, INSERT, to[key], rows[key]))]


def drawn(data: st.DataObject) -> tuple[Rows, list[Half], Rows]:
    """Draw rows, some transactions whose statements move and change them, and the rows after them."""
    before = data.draw(st.dictionaries(st.integers(0, 5), st.sampled_from("xy"), max_size=5))
    rows, log = dict(before), []
    for number in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(st.sampled_from(("shift", "permute", "insert", "update", "delete")))
            if kind == "insert" or not rows:
                key = data.draw(st.sampled_from([key for key in range(12) if key not in rows]))
                rows[key] = data.draw(st.sampled_from("xy"))
                log.append((number, INSERT, key, rows[key]))
            elif kind in ("shift", "permute"):
                some = data.draw(st.permutations(sorted(rows)))
                to = {key: key + 1 for key in some}
                if kind == "permute":
                    to = dict(zip(some, data.draw(st.permutations(some)), strict=True))
                    some = [key for key in some if to[key] != key]
                log += moves(rows, to, some, number)
                rows = {to.get(key, key): value for key, value in rows.items()}
            else:
                key = data.draw(st.sampled_from(sorted(rows)))
                log.append((number, DELETE, key, rows[key]))
                if kind == "update":
                    rows[key] = data.draw(st.sampled_from("xyz"))
                    log.append((number, INSERT, key, rows[key]))
                else:
                    # So that the next insert is not read as the second half of an update.
                    del rows[key]
                    log += [(number, DELETE, 90, "x"), (number, INSERT, 91, "x"), (number, DELETE, 91, "x")]
    return before, log, rows


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_rows_are_right_at_the_end_of_each_transaction(data: st.DataObject) -> None:
    before, log, after = drawn(data)
    if not log:
        return
    size = data.draw(st.integers(1, 8))
    for blocks in (LAST, EVERY):
        assert replayed(before, entries(log, size, blocks)) == after, (before, log)


def test_a_statement_that_shifts_all_keys_loses_no_row() -> None:
    for values, order in itertools.product(("abc", "aaa", "aab"), ((1, 2, 3), (3, 2, 1), (2, 3, 1))):
        rows = dict(zip((1, 2, 3), values, strict=True))
        log = moves(rows, {1: 2, 2: 3, 3: 4}, order, 0)
        for size in (2, 6):
            found = replayed(rows, entries(log, size, LAST))
            assert found == {key + 1: value for key, value in rows.items()}


def test_a_row_that_is_made_and_removed_leaves_its_delete() -> None:
    """Nothing is left of the two only if another row could have had the key before."""
    found = entries([(0, INSERT, 1, "a"), (0, DELETE, 1, "a")], 2, EVERY)
    assert [row["op"] for row in found] == ["c", "d"]


def test_what_is_held_is_one_transaction_with_a_change_of_a_key() -> None:
    plain = [(number, INSERT, place, "a") for number in (0, 1) for place in range(4)]
    moved = [(2, DELETE, 0, "a"), (2, INSERT, 9, "a"), *((2, INSERT, place, "a") for place in range(20, 24))]
    cuts = [len(cut) for cut in together(fetches(log_of([*plain, *moved, *plain]), 2), [0])]
    assert cuts == [2, 2, 2, 2, 6, 2, 2, 2, 2]
