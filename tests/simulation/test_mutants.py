"""Each mutant is found: by the seeds known to find it, and in a full run by the first histories."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation import mutants, seeds, trials
from tests.simulation.course import run
from tests.simulation.kinds import KINDS
from tests.simulation.trials import ANEW, TRIALS, Trial

FRESH = 25
"""Number of the day's seeds that are tried if no known seed finds a mutant, to tell how easily it is found."""


@pytest.mark.parametrize("name", TRIALS)
def test_a_known_fault_is_found(name: str) -> None:
    begin = seeds.of_the_day()
    trials.killer(TRIALS[name], trials.known()[name], range(begin, begin + FRESH))


@pytest.mark.full
@pytest.mark.parametrize("name", TRIALS)
def test_a_known_fault_is_found_by_the_first_histories(name: str) -> None:
    trial = TRIALS[name]
    # only errors of checks, no error of the mutant itself
    with trial.mutant(), pytest.raises(trial.shown):
        run(KINDS[trial.connector], trial.seeds)


def test_each_mutant_has_seeds() -> None:
    every = {*mutants.MUTANTS, *mutants.OF_ROWS, *mutants.OF_MONGODB, *mutants.OF_TABLES, *mutants.OF_BINLOG}
    every |= {*mutants.OF_BINLOG_ROWS}
    assert {trial.mutant for trial in TRIALS.values()} == every
    known = trials.known()
    assert known.keys() == TRIALS.keys(), f"find the seeds anew: {ANEW}"
    assert all(found for _, found in known.values())


def harmless() -> nullcontext[None]:
    """Change nothing."""
    return nullcontext()


HARMLESS = Trial(harmless, "postgres", range(3))
SOON = replace(HARMLESS, mutant=mutants.acknowledged_as_read, seeds=range(20))
"""A mutant that nearly every history finds."""


def test_seeds_that_find_nothing_any_more_say_how_to_find_them_anew() -> None:
    with pytest.raises(AssertionError, match=re.escape(ANEW)) as caught:
        trials.killer(HARMLESS, ("postgres", [5]), range(2))
    assert "none of 2 others does" in str(caught.value)


def test_seeds_of_another_kind_are_of_no_use() -> None:
    with pytest.raises(AssertionError, match=r"find the seeds anew"):
        trials.killer(SOON, ("postgres-rows", [0]), range(3))


def test_a_mutant_that_no_history_finds_fails_the_search() -> None:
    found = trials.search("harmless", HARMLESS)
    assert (found.seeds, found.last) == ([], 3)
    assert str(found) == "harmless: not found by 3 histories"


def test_a_search_finds_and_keeps_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "FILE", tmp_path / "seeds.json")
    name = mutants.acknowledged_as_read.__name__
    said: list[str] = []
    assert trials.search_all([name], 1, said.append)
    assert said[0].startswith(f"{name}: found by history ")
    connector, found = trials.known()[name]
    assert connector == "postgres"
    assert len(found) == trials.ENOUGH
    assert all(TRIALS[name].finds(seed) for seed in found)


def test_a_fault_of_the_mutant_itself_is_no_find() -> None:
    def broken() -> nullcontext[None]:
        raise KeyError("the mutant itself")

    with pytest.raises(KeyError, match="itself"):
        replace(HARMLESS, mutant=broken).finds(0)
