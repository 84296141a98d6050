"""A factory of queries over one fresh database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tdsserver.process import TestDatabase
from tests.integration.sqlserver.capturing import Capture


@pytest.fixture
def capture(sqlserver_database: TestDatabase) -> Iterator[Any]:
    """Yield a factory of queries, which stream the changes after `statements`. Names of options have underscores for
    dots."""
    made: list[Capture] = []

    def make(*statements: str, others: tuple[TestDatabase, ...] = (), **options: str) -> Capture:
        sqlserver_database.execute(*statements)
        sqlserver_database.capture()
        named = {name.replace("_", "."): text for name, text in options.items()}
        made.append(Capture([sqlserver_database, *others], named))
        made[-1].step()
        return made[-1]

    yield make
    for one in made:
        one.planner.close()
