"""`python -m tests.chaos` kills parts of a running pipeline at random, and compares its output with the source."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.chaos import lake
from tests.chaos.machine import PATIENCE, SOURCES, Machine, Options, Round
from tests.chaos.victims import CLUSTER, VICTIMS

HEAD = f"{'round':>5} {'seed':>10} {'connector':<10} {'sink':<6} {'order':<6} {'s':>5} {'kills':>5} {'events':>9} "
HEAD += f"{'reads':>8} {'repeats':>8}  result  by victim"


def main() -> int:
    """Run the machine with the options of the command line. Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--connector", choices=tuple(SOURCES), default="postgres")
    parser.add_argument("--kills", type=int, default=200, help="how many (200)")
    parser.add_argument("--each", type=int, default=20, help="kills of a round; then everything is compared (20)")
    parser.add_argument("--seed", type=int, default=None, help="what the choices are made of; a new one by default")
    parser.add_argument("--seconds", type=float, default=0, help="no further kill after so many seconds")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds without a commit that are too many")
    parser.add_argument("--sink", choices=("file", "kafka", "tables"), default="file")
    parser.add_argument("--mode", choices=tuple(lake.CHECKS), default="latest", help="of the sink tables")
    parser.add_argument("--tables", type=int, default=50, help="how many tables the sink tables keeps (50)")
    parser.add_argument("--changes", type=int, default=2_000_000, help="how many changes they get (2,000,000)")
    parser.add_argument("--order", choices=("topic", "key"), default="topic", help="event.order")
    parser.add_argument("--victims", default="", help=f"only these, of {', '.join((*VICTIMS, *CLUSTER))}")
    parser.add_argument("--no-signals", action="store_true", help="no incremental snapshots")
    parser.add_argument("--cluster", action="store_true", help="on a stand-alone Spark cluster, and kill its parts too")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when nothing was found")
    parser.add_argument("--folder", type=Path, default=None, help="where everything is put; a temporary one by default")
    given = parser.parse_args()
    if given.order != "topic" and given.connector in ("sqlserver", "db2"):
        parser.error(f"--order {given.order}: {given.connector} keeps the order of commits only")
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    if given.sink == "tables":
        # A batch of many tables takes longer.
        sizes = (given.kills, given.tables, given.changes, 5 * given.patience)
        return 0 if run_tables(lake.Options(seed, given.mode, *sizes, given.folder)) else 1
    options = Options(
        seed=seed,
        connector=given.connector,
        kills=given.kills,
        each=given.each,
        sink=given.sink,
        order=given.order,
        only=tuple(name.strip() for name in given.victims.split(",") if name.strip()),
        seconds=given.seconds,
        patience=given.patience,
        signals=not given.no_signals,
        cluster=given.cluster,
        keep=given.keep,
        folder=given.folder,
    )
    return 0 if run(options) else 1


def run(options: Options) -> bool:
    """Run the machine once, with a line for each round. Return True if nothing was found."""
    with Machine(options) as machine:
        print(f"seed {options.seed}, in {machine.folder}", flush=True)
        print(HEAD, flush=True)
        for one in machine.rounds():
            print(line(options, one), flush=True)
            if one.findings:
                tell(options, one, machine.folder)
        return not machine.failed


def run_tables(options: lake.Options) -> bool:
    """Run once into tables. Return True if nothing was found."""
    from tailrace.sinks.tables.sink import TablesSink
    from tailrace.spark.session import session

    with lake.LakeMachine(options) as machine:
        print(f"seed {options.seed}, in {machine.folder}", flush=True)
        told = machine.run()
        if not told.findings:
            spark = session(TablesSink.settings, jars=TablesSink.jars, app_name="tailrace chaos")
            machine.compare(spark)
            spark.stop()
        print("\n\n".join((lake.line(options, told), *told.findings)), flush=True)
        return not told.findings


def line(options: Options, one: Round) -> str:
    """Return a round as a line of the table; a star marks a cluster."""
    by_victim = ", ".join(f"{name} {count}" for name, count in sorted(one.counts.items()))
    exits = ", ".join(f"{name} ×{count}" for name, count in sorted(one.exits.items()))
    connector = options.connector + ("*" if options.cluster else "")
    result = "FOUND" if one.findings else "exact"
    return (
        f"{one.number:>5} {options.seed:>10} {connector:<10} {options.sink:<6} {options.order:<6} {one.seconds:>5.0f} "
        f"{len(one.kills):>5} {one.events:>9,} {one.reads:>8,} {one.repeats:>8,}  "
        f"{result:<6}  {by_victim}; exits: {exits or 'none'}"
    )


def tell(options: Options, one: Round, folder: Path) -> None:
    """Print everything about a round with a finding."""
    print(f"\nfound with --seed {options.seed} in round {one.number}; everything is in {folder}", flush=True)
    for kill in one.kills:
        print(f"  {kill}")
    for finding in one.findings:
        print(f"\n{finding}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
