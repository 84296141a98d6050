"""The connectors under the contract, with a fresh database for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.connectors.changetables.log.sessions import close_idle
from tests.contract.binlog import BinlogSubject
from tests.contract.db2 import Db2Subject
from tests.contract.mongodb import MongoSubject
from tests.contract.postgres import PostgresSubject
from tests.contract.sqlserver import SqlServerSubject
from tests.contract.subject import Subject

pytest.register_assert_rewrite("tests.contract.promises", "tests.contract.query")

SUBJECTS: dict[str, tuple[str, Callable[[Any], Subject]]] = {
    "postgres": ("database", PostgresSubject),
    "mongodb": ("mongo_database", MongoSubject),
    "sqlserver": ("sqlserver_database", SqlServerSubject),
    "db2": ("db2", Db2Subject),
    "mysql": ("mysql", BinlogSubject),
    "mariadb": ("mariadb", BinlogSubject),
}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """A connector with its database."""
    fixture, make = SUBJECTS[request.param]
    yield make(request.getfixturevalue(fixture))
    close_idle()
