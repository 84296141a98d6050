"""The key of a captured table: events show the captured part of it, and a copy has the whole key or none."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.dialect import SqlServerSession
from tailrace.connectors.sqlserver.server import catalog
from tailrace.connectors.sqlserver.values.conversions import FORM
from tailrace.events.admission import doubts
from tailrace.events.event_settings import EventSettings

SOURCE = {
    "database.hostname": "h", "database.user": "u", "database.password": "p", "database.names": "db",
    "topic.prefix": "p",
}  # fmt: skip
COLUMNS = {name: Column(name, "int", 56, -1, nullable=False) for name in ("a", "b", "v")}


@pytest.mark.parametrize(
    ("captured", "options", "key"),
    [
        (("a", "b", "v"), {"row.blocks": "last"}, ("a", "b")),
        (("a", "v"), {}, ("a",)),
        (("a", "v"), {"row.blocks": "last"}, ()),
        (("a", "v"), {"rows": "typed"}, ()),
    ],
)
def test_a_part_of_a_key_identifies_no_row_of_a_copy(
    captured: tuple[str, ...], options: dict[str, str], key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without net changes a capture instance may lack columns of the primary key."""
    monkeypatch.setattr(catalog, "columns", lambda query, objects: {1: COLUMNS, 2: COLUMNS})
    monkeypatch.setattr(catalog, "keys", lambda query, objects: {1: ("a", "b")})
    connection: Any = None
    session = SqlServerSession(parse("sqlserver", {**SOURCE, **options}), "db", connection)
    source = TableId("db", "dbo", "t")
    capture = CaptureTable(source, "dbo_t", "cdc", "dbo_t_CT", bytes(10), None, captured, (), 2, 1)
    (found,) = session.describe([capture])
    assert found.table.key == key
    assert found.capture.is_partial == (key == ("a",))


def test_a_large_value_that_an_update_leaves_alone_is_in_the_change_table() -> None:
    """The warning of PostgreSQL's values apart from their rows is not for a geometry or a number here."""
    columns = (COLUMNS["a"], Column("g", "geometry", 240, -1), Column("n", "numeric", 108, -1))
    table = TableSchema(TableId("db", "dbo", "t"), columns, ("a",))
    settings = EventSettings.from_options(parse("sqlserver", {**SOURCE, "row.copy": "true"}))
    assert list(doubts(table, settings, FORM)) == []
