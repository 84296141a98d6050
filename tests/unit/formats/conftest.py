"""Fixtures of the tests of encodings with a registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.events.table_plan import table_plan
from tailrace.formats.registry import schema_ids
from tests.servers.registry import Registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Yield a separate registry for each test."""
    schema_ids.forget()
    table_plan.cache_clear()
    monkeypatch.setattr(schema_ids, "_WAIT", 0)
    with Registry() as running:
        yield running
    schema_ids.forget()
    table_plan.cache_clear()
