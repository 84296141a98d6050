"""Trials of mutants: the histories that have to find each of them, and the seeds that are known to.

`python -m tests.simulation --mutants` looks for these seeds and writes them to a file. A test runs them. What a seed
means depends on the generator of its histories, and on what the product asks its server for: the seeds have to be
found anew when none of a mutant's does any more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import DecodeError
from tests.simulation import mutants, seeds
from tests.simulation.mutants import Mutant

FILE = Path(__file__).with_name("seeds.json")
ANEW = "make simulate ARGS=--mutants"
"""The command that finds the seeds anew."""
ENOUGH = 3
"""So many seeds of a mutant are kept."""
FURTHER = 4
"""So many times as far as its trial goes a search for them."""


@dataclass(frozen=True)
class Trial:
    """A mutant, the histories that have to find it, and the errors by which they show it.

    They are of one kind, and one of the `seeds` at least is that of a history that does.
    """

    mutant: Mutant
    connector: str
    seeds: range
    shown: tuple[type[Exception], ...] = (AssertionError,)

    def finds(self, seed: int) -> bool:
        """Return True if the history of the seed finds the mutant. Another error is one of the mutant itself."""
        try:
            with self.mutant():
                self.run(seed)
        except self.shown:
            return True
        return False

    def run(self, seed: int) -> None:
        """Run the history of the seed on the product as it is now."""
        seeds.run(self.connector, [seed])


KINDS_OF: dict[Mutant, str] = {
    mutants.a_log_counts_as_read_before_it_is_known: "postgres-promoted",
    mutants.a_stream_begins_whatever_the_server: "postgres-failover",
    mutants.altered_tables_are_not_waited_for: "postgres-rows-altering",
    mutants.what_is_in_progress_counts_as_shown: "postgres-rows-altering",
    mutants.versions_stay_after_a_failed_run: "postgres-rows-altering",
    mutants.what_a_transaction_drops_is_gone_before: "postgres-rows-altering",
    mutants.a_window_closes_early: "postgres-rows-windows",
    mutants.rows_beside_their_changes: "postgres-rows-windows",
    mutants.a_lost_snapshot_is_an_altered_table: "postgres-rows-windows",
    mutants.snapshots_do_not_wait_for_standbys: "postgres-rows-waiting",
    mutants.snapshots_are_read_before_they_are_flushed: "postgres-rows-crashing",
    mutants.rows_that_moved_are_not_looked_for: "postgres-rows-moving",
    mutants.what_a_snapshot_shows_is_not_from_the_log: "postgres-rows-failover",
    mutants.what_a_blocking_snapshot_shows_does_not_come_again: "postgres-rows-blocking",
    mutants.a_planned_window_counts_as_delivered: "mongodb-signalling",
    mutants.a_window_gives_what_has_changed: "mongodb-signalling",
    mutants.a_tail_is_taken_at_its_word: "mongodb-tailing",
}
"""The histories that find a fault soon, where others need many."""
SELDOM = {
    # only one history in some hundred shows something
    mutants.rows_that_moved_are_not_looked_for: range(1500),
    mutants.what_a_transaction_drops_is_gone_before: range(2500),
    # a start that fails and is tried again, with rows that no change repeats, is seldom
    mutants.a_failed_call_is_not_rolled_back: range(150, 250),
}
SHOWN: dict[Mutant, tuple[type[Exception], ...]] = {
    mutants.the_open_transaction_outlives_its_session: (DecodeError,),
    # a planner that is half begun knows of no database
    mutants.a_failed_call_is_not_rolled_back: (AssertionError, KeyError),
}
"""What else shows a fault than the checks."""


def _trials() -> Iterator[tuple[str, Trial]]:
    for of, connector, histories in (
        (mutants.MUTANTS, "postgres", 1000),
        (mutants.OF_ROWS, "postgres-rows", 300),
        (mutants.OF_MONGODB, "mongodb", 300),
        (mutants.OF_TABLES, "changetables", 60),
    ):
        for mutant in of:
            yield (
                mutant.__name__,
                Trial(
                    mutant,
                    KINDS_OF.get(mutant, connector),
                    SELDOM.get(mutant, range(histories)),
                    SHOWN.get(mutant, (AssertionError,)),
                ),
            )


TRIALS: dict[str, Trial] = dict(_trials())
"""The trial of each mutant, by the mutant's name."""


def known() -> dict[str, tuple[str, list[int]]]:
    """Return what the file has of each mutant: the kind of the histories, and their seeds, the quickest one first."""
    entries = json.loads(FILE.read_text("utf-8"))
    return {name: (entry["connector"], entry["seeds"]) for name, entry in entries.items()}


def write(found: dict[str, list[int]]) -> None:
    """Write the seeds of some mutants to the file; those of the others stay."""
    merged = {name: entry for name, entry in known().items() if name in TRIALS} if FILE.exists() else {}
    merged |= {name: (TRIALS[name].connector, seeds) for name, seeds in found.items()}
    lines = [
        f"  {json.dumps(name)}: {json.dumps({'connector': connector, 'seeds': seeds})}"
        for name, (connector, seeds) in sorted(merged.items())
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def killer(trial: Trial, known: tuple[str, Collection[int]], fresh: Collection[int]) -> int:
    """Return the known seed that finds a mutant, and finds nothing where the product is as it is.

    Raises AssertionError that says what to do where none does; whether one of some fresh ones does tells which.
    """
    connector, numbers = known
    if connector == trial.connector:
        for seed in numbers:
            if trial.finds(seed):
                trial.run(seed)
                return seed
    other = next(filter(trial.finds, fresh), None)
    lately = f"none of {len(fresh)} others does" if other is None else f"seed {other} does"
    raise AssertionError(
        f"No known seed of {connector} finds {trial.mutant.__name__} any more: {list(numbers)}; {lately}, "
        f"of {trial.connector}. If histories mean something else than before, find the seeds anew: {ANEW}"
    )


@dataclass(frozen=True)
class Search:
    """How a search has ended: the `seeds` that find the mutant, the quickest one first, and the number of histories
    until the first of them, and until the last."""

    name: str
    seeds: list[int]
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if not self.seeds:
            return f"{self.name}: not found by {self.last:,} histories"
        return f"{self.name}: found by history {self.first:,}; {len(self.seeds)} seeds of {self.last:,} histories"


def search(name: str, trial: Trial) -> Search:
    """Look for the first seeds that find a mutant, and find nothing where the product is as it is.

    The first of them must be in the trial; for the others the search goes on behind it, where needed.
    """
    took: dict[int, float] = {}
    first = number = 0
    most = len(trial.seeds)
    while len(took) < ENOUGH and number < (FURTHER * most if took else most):
        seed, begun = trial.seeds.start + number, time.process_time()
        number += 1
        if trial.finds(seed):
            took[seed] = time.process_time() - begun
            trial.run(seed)
            first = first or number
    return Search(name, sorted(took, key=lambda seed: took[seed]), first, number)


def _searched(name: str) -> Search:
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    return search(name, TRIALS[name])


def _searches(names: Collection[str], processes: int) -> Iterator[Search]:
    """Give the search of each mutant as it ends."""
    if processes == 1:
        yield from map(_searched, names)
        return
    # those that may take longest begin first
    ordered = sorted(names, key=lambda name: -len(TRIALS[name].seeds))
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_searched, name) for name in ordered]):
            yield done.result()


def search_all(names: Collection[str], processes: int, say: Callable[[str], None]) -> bool:
    """Find the seeds of some mutants anew, and write those of each. Return True if each was found."""
    found = 0
    for one in _searches(names, processes):
        say(str(one))
        if one.seeds:
            found += 1
            write({one.name: one.seeds})
    say(f"{found} of {len(names)} mutants found")
    return found == len(names)
