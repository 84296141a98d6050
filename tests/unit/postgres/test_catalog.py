"""The numbers of catalog queries and rows grow with tables and columns, not with their product."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.connectors.postgres.schema import catalog
from tailrace.connectors.postgres.schema.catalog import Catalog


class Row(tuple[Any, ...]):
    """A row that counts how often it is read."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        Row.looks += 1
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        Row.looks += 1
        return super().__getitem__(place)


class Connection:
    """A database of tables `t1, t2, …`, each with the same number of text columns."""

    def __init__(self, tables: int, columns: int) -> None:
        self.statements = 0
        text = (25, "text", "b", "S", 0, 0, -1, False, "textout", 1, None)
        oids, names = range(1, tables + 1), [f"c{number}" for number in range(columns)]
        self._answers = {
            catalog._TABLE: [Row((oid, "public", f"t{oid}", "d")) for oid in oids],
            catalog._COLUMNS: [
                Row((oid, name, 25, -1, True, "", None, None, number))
                for oid in oids
                for number, name in enumerate(names, 1)
            ],
            catalog._KEYS: [Row((oid, True, ["c0"])) for oid in oids],
            catalog._TYPES: [text],
        }

    def execute(self, statement: str, _: Any) -> Any:
        self.statements += 1
        return SimpleNamespace(fetchall=lambda: self._answers[statement])


def test_schemas_look_at_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "has_no_encoding", lambda _: False)
    tables, columns = 200, 30
    connection: Any = Connection(tables, columns)
    Row.looks = 0
    found = Catalog(connection, "d").schemas(range(1, tables + 1))
    assert [len(found[oid].columns) for oid in range(1, tables + 1)] == [columns] * tables
    assert found[7].key == ("c0",)
    assert Row.looks <= 4 * (tables * columns + 2 * tables)
    assert connection.statements == 4
