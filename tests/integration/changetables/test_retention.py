"""Metrics have the time of the oldest change in change tables, and the time for which changes stay there."""

from __future__ import annotations

import time

import pytest

from tailrace.connectors.changetables.retention import retention
from tailrace.connectors.registry import find, parse
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database
from tests.integration.sqlserver.reading import config as configured


def test_sql_servers_clean_up_and_oldest_transaction(sqlserver_database: TestDatabase) -> None:
    database = sqlserver_database
    database.execute("create table t (id int not null primary key)")
    database.enable("t")
    config = configured(database)
    assert find("sqlserver").load_retention() is retention
    found = retention(config)
    assert (found.oldest_s, found.kept_s) == (None, 4320 * 60)
    database.execute("insert into t values (1)")
    database.capture()
    found = retention(config)
    assert found.oldest_s is not None
    assert found.oldest_s == pytest.approx(time.time(), abs=120)


def test_db2s_pruning_and_oldest_unit_of_work(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY)")
    db2.capture.register("INVENTORY", "T")
    config = parse("db2", db2.options())
    assert find("db2").load_retention() is retention
    assert retention(config).kept_s == 10080 * 60
    db2.execute("INSERT INTO INVENTORY.T VALUES (1)")
    db2.capture.capture()
    found = retention(config)
    assert found.oldest_s is not None
    assert found.oldest_s == pytest.approx(time.time(), abs=120)
