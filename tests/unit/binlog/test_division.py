"""Ranges of keys into which a snapshot divides a table, by what a server says of it."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.snapshot import division
from tailrace.connectors.binlog.snapshot.division import bounds, estimate, index_of

SESSION = cast(Any, None)


def table(kind: str, key: tuple[str, ...] = ("k",)) -> TableSchema:
    columns = tuple(Column(name, kind, 0, nullable=False) for name in ("k", "l"))
    return TableSchema(TableId("", "d", "t"), columns, key)


class Server:
    """A server with a table whose keys are the texts `keys` in their order."""

    def __init__(self, patch: pytest.MonkeyPatch, keys: list[str], index: list[tuple[str, str, str]]) -> None:
        self.keys, self.index = keys, index
        self.asked: list[str] = []
        patch.setattr(division, "rows", self.rows)
        patch.setattr(division, "named_rows", self.explained)
        patch.setattr(division, "_LEAST_ROWS", 2)

    def rows(self, session: object, statement: str) -> list[tuple[str | None, ...]]:
        self.asked.append(statement)
        if "information_schema.statistics" in statement:
            return list(self.index)
        if "information_schema.tables" in statement:
            return [(str(len(self.keys)), "1000")]
        if statement.startswith("select min"):
            return [(self.keys[0], self.keys[-1])] if self.keys else [(None, None)]
        after = re.search(r"> \w* ?x'([0-9A-F]*)'", statement)
        rest = [one for one in self.keys if after is None or one > after[1]]
        place = int(statement.rpartition("offset ")[2])
        return [(one,) for one in rest[place : place + 1]]

    def explained(self, session: object, statement: str) -> list[dict[str, str | None]]:
        after, upto = (int(re.search(rf"{sign} (-?\d+)", statement)[1]) for sign in (">", "<="))  # type: ignore[index]
        return [{"rows": str(sum(after < int(one) <= upto for one in self.keys))}]


PRIMARY = [("PRIMARY", "k", "0")]


@pytest.mark.parametrize(
    ("index", "key", "expected"),
    [
        (PRIMARY, ("k",), "PRIMARY"),
        ([("a", "k", "0"), ("a", "l", "0"), ("b", "k", "0")], ("k",), "b"),
        ([("a", "k", "0"), ("a", "l", "0")], ("k", "l"), "a"),
        ([("a", "l", "0"), ("a", "k", "0")], ("k", "l"), ""),
        # an index over the first characters does not sort all keys
        ([("a", "k", "1")], ("k",), ""),
    ],
)
def test_the_index_is_that_over_exactly_the_key(
    index: list[tuple[str, str, str]], key: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Server(monkeypatch, [], index)
    assert index_of(SESSION, table("int", key)) == expected


def test_integers_are_divided_where_their_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [str(number) for number in (*range(1, 101), 1_000_000)]
    Server(monkeypatch, keys, PRIMARY)
    found = [int(upto) for (upto,) in bounds(SESSION, table("bigint"), 16)]
    assert found == sorted(set(found))
    assert len(found) <= 15
    # the many small keys are divided though the large one is far away
    assert sum(one <= 100 for one in found) >= 1


def test_keys_of_other_types_are_divided_at_equal_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"{number:04X}" for number in range(10)]
    server = Server(monkeypatch, keys, PRIMARY)
    assert bounds(SESSION, table("varbinary(2)"), 3) == [("0002",), ("0005",)]
    assert "force index (`PRIMARY`)" in server.asked[-1]


def test_the_last_range_is_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"{number:04X}" for number in range(6)]
    Server(monkeypatch, keys, PRIMARY)
    assert bounds(SESSION, table("varbinary(2)"), 9) == [("0001",), ("0003",)]
    Server(monkeypatch, keys[:1], PRIMARY)
    assert bounds(SESSION, table("varbinary(2)"), 9) == []


@pytest.mark.parametrize(
    ("one", "chunks", "keys", "index"),
    [
        (table("int"), 1, ["1", "9"], PRIMARY),
        (table("int", ()), 9, ["1", "9"], PRIMARY),
        (table("json"), 9, ["1", "9"], PRIMARY),
        (table("int"), 9, ["1", "9"], []),
        (table("int"), 9, [], PRIMARY),
        (table("int"), 9, ["7"], PRIMARY),
    ],
)
def test_a_table_that_cannot_be_divided_is_one_range(
    one: TableSchema, chunks: int, keys: list[str], index: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Server(monkeypatch, keys, index)
    assert bounds(SESSION, one, chunks) == []


def test_a_table_that_is_gone_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "rows", lambda session, statement: [])
    assert estimate(SESSION, table("int")) == (0, 0)
