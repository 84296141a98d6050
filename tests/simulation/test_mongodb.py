"""Histories of a query over a replica set."""

from __future__ import annotations

import pytest

from tests.simulation import seeds
from tests.simulation.mongodb import MongoHistory

HISTORIES = 600


@pytest.mark.full
def test_nothing_is_lost_in_the_first_histories() -> None:
    totals = seeds.run("mongodb", range(HISTORIES))
    # enough has happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert 0 < totals.lost < HISTORIES // 5


@pytest.mark.full
@pytest.mark.parametrize("kind", ["signalling", "tailing"])
def test_what_is_seldom_elsewhere(kind: str) -> None:
    seeds.run(f"mongodb-{kind}", range(25))


def test_a_seed_is_one_history() -> None:
    one, two = MongoHistory(1), MongoHistory(1)
    one.run()
    two.run()
    assert one.counts() == two.counts()
    assert one.world.turns == two.world.turns
    assert one.checkpoint.sink == two.checkpoint.sink
    assert one.checkpoint.commits
