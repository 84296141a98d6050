"""The histories of the day: 2,000 of all kinds, with new seeds every day.

Each test prints the command that runs its histories again; an error names the command for its history. `make simulate`
runs any number of others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.simulation import course, kinds, mutants, seeds
from tests.simulation.history import History


@dataclass(frozen=True)
class Share:
    """The number of histories of a kind in a day and in one test, and bounds that show that enough has happened.

    On average, each history must have more starts and changes than `starts` and `changes`, and the share of lost
    positions must lie between the bounds of `lost`. The bounds are at least six standard deviations away from a test's
    averages; if some position must be lost, the probability of none is one in a hundred thousand.
    """

    histories: int
    block: int
    starts: float = 0.0
    changes: float = 0.0
    lost: tuple[float, float] = (-1.0, 1.0)


DAY = {
    "postgres": Share(665, 133, 2, 20, (-1.0, 0.1)),
    "postgres-halves": Share(100, 100, 2, 20),
    "postgres-promoted": Share(80, 80, 4, 5, (0.0, 0.9)),
    "postgres-failover": Share(120, 120, 1.2, 10, (0.0, 0.9)),
    "postgres-rows": Share(200, 100, 2, 10, (-1.0, 0.25)),
    "postgres-rows-failover": Share(80, 80, 2, 5),
    "postgres-rows-altering": Share(25, 25),
    "postgres-rows-waiting": Share(25, 25),
    "postgres-rows-crashing": Share(25, 25),
    "postgres-rows-moving": Share(25, 25),
    "postgres-rows-windows": Share(25, 25),
    "postgres-rows-blocking": Share(25, 25),
    "mongodb": Share(250, 125, 2, 20, (0.0, 0.4)),
    "mongodb-signalling": Share(25, 25),
    "mongodb-tailing": Share(25, 25),
    "changetables": Share(170, 85, 2, 20, (-1.0, 0.5)),
    "binlog": Share(60, 60, 2, 20, (-1.0, 0.5)),
    "binlog-altering": Share(20, 20),
    "binlog-returning": Share(10, 10),
    "binlog-refusing": Share(5, 5),
    "binlog-rows": Share(30, 30, 2, 20),
    "binlog-rows-failover": Share(5, 5),
    "binlog-rows-lagging": Share(5, 5),
}


BLOCKS = [(name, first) for name, share in DAY.items() for first in range(0, share.histories, share.block)]
"""The kind of each test's histories, and the number of the first."""


@pytest.mark.parametrize(("connector", "first"), BLOCKS)
def test_nothing_is_lost_whatever_happens(connector: str, first: int) -> None:
    share, begin = DAY[connector], seeds.of_the_day() + first
    print(seeds.command(connector, share.block, begin))
    totals = seeds.run(connector, range(begin, begin + share.block))
    # enough has happened
    assert totals.histories == share.block
    assert totals.starts > share.starts * share.block, totals
    assert totals.changes > share.changes * share.block, totals
    assert share.lost[0] < totals.lost / share.block < share.lost[1], totals


def test_a_day_has_2000_histories_of_all_kinds() -> None:
    assert DAY.keys() == kinds.KINDS.keys()
    assert sum(share.histories for share in DAY.values()) == 2_000
    assert not any(share.histories % share.block for share in DAY.values())
    assert all(share.histories < seeds.A_DAY for share in DAY.values())


def test_a_history_that_fails_says_how_it_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(History):
        def calm(self) -> None:
            raise AssertionError("as it should")

    monkeypatch.setitem(kinds.KINDS, "failing", Failing)
    with pytest.raises(AssertionError, match="as it should") as caught:
        seeds.run("failing", range(7, 9))
    command = "python -m tests.simulation --connector failing --histories 1 --seed 7"
    assert caught.value.__notes__ == [f"the history of seed 7; to run it again: {command}"]


def test_a_seed_of_the_day_begins_with_the_date() -> None:
    assert re.fullmatch(r"20\d\d[01]\d[0-3]\d0000", str(seeds.of_the_day()))


def test_the_second_half_of_a_slice_may_lie_apart() -> None:
    """Both ways to separate the halves lead to the same history."""
    with mutants.halves_lie_apart():
        one = course.run(History, [2])
    assert course.run(kinds.HalvesHistory, [2]) == one
