"""`python -m tests.simulation`: run histories, on all cores, and print the seed of one that fails."""

from __future__ import annotations

import argparse
import logging
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial

from tests.simulation.changetables import TablesHistory
from tests.simulation.course import Told, Totals, run
from tests.simulation.history import History
from tests.simulation.mongodb import MongoHistory
from tests.simulation.rows import RowsHistory

BLOCK = 200
KINDS: dict[str, Callable[[int], Told]] = {
    "postgres": History,
    "postgres-rows": RowsHistory,
    "mongodb": MongoHistory,
    "changetables": TablesHistory,
}


def block(connector: str, first: int, last: int) -> tuple[Totals, str]:
    """The totals of the histories `[first, last)`, and what the first one that failed has to say."""
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    try:
        return run(KINDS[connector], range(first, last)), ""
    except BaseException:
        return Totals(), traceback.format_exc()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--connector", choices=KINDS, default="postgres")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    began, totals, failed = time.monotonic(), Totals(), 0
    last = asked.seed + asked.histories
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
