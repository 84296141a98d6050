"""Tables of which Db2 hides rows or values from users are told, and neither compared nor repaired."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.columns import TableId
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.db2 import verify_source
from tailrace.connectors.db2.server import health
from tailrace.connectors.db2.server.catalog import Catalog
from tailrace.connectors.db2.server.connection import RightLacking
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError

CAPTURES = [
    CaptureTable(TableId("shop", "S", name), name, "C", f"CD{name}", b"\1", None, ("ID",), ("ID",), number, number)
    for number, name in enumerate(("OPEN", "CLOSED"), 1)
]


def catalog(*rows: tuple[str, str], error: TailraceError | None = None) -> Catalog:
    def answered(statement: str) -> list[tuple[str, str]]:
        assert "CONTROL IN ('R', 'C', 'B')" in statement
        if error is not None:
            raise error
        return list(rows)

    return Catalog(cast(Any, SimpleNamespace(rows=answered)), "shop")


def test_a_table_under_access_control_is_neither_compared_nor_repaired() -> None:
    session = cast(Any, SimpleNamespace(catalog=lambda: catalog(("S       ", "CLOSED"))))
    verify_source._demand(session, CAPTURES[:1])
    with pytest.raises(PrerequisiteError, match=r"S\.CLOSED cannot be compared: permissions, masks or labels"):
        verify_source._demand(session, CAPTURES)


def test_it_is_told() -> None:
    registered = [cast(Any, SimpleNamespace(schema="S", table=name)) for name in ("OPEN", "CLOSED")]
    (found,) = health.hidden(registered, catalog(("S", "CLOSED")))
    assert found.level == "warning"
    assert "S.CLOSED" in found.text
    assert "S.OPEN" not in found.text
    assert not list(health.hidden(registered, catalog()))


def test_a_server_without_such_controls_has_none() -> None:
    assert catalog(error=PrerequisiteError("There is no SYSCAT.TABLES.", "")).controlled() == set()
    with pytest.raises(ConnectionFailed):
        catalog(error=ConnectionFailed("It is gone.", "")).controlled()


def test_a_catalog_that_the_user_may_not_read_is_told_and_nothing_is_compared() -> None:
    refused = catalog(error=RightLacking("Db2 refuses a statement.", "Give the user the rights that it lacks."))
    (found,) = health.hidden([cast(Any, SimpleNamespace(schema="S", table="OPEN"))], refused)
    assert (found.level, found.remedy) == ("warning", "grant select on SYSCAT.TABLES to …")
    session = cast(Any, SimpleNamespace(catalog=lambda: refused))
    with pytest.raises(RightLacking):
        verify_source._demand(session, CAPTURES[:1])
