"""`python -m tests.simulation`: run histories on all cores, and print the seeds of failures.

`python -m tests.simulation schema`: run histories of altered tables on real servers of PostgreSQL, MySQL and MariaDB,
by default 100 on each, and print those that end badly; with --server on those whose names have this text.

With --mutants, search again for the seeds by which tests find the mutants, and write them to their file.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial

from tests.simulation.course import Totals, run
from tests.simulation.kinds import KINDS
from tests.simulation.schema.runs import on_own_servers
from tests.simulation.trials import TRIALS, search_all

BLOCK = 200


def block(connector: str, first: int, last: int) -> tuple[Totals, str]:
    """Run the histories `[first, last)`; return their totals, and the trace of the first failure or ""."""
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    try:
        return run(KINDS[connector], range(first, last)), ""
    except BaseException:
        return Totals(), traceback.format_exc()


def schema(seeds: range, server: str) -> int:
    """Run histories of altered tables on each available server with `server` in its name; return the number that ended
    badly."""
    bad = 0
    for name, found in on_own_servers(seeds, wanted=server):
        print(f"{name}: {found.text()}", flush=True)
        bad += len(found.bad)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("schema",), help="histories of altered tables, on real servers")
    parser.add_argument("--connector", choices=KINDS, default="postgres")
    parser.add_argument("--histories", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--server", default="", metavar="NAME", help="only servers with this in their name")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutants", nargs="*", choices=TRIALS, metavar="NAME", help="these, or all of them")
    asked = parser.parse_args()
    if asked.what == "schema":
        return 1 if schema(range(asked.seed, asked.seed + (asked.histories or 100)), asked.server) else 0
    if asked.mutants is not None:
        is_found = search_all(asked.mutants or list(TRIALS), asked.processes, partial(print, flush=True))
        return 0 if is_found else 1
    began, totals, failed = time.monotonic(), Totals(), 0
    last = asked.seed + (asked.histories or 100_000)
    firsts = range(asked.seed, last, BLOCK)
    with ProcessPoolExecutor(asked.processes) as pool:
        for number, (found, text) in enumerate(
            pool.map(partial(block, asked.connector), firsts, [min(first + BLOCK, last) for first in firsts]), 1
        ):
            for one in fields(Totals):
                setattr(totals, one.name, getattr(totals, one.name) + getattr(found, one.name))
            if text:
                failed += 1
                print(text, flush=True)
            if number % 50 == 0 or number == len(firsts):
                print(f"{time.monotonic() - began:.0f} s: {totals}, {failed} blocks with a failure", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
