"""What every history has."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a query warns of is what histories are made of."""
    log = logging.getLogger("tailrace")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
