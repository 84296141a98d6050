"""Trials of mutants: the histories that must find each mutant, and the seeds known to find it.

`python -m tests.simulation --mutants` searches for these seeds and writes them to a file. A test runs them. The history
of a seed depends on the generator and on the product's calls of its server. When no seed of a mutant finds it any more,
the search must be repeated.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import DecodeError, PrerequisiteError
from tests.simulation import mutants, seeds
from tests.simulation.mutants import Mutant

FILE = Path(__file__).with_name("seeds.json")
ANEW = "make simulate ARGS=--mutants"
"""The command that repeats the search for seeds."""
ENOUGH = 3
"""Number of seeds that are kept for a mutant."""
FURTHER = 4
"""Length of a search for further seeds, as a multiple of the trial's."""


@dataclass(frozen=True)
class Trial:
    """A mutant, the kind of histories that must find it, and the errors by which they find it.

    At least one of the `seeds` must find it.
    """

    mutant: Mutant
    connector: str
    seeds: range
    shown: tuple[type[Exception], ...] = (AssertionError,)

    def finds(self, seed: int) -> bool:
        """Return True if the history of the seed finds the mutant. Other errors, of the mutant itself, are raised."""
        try:
            with self.mutant():
                self.run(seed)
        except self.shown:
            return True
        return False

    def run(self, seed: int) -> None:
        """Run the history of the seed without the mutant."""
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
    mutants.a_blocking_snapshot_does_not_show_what_was_delivered: "binlog-rows-lagging",
    mutants.a_window_does_not_show_what_was_delivered: "binlog-rows-lagging",
    mutants.a_table_that_is_altered_back_looks_unaltered: "binlog-returning",
    mutants.definitions_stay_after_a_failed_run: "binlog-refusing",
    mutants.statements_are_not_followed: "binlog-altering",
    mutants.definitions_come_from_the_catalog_of_today: "binlog-altering",
    mutants.a_planned_window_counts_as_delivered: "mongodb-signalling",
    mutants.a_window_gives_what_has_changed: "mongodb-signalling",
    mutants.a_tail_is_taken_at_its_word: "mongodb-tailing",
}
"""Mutants that a special kind of histories finds sooner than the general one."""
SELDOM = {
    # only one of several hundred histories finds it
    mutants.rows_that_moved_are_not_looked_for: range(1500),
    mutants.what_a_transaction_drops_is_gone_before: range(2500),
    # rarely a start fails and is tried again while there are rows that no change repeats
    mutants.a_failed_call_is_not_rolled_back: range(150, 250),
}
SHOWN: dict[Mutant, tuple[type[Exception], ...]] = {
    mutants.the_open_transaction_outlives_its_session: (DecodeError,),
    # rows do not fit what is known of their table
    mutants.a_table_that_is_altered_back_looks_unaltered: (AssertionError, PrerequisiteError),
    mutants.definitions_stay_after_a_failed_run: (AssertionError, PrerequisiteError),
    mutants.statements_are_not_followed: (AssertionError, PrerequisiteError),
    mutants.definitions_come_from_the_catalog_of_today: (AssertionError, PrerequisiteError),
    # where another server has no event, or another one
    mutants.another_server_has_the_same_files: (AssertionError, DecodeError),
    # a half-started planner knows no database
    mutants.a_failed_call_is_not_rolled_back: (AssertionError, KeyError),
}
"""Further errors by which mutants are found."""


def _trials() -> Iterator[tuple[str, Trial]]:
    for of, connector, histories in (
        (mutants.MUTANTS, "postgres", 1000),
        (mutants.OF_ROWS, "postgres-rows", 300),
        (mutants.OF_MONGODB, "mongodb", 300),
        (mutants.OF_TABLES, "changetables", 60),
        (mutants.OF_BINLOG, "binlog", 300),
        (mutants.OF_BINLOG_ROWS, "binlog-rows", 300),
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
    """Return the file's entries by mutant: the kind of histories, and their seeds, the quickest first."""
    entries = json.loads(FILE.read_text("utf-8"))
    return {name: (entry["connector"], entry["seeds"]) for name, entry in entries.items()}


def write(found: dict[str, list[int]]) -> None:
    """Write the seeds of some mutants to the file, and keep those of others."""
    merged = {name: entry for name, entry in known().items() if name in TRIALS} if FILE.exists() else {}
    merged |= {name: (TRIALS[name].connector, seeds) for name, seeds in found.items()}
    lines = [
        f"  {json.dumps(name)}: {json.dumps({'connector': connector, 'seeds': seeds})}"
        for name, (connector, seeds) in sorted(merged.items())
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def killer(trial: Trial, known: tuple[str, Collection[int]], fresh: Collection[int]) -> int:
    """Return the first known seed that finds a mutant; its history must pass without the mutant.

    If none finds it, raises AssertionError with the remedy, and says whether one of the `fresh` seeds does.
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
    """The result of a search: the `seeds` that find the mutant, the quickest first, and the number of histories until
    the first of them and until the end."""

    name: str
    seeds: list[int]
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if not self.seeds:
            return f"{self.name}: not found by {self.last:,} histories"
        return f"{self.name}: found by history {self.first:,}; {len(self.seeds)} seeds of {self.last:,} histories"


def search(name: str, trial: Trial) -> Search:
    """Search for the first seeds that find a mutant; their histories must pass without the mutant.

    The first seed must be in the trial's range; for the others the search goes on after it if necessary.
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
    """Yield the search of each mutant as it ends."""
    if processes == 1:
        yield from map(_searched, names)
        return
    # those that may take longest start first
    ordered = sorted(names, key=lambda name: -len(TRIALS[name].seeds))
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_searched, name) for name in ordered]):
            yield done.result()


def search_all(names: Collection[str], processes: int, say: Callable[[str], None]) -> bool:
    """Search again for the seeds of some mutants, and write them. Return True if each mutant was found."""
    found = 0
    for one in _searches(names, processes):
        say(str(one))
        if one.seeds:
            found += 1
            write({one.name: one.seeds})
    say(f"{found} of {len(names)} mutants found")
    return found == len(names)
