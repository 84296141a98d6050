"""Rows of tables are read again by their keys, in spite of lost connections."""

from __future__ import annotations

import pytest

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.log import row_lookup
from tailrace.connectors.changetables.log.row_lookup import PresentRows
from tailrace.connectors.changetables.log.sessions import Retries, close_idle
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events.reselection import UnreadableRows
from tests.unit.changetables.memory import MemoryDialect, MemorySession, Server

KEYS = [("5",), ("0",), ("77",), ("3",)]


def made(server: Server, retries: int = -1) -> tuple[PresentRows, TableSchema]:
    close_idle()
    server.table("dbo.t", ("id", "v", "w"), ("id",))
    for number in range(7):
        server.commit(("dbo.t", "c", None, (str(number), f"v{number}", f"w{number}")))
    session = MemoryDialect(server.name).connect("db")
    table: TableSchema = session.describe(session.captures())[0].table
    return PresentRows(MemoryDialect(server.name), "db", Retries(retries, 0.001)), table


def read(rows: PresentRows, table: TableSchema) -> dict[int, tuple[bytes, ...]]:
    return {
        place: tuple(column[row].as_py() for column in columns)
        for places, columns in rows.of_keys(table, ("id",), KEYS, ("w", "v"))
        for row, place in enumerate(places)
    }


@pytest.mark.parametrize("failing", [(), (0,), (1,), (1, 0)])
@pytest.mark.parametrize("most", [1000, 2])
def test_each_row_comes_with_the_place_of_its_key(
    failing: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_lookup, "_MOST_PARAMETERS", most)
    server = Server("db", fetch=2, failing_rows=failing if most > 2 else failing[:0])
    rows, table = made(server)
    assert read(rows, table) == {0: (b"w5", b"v5"), 1: (b"w0", b"v0"), 3: (b"w3", b"v3")}
    assert server.calls["rows"] == (1 + len(failing) if most > 2 else 2)


def test_a_key_whose_texts_are_no_values_is_not_looked_up() -> None:
    rows, table = made(Server("db", kinds={"id": "sql_variant"}))
    with pytest.raises(UnreadableRows, match=r"cannot read dbo\.t again by id, because of its type"):
        read(rows, table)


def test_a_server_that_stays_away_is_an_error() -> None:
    rows, table = made(Server("db", fetch=2, failing_rows=(0, 0)), retries=1)
    with pytest.raises(ConnectionFailed):
        read(rows, table)


def test_a_query_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise PrerequisiteError("The table is not there.")

    rows, table = made(Server("db"))
    monkeypatch.setattr(MemorySession, "rows", refuse)
    with pytest.raises(UnreadableRows) as caught:
        read(rows, table)
    assert caught.value.reason == "cannot read dbo.t again: The table is not there"
