"""Histories of altered tables on a real server: each copy equals its source, or a warning named a remedy that helps.

`make simulate ARGS=schema` runs others.
"""

from __future__ import annotations

import pytest

from tests.extent import sized
from tests.fix_postgres import Postgres
from tests.simulation.schema import runs

SEEDS = [range(first, first + sized(25, 125)) for first in (0, 1000, 2000, 3000)]
SECONDS = sized(14.0, None)
"""Seconds for each test in a short run."""


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start} on")
def test_a_copy_is_never_silently_different(postgres: Postgres, seeds: range) -> None:
    found = runs.run(postgres, seeds, SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.full
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start} on")
def test_a_copy_is_never_silently_different_on_the_systems_server(system_postgres: Postgres, seeds: range) -> None:
    found = runs.run(system_postgres, seeds)
    print(found.text())
    assert [outcome.text() for outcome in found.bad] == []
