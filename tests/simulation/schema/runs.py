"""Runs histories of altered tables on a server one after another, counts them, and shows those that end badly."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.demo.embedded import Server
from tailrace.sinks.base import Sink
from tests.fix_postgres import SETTINGS, Postgres, describe, give_back, owned, take
from tests.simulation.schema.copies import Copies, MemoryCopies
from tests.simulation.schema.history import TABLES, History, Outcome

BAD = ("silent", "unmended", "unlisted")
"""Verdicts with which a history must not end."""


@dataclass
class Runs:
    """The results of histories; `bad` are those that ended badly, `seconds` is the total time."""

    verdicts: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    bad: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def text(self) -> str:
        """Return the counts as a line."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        return f"{sum(self.verdicts.values())} histories in {self.seconds:.0f} s: {counts}; {self.stops} stops"


def run(
    postgres: Postgres,
    seeds: Iterable[int],
    seconds: float | None = None,
    show: Callable[[str], None] = print,
    copies: Callable[[Sink], Copies] = MemoryCopies,
    options: Mapping[str, str] = TABLES,
) -> Runs:
    """Run the histories of the seeds, with copies and options of the sink as in `History`.

    No history starts after `seconds`.
    """
    found, began = Runs(), time.monotonic()
    for seed in seeds:
        if seconds is not None and time.monotonic() - began > seconds:
            break
        database = take(postgres, f"history_{secrets.token_hex(4)}")
        try:
            outcome = History(database, seed, copies=copies, options=options).run()
        finally:
            give_back(database)
        found.verdicts[outcome.verdict] += 1
        found.stops += len(outcome.stops)
        if outcome.verdict in BAD:
            found.bad.append(outcome)
            show(outcome.text())
    found.seconds = time.monotonic() - began
    return found


def on_own_server(
    binaries: Path | None,
    seeds: Iterable[int],
    show: Callable[[str], None] = print,
    copies: Callable[[Sink], Copies] = MemoryCopies,
    options: Mapping[str, str] = TABLES,
) -> Runs:
    """Run the histories on a server of their own: the embedded one, or that of the given binaries."""
    with Server(binaries, SETTINGS) as server, owned(describe(server.dsn())) as postgres:
        return run(postgres, seeds, show=show, copies=copies, options=options)
