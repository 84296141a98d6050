"""A pipeline into tables whose driver is killed repeatedly; in the end every table is compared with its source."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

from tailrace.demo.embedded import THROWAWAY
from tests.chaos import lake_check, progress
from tests.chaos.changes import Row, key_of, row_of
from tests.chaos.check import Faults
from tests.chaos.lake_check import Expected
from tests.chaos.lake_writers import SCHEMA, Writer, completed, fill, keys_of, make_tables, name_of
from tests.chaos.oracle import Oracle
from tests.chaos.postgres import Crashable
from tests.chaos.process import Tailrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKS: Mapping[str, Callable[[Expected, str, Any, Faults], None]] = {
    "latest": lake_check.latest,
    "history": lake_check.history,
    "log": lake_check.log,
}
MOMENTS = {"data": 4.0, "commit": 3.0, "moment": 2.0, "start": 1.0, "random": 2.0}
"""Moments to kill the driver, with their weights: a table has files that no commit names yet; a table has a new commit;
the batch's moment is recorded, but Spark has not committed the batch; the run starts; any time."""
VICTIMS = ("driver", "jvm", "all")
"""Victims: only the Python process, after which the JVM continues for a moment; only the JVM; the
whole process tree."""


@dataclass(frozen=True)
class Options:
    """The options of a run. `changes` are written in all, while `kills` kills are made."""

    seed: int
    mode: str = "latest"
    kills: int = 40
    tables: int = 50
    changes: int = 2_000_000
    patience: float = 300.0
    folder: Path | None = None


@dataclass
class Told:
    """The events and the findings of a run."""

    kills: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    changes: int = 0
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0


class Stuck(Exception):
    """Nothing has been committed for too long, or a run does not end."""


class LakeMachine:
    """A pipeline into tables of one mode, as a context manager. `run` does everything."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder or Path(tempfile.mkdtemp(prefix="tailrace-chaos-"))
        self.told = Told()
        self._choice = random.Random(options.seed)
        self._stack = ExitStack()
        self._server = Crashable(settings={**THROWAWAY, "max_wal_size": "2GB"})
        self._names = [name_of(number) for number in range(options.tables)]

    def __enter__(self) -> LakeMachine:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        if not self.told.findings and self.options.folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self) -> None:
        options, stack = self.options, self._stack
        self.folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(self._server)
        self._dsn = self._server.dsn()
        self._keys = {name: keys_of(number) for number, name in enumerate(self._names)}
        self._oracle = Oracle(self._dsn, SCHEMA, self._keys)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            make_tables(connection, options.tables)
            fill(connection, options.tables)
        self._first = self._rows()
        self._oracle.create()
        self.lake, self.checkpoint = self.folder / "tables", self.folder / "checkpoint"
        entries = {
            "source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "source.database.hostname": self._server.host,
            "source.database.port": str(self._server.port),
            "source.database.user": self._server.user,
            "source.database.password": self._server.password,
            "source.database.dbname": "postgres",
            "source.slot.name": "lake",
            "source.publication.name": "lake",
            "source.topic.prefix": "lake",
            "source.schema.include.list": SCHEMA,
            "sink.type": "tables",
            "sink.tables.path": str(self.lake),
            "sink.tables.mode": options.mode,
        }
        configuration = self.folder / "application.properties"
        configuration.write_text("".join(f"debezium.{name}={text}\n" for name, text in entries.items()))
        self._tailrace = Tailrace(self.folder, [str(configuration), "--checkpoint", str(self.checkpoint)])
        stack.callback(self._tailrace.kill)
        self._writer = Writer(self._dsn, options.tables, options.seed)

    def _rows(self) -> dict[str, dict[str, Row]]:
        """Return the present rows of all tables."""
        found: dict[str, dict[str, Row]] = {}
        with psycopg.connect(self._dsn, row_factory=psycopg.rows.dict_row) as connection:
            for name, keys in self._keys.items():
                cursor = connection.execute(f"select * from {SCHEMA}.{name}".encode())
                found[name] = {key_of({one: row[one] for one in keys}): row_of(row) for row in cursor}
        return found

    # --- kills ---------------------------------------------------------------------------------------------------

    def run(self) -> Told:
        """Kill, let the rest be written, and return the result; `compare` examines the tables."""
        options, began = self.options, time.monotonic()
        try:
            self._read_first()
            for number in range(sum(self.told.kills.values()), options.kills):
                self._writer.write(options.changes * (number + 1) // options.kills - self._writer.written)
                self._kill_once()
            self._writer.write(options.changes - self._writer.written)
            self._writer.wait()
            self._finish()
        except Stuck as stuck:
            self.told.findings.append(f"{stuck}\n{self._tailrace.said[-3000:]}")
        self.told.findings += self._writer.failures
        self.told.changes = self._writer.written
        self.told.batches = progress.newest_commit(self.checkpoint) + 1
        self.told.seconds = time.monotonic() - began
        return self.told

    def _read_first(self) -> None:
        """Let the snapshot be read, without changes meanwhile; half of all runs have a kill during it."""
        self._tailrace.start()
        if self._choice.random() < 0.5:
            self._pass(self._choice.uniform(5, 15))
            self._kill("snapshot", self._choice.choice(VICTIMS))
        self._until(lambda: not self._reads_first(), "the snapshot was not read")

    def _reads_first(self) -> bool:
        found = progress.offset(self.checkpoint, progress.newest_commit(self.checkpoint))
        return found is None or "snapshot" in found

    def _kill_once(self) -> None:
        moment = self._choice.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        victim = self._choice.choice(VICTIMS)
        if moment == "start":
            self._pass(self._choice.uniform(0.5, 8))
        else:
            self._until_batch()
            if moment == "random":
                self._pass(self._choice.uniform(0, 6))
            else:
                self._wait_for(moment)
        self._kill(moment, victim)

    def _kill(self, moment: str, victim: str) -> None:
        """Kill and restart."""
        self._tailrace.remember()
        if victim == "all":
            self._tailrace.kill()
        else:
            for process in self._tailrace.part(victim):
                with suppress(psutil.Error):
                    process.kill()
        self.told.kills[f"{moment}/{victim}"] += 1
        if self._tailrace.wait(self.options.patience) is None:
            raise Stuck(f"the run has not ended after a kill of {victim} at {moment}")
        self._tailrace.start()

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._tailrace.ended() is None:
            time.sleep(0.02)

    def _until_batch(self) -> None:
        """Wait until the run has committed a batch. Raises Stuck if it does not, or if it ends by itself."""
        before = progress.newest_commit(self.checkpoint)
        self._until(lambda: progress.newest_commit(self.checkpoint) > before, "no batch was committed")

    def _wait_for(self, moment: str) -> None:
        """Wait for the moment. Once nothing more is written, any moment will do."""
        before = self._seen(moment)
        with suppress(Stuck):
            self._until(lambda: bool(self._seen(moment) - before), moment, seconds=20)

    def _seen(self, moment: str) -> set[str]:
        """Count the traces of a moment: files of tables, or commits of tables or of the table of positions."""
        if moment == "moment":
            return {path.name for path in (self.lake / "tailrace_positions" / "_delta_log").glob("*.json")}
        files = self.lake.glob(f"{SCHEMA}.*/*.*" if moment == "data" else f"{SCHEMA}.*/_delta_log/*.json")
        return {f"{path.parent}/{path.name}" for path in files if not path.name.startswith(".")}

    def _until(self, reached: Callable[[], bool], otherwise: str, seconds: float | None = None) -> None:
        deadline = time.monotonic() + (self.options.patience if seconds is None else seconds)
        while not reached():
            code = self._tailrace.ended()
            if code is not None:
                # A JVM that has outlived its driver may have conflicted with the first batch.
                self.told.exits[str(code)] += 1
                if self.told.exits[str(code)] > self.options.kills:
                    raise Stuck(f"the run ends by itself with the exit code {code}")
                self._tailrace.start()
            if time.monotonic() > deadline:
                raise Stuck(f"{otherwise} within {self.options.patience:.0f} s")
            time.sleep(0.01)

    def _finish(self) -> None:
        """Let everything be written."""
        self._tailrace.terminate()
        if self._tailrace.wait(self.options.patience) is None:
            raise Stuck("the run has not ended after SIGTERM")
        self._tailrace.start("--once")
        code = self._tailrace.wait(10 * self.options.patience)
        if code != 0:
            raise Stuck(f"the exit code with --once is {code}")

    # --- the tables ----------------------------------------------------------------------------------------------

    def compare(self, spark: SparkSession) -> None:
        """Compare every table with its source, and add differences to the findings."""
        expected = Expected(self._keys, self._first, self._rows())
        state = {name: dict(rows) for name, rows in self._first.items()}
        for change in completed((change for _, change in self._oracle.changes()), state):
            expected.add(change)
        faults = Faults()
        for name in self._names:
            if state[name] != expected.rows[name]:
                faults.add("the machine itself is wrong", name)
            check = CHECKS[self.options.mode]
            check(expected, name, self._counted(spark, name), faults)
        if faults:
            self.told.findings.append(str(faults))

    def _counted(self, spark: SparkSession, name: str) -> Iterator[Mapping[str, Any]]:
        frame = spark.read.format("delta").load(str(self.lake / f"{SCHEMA}.{name}"))
        for row in frame.toArrow().to_pylist():
            self.told.rows += 1
            yield row


def line(options: Options, told: Told) -> str:
    """Return a run as a line."""
    kills = ", ".join(f"{name} {count}" for name, count in sorted(told.kills.items()))
    exits = ", ".join(f"{name} ×{count}" for name, count in sorted(told.exits.items())) or "none"
    result = "FOUND" if told.findings else "exact"
    return (
        f"seed {options.seed} {options.mode}: {options.tables} tables, {told.changes:,} changes, {told.rows:,} rows, "
        f"{told.batches} batches, {sum(told.kills.values())} kills, {told.seconds:.0f} s: {result} "
        f"({kills}; exits: {exits})"
    )
