"""Values are read again by the names of their columns, which may be those of other columns by now."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.row_lookup import BinlogPresentTable
from tailrace.connectors.registry import parse
from tailrace.errors import SinkError
from tailrace.events.event_settings import EventSettings

SOURCE = {
    "database.hostname": "h", "database.user": "u", "database.password": "p", "topic.prefix": "p",
    "database.server.id": "7",
}  # fmt: skip


def present(*names: str) -> BinlogPresentTable:
    """Return a table that now has these columns."""
    config = parse("mysql", SOURCE)
    columns = tuple(Column(name, "int", 0) for name in names)
    schema = TableSchema(TableId("", "shop", "t"), columns, ("id",))
    return BinlogPresentTable(cast(Any, None), schema, EventSettings.from_options(config, "run"), config)


@pytest.mark.parametrize("now", [("id", "a", "b"), ("id", "a", "b", "c")])
def test_columns_that_kept_their_names_are_read_by_them(now: tuple[str, ...]) -> None:
    present(*now).demand(("id", "a", "b"))


@pytest.mark.parametrize("now", [("id", "x", "a"), ("id", "b", "a"), ("id", "a"), ("id", "x", "a", "b")])
def test_a_value_is_not_read_from_a_column_that_got_the_name_of_another(now: tuple[str, ...]) -> None:
    """The server does not number columns: a was renamed to x, and b to a."""
    with pytest.raises(SinkError, match=r"The columns of shop\.t were renamed, dropped or moved") as caught:
        present(*now).demand(("id", "a", "b"))
    assert "unknown.values = null" in caught.value.remedy
