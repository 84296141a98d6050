"""Fixtures of all histories."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence warnings of queries: histories are full of faults."""
    log = logging.getLogger("tailrace")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
