"""Runs histories of altered tables on a server one after another, counts them, and shows those that end badly."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.demo.embedded import Server
from tailrace.sinks.base import Sink
from tests.fix_mysql import MySqlDatabase
from tests.fix_postgres import SETTINGS, Postgres, describe, give_back, owned, system_binaries, take
from tests.servers.jars import Unavailable
from tests.servers.mysql import VERSIONS, MySqlServer
from tests.simulation.schema.author import ALTERATIONS, Alterations
from tests.simulation.schema.binlog_history import BinlogHistory
from tests.simulation.schema.copies import Copies, MemoryCopies
from tests.simulation.schema.history import History
from tests.simulation.schema.pipeline import TABLES, Outcome
from tests.simulation.schema.rarer_alterations import RARER
from tests.simulation.schema.typed_history import TypedHistory

BAD = ("silent", "unmended", "unlisted")
"""Verdicts with which a history must not end."""


@dataclass
class Runs:
    """The results of histories; `bad` are those that ended badly, `unstopped` the number of the others in which no run
    ended with an error, `compared` and `refused` are the sums of theirs, `seconds` is the total time."""

    verdicts: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    unstopped: int = 0
    bad: list[Outcome] = field(default_factory=list)
    compared: int = 0
    refused: int = 0
    seconds: float = 0.0

    def text(self) -> str:
        """Return the counts as a line."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        total = sum(self.verdicts.values())
        return (
            f"{total} histories in {self.seconds:.0f} s: {counts}; {self.stops} stops, and none in "
            f"{self.unstopped / max(total, 1):.0%} of the histories; {self.compared} copies compared, "
            f"{self.refused} refused"
        )


Run = Callable[[int], Outcome]
"""Runs the history of a seed on a fresh database."""


def on_postgres(
    postgres: Postgres,
    copies: Callable[[Sink], Copies] = MemoryCopies,
    options: Mapping[str, str] = TABLES,
    alterations: Alterations = ALTERATIONS,
) -> Run:
    """Return a function that runs histories on a server of PostgreSQL; the other arguments are those of `History`."""

    def one(seed: int) -> Outcome:
        database = take(postgres, f"history_{secrets.token_hex(4)}")
        try:
            return History(database, seed, copies=copies, options=options, alterations=alterations).run()
        finally:
            give_back(database)

    return one


REREADS = TABLES | {
    f"tables.{name}": "reread" for name in ("added.default", "schema.narrow", "schema.recreated", "unknown.values")
}
"""Options of a sink of tables that lets the pipeline read tables again instead of ending a run."""
BINLOG_REREADS = {name: text for name, text in REREADS.items() if name != "tables.schema.recreated"}
"""Those of MySQL and MariaDB, whose log has the statement that drops a table."""


def with_rereads(postgres: Postgres, alterations: Alterations = ALTERATIONS) -> Run:
    """Return a function that runs histories on a server of PostgreSQL, whose pipeline reads tables again by itself and
    dies between steps of its writes."""

    def one(seed: int) -> Outcome:
        dice = random.Random(seed)
        return on_postgres(postgres, lambda sink: MemoryCopies(sink, dice), REREADS, alterations)(seed)

    return one


def as_typed_rows(postgres: Postgres, alterations: Alterations = ALTERATIONS) -> Run:
    """Return a function that runs histories on a server of PostgreSQL, read as typed rows."""

    def one(seed: int) -> Outcome:
        database = take(postgres, f"history_{secrets.token_hex(4)}")
        try:
            return TypedHistory(database, seed, alterations=alterations).run()
        finally:
            give_back(database)

    return one


def on_mysql(server: MySqlServer, rereads: bool = False) -> Run:
    """Return a function that runs histories on a server of MySQL or MariaDB.

    With `rereads` the pipeline reads tables again by itself, and dies between steps of its writes.
    """

    def one(seed: int) -> Outcome:
        dice = random.Random(seed)
        more: dict[str, Any] = {}
        if rereads:
            more = {"copies": lambda sink: MemoryCopies(sink, dice), "options": BINLOG_REREADS}
        database = MySqlDatabase(server, f"history_{secrets.token_hex(4)}")
        server.execute(f"CREATE DATABASE {database.name} CHARACTER SET utf8mb4")
        try:
            return BinlogHistory(database, seed, **more).run()
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {database.name}")

    return one


def run(one: Run, seeds: Iterable[int], seconds: float | None = None, show: Callable[[str], None] = print) -> Runs:
    """Run the histories of the seeds; starts no new one after `seconds`."""
    found, began = Runs(), time.monotonic()
    for seed in seeds:
        if seconds is not None and time.monotonic() - began > seconds:
            break
        outcome = one(seed)
        found.verdicts[outcome.verdict] += 1
        found.stops += len(outcome.stops)
        found.compared += outcome.compared
        found.refused += outcome.refused
        found.unstopped += not outcome.stops and outcome.verdict not in BAD
        if outcome.verdict in BAD:
            found.bad.append(outcome)
            show(outcome.text())
    found.seconds = time.monotonic() - began
    return found


def on_own_servers(
    seeds: Iterable[int], show: Callable[[str], None] = print, wanted: str = ""
) -> Iterator[tuple[str, Runs]]:
    """Run the histories on each available server with `wanted` in its name, started for them; yield its name and the
    results.

    Those of PostgreSQL are the embedded one and, if installed, the system's.
    """
    for name, binaries in {"embedded": None, "of the system": system_binaries()}.items():
        if wanted in f"PostgreSQL {name}" and (name == "embedded" or binaries is not None):
            with Server(binaries, SETTINGS) as server, owned(describe(server.dsn())) as postgres:
                yield f"PostgreSQL {name}", run(on_postgres(postgres), seeds, show=show)
                yield f"PostgreSQL {name}, rereads", run(with_rereads(postgres), seeds, show=show)
                yield f"PostgreSQL {name}, rarer", run(on_postgres(postgres, alterations=RARER), seeds, show=show)
                yield f"PostgreSQL {name}, typed", run(as_typed_rows(postgres, RARER), seeds, show=show)
    for version in VERSIONS:
        if wanted not in version.name:
            continue
        try:
            made = MySqlServer(version)
        except Unavailable as reason:
            show(str(reason))
            continue
        with made as started:
            yield version.name, run(on_mysql(started), seeds, show=show)
            yield f"{version.name}, rereads", run(on_mysql(started, rereads=True), seeds, show=show)
