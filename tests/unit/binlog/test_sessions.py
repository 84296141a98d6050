"""Sessions with servers of several versions, one of which does not answer, and lists that match no table."""

from __future__ import annotations

import socket
import time

import pytest

from tailrace.connectors.binlog.dialect import MARIADB, MYSQL, Dialect
from tailrace.connectors.binlog.schema.catalog import ListedTable
from tailrace.connectors.binlog.server.connection import connect, shows_keys
from tailrace.connectors.binlog.setup.prerequisites import unmatched_lists
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed

LOGIN = {"database.hostname": "127.0.0.1", "database.user": "u", "topic.prefix": "t"}


def test_a_server_that_takes_the_connection_and_never_greets_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        config = parse("mysql", LOGIN | {"database.port": port, "connect.timeout.ms": "1000"})
        began = time.monotonic()
        with pytest.raises(ConnectionFailed):
            connect(config)
        assert time.monotonic() - began < 8


def test_lists_that_match_no_table_name_the_nearest() -> None:
    there = [
        ListedTable("shop", "orders", "InnoDB", "BASE TABLE", 0),
        ListedTable("shop", "items", "InnoDB", "BASE TABLE", 0),
    ]
    config = parse("mysql", LOGIN | {"table.include.list": r"shop\.order"})
    fault = unmatched_lists(config, there, is_fresh=True)
    assert fault is not None
    assert fault.level == "error"
    assert fault.text == "The include lists match no table of the database. The nearest: shop.orders, shop.items."
    assert fault.remedy == "Correct table.include.list; or set no.table.handling.mode=warn if a table is made later."
    older = parse("mysql", LOGIN | {"database.whitelist": "ship"})
    named = unmatched_lists(older, there, is_fresh=True)
    assert named is not None
    assert named.remedy.startswith("Correct database.include.list; or")
    kept = unmatched_lists(config, there, is_fresh=False)
    assert kept is not None
    assert kept.level == "warning"
    matching = parse("mysql", LOGIN | {"table.include.list": r"shop\.orders"})
    assert unmatched_lists(matching, there, is_fresh=True) is None
    assert unmatched_lists(parse("mysql", LOGIN), there, is_fresh=True) is None


@pytest.mark.parametrize(
    ("dialect", "version", "has_keys"),
    [
        (MYSQL, "8.0.15", False),
        (MYSQL, "5.7.22-log", False),
        (MYSQL, "8.0.30", True),
        (MYSQL, "8.4.3-cloud", True),
        (MARIADB, "11.4.5-MariaDB-log", False),
    ],
)
def test_definitions_show_the_keys_that_the_server_has_generated(
    dialect: Dialect, version: str, has_keys: bool
) -> None:
    assert bool(shows_keys(dialect, version)) == has_keys
