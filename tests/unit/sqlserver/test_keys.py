"""The key of a captured table: events show the captured part of it, and a copy has the whole key or none."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column, TableId
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.dialect import SqlServerSession
from tailrace.connectors.sqlserver.server import catalog

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
