"""A runner of golden cases against the product: `python -m tests.golden.runner [DIR] [--spark]`.

Every case runs in this process, or as a query of a given Spark session (see stream.py). For every case it prints that
it is equal, or its first difference, or why it was not run; then `N of M cases equal`. The exit code is 1 if a case is
not equal and not listed in expected_failures.toml, or equal and listed there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import pymysql
import pytds
from pymongo.errors import PyMongoError
from pyspark.sql import SparkSession

from tailrace.columns.row import COLUMNS
from tailrace.demo.embedded import THROWAWAY, Server
from tdsserver.process import TestServer
from tests import fix_invariant, fix_spark
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Database, Postgres, describe, give_back, owned, system_binaries, take
from tests.golden import case as cases
from tests.golden import db2_runner, mongo_runner, mysql_runner, script, tds_runner
from tests.golden.accept import Catalog, fitted_reason, value_reason
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS
from tests.golden.record import PLACES, AnyReader
from tests.golden.shapes import Shapes
from tests.golden.stream import Failed, Late, Stream, opened
from tests.golden.wire import Reader
from tests.servers.derby import Derby
from tests.servers.jars import Unavailable as NoJars
from tests.servers.mysql import MySqlServer
from tests.servers.registry import Registry
from tests.servers.secantus import Unavailable

HERE = Path(__file__).parent
SHIPPED = HERE / "cases"
RECORDED = HERE.parents[2] / "shared" / "golden"
DATABASE = "golden"
SERVER = {**THROWAWAY, "max_prepared_transactions": "20"}
"""The settings of a server for golden cases; recordings are made with the same."""
RECORDED_ON = 15
CHUNK_ROWS = 1000
"""A table of at most this many rows is always read as one chunk, in the server's order."""


REFUSALS = ((18, "unpublished generated columns"),)
"""Workloads that a server refuses from a major version on, by its error messages; nothing can be compared there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case: equal, or its differences, one of each kind, or a reason why it was not run."""

    case: Case
    differences: tuple[str, ...] = ()
    skipped: str | None = None
    seconds: float = 0.0

    @property
    def difference(self) -> str | None:
        """The first difference; None if there is none."""
        return self.differences[0] if self.differences else None


def default_cases() -> Path:
    """Return the folder of recordings beside the repository if it exists, else the one in the repository."""
    return RECORDED if RECORDED.is_dir() else SHIPPED


def all_cases() -> list[Case]:
    """Return the cases in the repository and those beside it; the latter replace cases of the same name."""
    found = {case.name: case for folder in (SHIPPED, default_cases()) for case in cases.find(folder)}
    return [found[name] for name in sorted(found)]


def expected_failures() -> dict[str, str]:
    """Return the cases that are known not to be equal, with the reasons."""
    return {str(k): str(v) for k, v in tomllib.loads((HERE / "expected_failures.toml").read_text("utf-8")).items()}


@contextmanager
def server() -> Iterator[Postgres]:
    """Run a private PostgreSQL: the system's if it has the recordings' version, else the embedded one."""
    binaries = system_binaries()
    if binaries is not None and not binaries.parent.name.startswith(str(RECORDED_ON)):
        binaries = None
    with Server(binaries, SERVER) as running, owned(describe(running.dsn())) as found:
        yield found


def cannot_run(case: Case, postgres: Postgres) -> str | None:
    """Return why a case cannot be judged on this server; None if it can."""
    if case.database != "postgresql":
        return case.database
    missing = sorted(case.extensions() - postgres.extensions)
    if missing:
        return f"the server has no extension {', '.join(missing)}"
    return None


def run(case: Case, postgres: Postgres, spark: SparkSession | None = None) -> Outcome:
    """Run one case on a fresh database and compare."""
    started = time.monotonic()
    skipped = cannot_run(case, postgres)
    if skipped:
        return Outcome(case, skipped=skipped)
    if case.unknown_knobs:
        return Outcome(case, (f"the runner does not know {', '.join(case.unknown_knobs)}",))
    database = take(postgres, DATABASE)
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as folder:
            found = _run(case, database, spark, Path(folder))
    except (Failed, fix_invariant.Ahead) as error:
        found = (str(error),)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if any(postgres.version >= version and words in text for version, words in REFUSALS):
            return Outcome(case, skipped=f"PostgreSQL {postgres.version} refuses its statements: {text}")
        found = (f"the server refuses a statement of the case: {text}",)
    finally:
        give_back(database)
    return Outcome(case, found, seconds=time.monotonic() - started)


def run_mongo(case: Case, mongo: Mongo, spark: SparkSession | None = None) -> Outcome:
    """Run one case of MongoDB on an emptied server and compare."""
    started = time.monotonic()
    if case.unknown_knobs:
        return Outcome(case, (f"the runner does not know {', '.join(case.unknown_knobs)}",))
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as folder:
            found = _kinds(mongo_runner.run(case, mongo, spark, Path(folder), recorder(case)))
    except Failed as error:
        found = (str(error),)
    except PyMongoError as error:
        found = (f"the server refuses a step of the case: {' '.join(str(error).split())}",)
    return Outcome(case, found, seconds=time.monotonic() - started)


def recorder(case: Case) -> dict[str, str]:
    """Return the options that make events name the recording's version, and use the converter of its format."""
    options = {}
    with gzip.open(case.path / "expected.jsonl.gz", "rt", encoding="utf-8") as text:
        version = next(filter(None, map(cases.version, text)), None)
    if version:
        options["event.version.string"] = version
    if case.knobs.get("format") in VALUE_CONVERTERS:
        options["value.converter"] = VALUE_CONVERTERS[case.knobs["format"]]
    return options


def options(case: Case, postgres: Postgres, folder: Path, registry: Registry) -> dict[str, str]:
    """Return the case's configuration, and the version of the recording if it names one."""
    variables = {
        "PGHOST": postgres.host,
        "PGPORT": str(postgres.port),
        "PGUSER": postgres.user,
        "PGPASSWORD": postgres.password,
        "PGDATABASE": DATABASE,
        "OFFSETS": str(folder / "offsets.dat"),
        "REGISTRY": registry.apicurio,
    }
    filled = case.options(variables) | recorder(case)
    if "signal.data.collection" in filled:
        # One chunk for each window, as the recorded connector reads them.
        filled["incremental.snapshot.window.chunks"] = "1"
    if case.knobs.get("record") == "true":
        filled["row.columns"] = ",".join((*COLUMNS, *PLACES))
    return filled


VALUE_CONVERTERS = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "cloudevents": "io.debezium.converters.CloudEventsConverter",
}
"""The converter for each `#@ format` of a recording."""


def _run(case: Case, database: Database, spark: SparkSession | None, folder: Path) -> tuple[str, ...]:
    postgres = database.server
    expected = case.expected()
    heartbeats = case.properties.get("topic.heartbeat.prefix") or case.properties.get(
        "heartbeat.topics.prefix", HEARTBEATS
    )
    with database.connect() as setup, postgres.at_hand() as looking, Registry() as registry:
        for item in script.split(case.read("setup.sql")):
            if isinstance(item, script.Statement):
                script.execute(setup, item)
        types = _types(setup)
        given = options(case, postgres, folder, registry)
        reader = AnyReader(lambda: registry.schemas) if case.knobs.get("format") == "connect" else Reader()
        stream = opened(spark, "postgres", given, folder / "checkpoint", lambda: _flushed(looking), reader)
        slot = case.properties.get("slot.name", "debezium")
        with fix_invariant.watched(postgres.dsn(), slot, stream.committed, looking):
            stream.start()
            try:
                # The snapshot, if any, is over, and the slot is read.
                stream.catch_up()
                if "heartbeat.action.query" in case.properties:
                    # The recorded connector had sent it before the first statement, and each commit shows in the next.
                    stream.wait(lambda: any(found.topic.startswith(heartbeats) for found in stream.records()), 60)
                    stream.catch_up()
                if case.knobs.get("nostream") != "true":
                    _work(stream, postgres, case)
                stream.catch_up()
                stream.beat(heartbeats, expected)
                if "exit" in case.knobs:
                    return ("the recorded connector ended with an error, and the query did not",)
            except Failed as error:
                if "exit" not in case.knobs or isinstance(error, Late):
                    raise
            finally:
                stream.stop()
        types |= _types(setup)
    notifications = case.properties.get("notification.sink.topic.name", NOTIFICATIONS)
    shaped = None if case.shapes is None else partial(Shapes, heartbeats, notifications, fields=case.shapes)
    reason = fitted_reason if case.cuts else value_reason
    terms = Terms(CHUNK_ROWS, heartbeats, notifications, Catalog(types), shaped, reason)
    return _kinds([*differences(expected, stream.records(), terms), *_subjects(case, registry)])


def _subjects(case: Case, registry: Registry) -> list[str]:
    """Return the differences between the recorded and the registered schemas, subject by subject.

    The recorded converter registers a text once. Here each worker does, so a text may be under further subjects.
    """
    rows = [json.loads(line) for line in case.read("schemas.jsonl").splitlines()]
    wanted = _by_subject((row["subject"], row["schema"]) for row in rows)
    found = _by_subject((version.subject, version.schema) for version in registry.versions)
    texts = {schema for schemas in wanted.values() for schema in schemas}
    return [
        f"schemas of {subject}: {wanted.get(subject)} expected, got {found.get(subject)}"
        for subject in sorted(wanted.keys() | found.keys())
        if wanted.get(subject) != found.get(subject) and (subject in wanted or not texts.issuperset(found[subject]))
    ]


def _by_subject(rows: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the schemas of each subject in order, without those of heartbeats, which are optional."""
    found: dict[str, list[str]] = {}
    for subject, schema in rows:
        if not subject.startswith(HEARTBEATS):
            found.setdefault(subject, []).append(schema)
    return found


def _kinds(found: Iterable[str]) -> tuple[str, ...]:
    """Return one difference of each kind, regardless of record and element numbers, since a second
    tells nothing new."""
    kinds: dict[str, str] = {}
    for text in found:
        kinds.setdefault(re.sub(r"\[\d+\]", "[]", text.partition(": ")[0]), text)
    return tuple(kinds.values())


def _types(connection: psycopg.Connection[Any]) -> dict[tuple[str, str, str], str]:
    """Return the names of the present types of all columns, except in the server's own tables."""
    query = (
        "select n.nspname, c.relname, a.attname, t.typname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " join pg_namespace n on n.oid = c.relnamespace join pg_type t on t.oid = a.atttypid where a.attnum > 0"
        " and c.oid >= 16384"
    )
    return {(schema, table, column): name for schema, table, column, name in connection.execute(query)}


def _flushed(connection: psycopg.Connection[Any]) -> int:
    """Return the end of the log on disk, which is after all commits, because they are synchronous."""
    row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    return int(row[0])


def _work(stream: Stream, postgres: Postgres, case: Case) -> None:
    """Run the workload, statement by statement, in one session, and follow its directives."""
    with postgres.connect(DATABASE) as session:
        for item in case.workload():
            if isinstance(item, script.Statement):
                script.execute(session, item)
            elif item.name == "sleep":
                stream.pause(float(item.argument))
            elif item.name == "stop":
                stream.catch_up()
                stream.stop()
            elif item.name == "start":
                stream.start()
                stream.catch_up()
            else:
                # The recorder had to wait for silence, or for records.
                stream.catch_up()


def run_sqlserver(case: Case, server: TestServer, spark: SparkSession | None = None) -> Outcome:
    """Run one case of SQL Server in fresh databases of the test server and compare."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as folder:
            found = _kinds(tds_runner.run(case, server, spark, Path(folder), recorder(case)))
    except Failed as error:
        found = (str(error),)
    except pytds.Error as error:
        found = (f"the server refuses a statement of the case: {error}",)
    return Outcome(case, found, seconds=time.monotonic() - started)


def run_db2(case: Case, server: Derby, spark: SparkSession | None = None) -> Outcome:
    """Run one case of Db2 in a fresh database and compare."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as folder:
            found = _kinds(db2_runner.run(case, server, spark, Path(folder)))
    except Failed as error:
        found = (str(error),)
    return Outcome(case, found, seconds=time.monotonic() - started)


def run_mysql(case: Case, server: MySqlServer, spark: SparkSession | None = None) -> Outcome:
    """Run one case of MySQL or MariaDB on an emptied server and compare."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as folder:
            found = _kinds(mysql_runner.run(case, server, spark, Path(folder), recorder(case)))
    except Failed as error:
        found = (str(error),)
    except pymysql.err.Error as error:
        found = (f"the server refuses a statement of the case: {error}",)
    return Outcome(case, found, seconds=time.monotonic() - started)


class Servers:
    """The servers for cases of all kinds, each started when it is first needed, as a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._postgres: Postgres | None = None
        self._mongo: Mongo | None = None
        self._db2: Derby | None = None
        self._sqlserver: TestServer | None = None
        self._mysql: dict[str, MySqlServer] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, case: Case, spark: SparkSession | None) -> Outcome:
        """Run one case of any kind and compare."""
        if case.database == "postgresql":
            self._postgres = self._postgres or self._stack.enter_context(server())
            return run(case, self._postgres, spark)
        if case.database == "mongodb":
            try:
                self._mongo = self._mongo or self._stack.enter_context(mongo_runner.server())
            except Unavailable as error:
                return Outcome(case, skipped=str(error))
            return run_mongo(case, self._mongo, spark)
        if case.database == "sqlserver":
            self._sqlserver = self._sqlserver or self._stack.enter_context(tds_runner.server())
            return run_sqlserver(case, self._sqlserver, spark)
        if case.database == "db2":
            try:
                self._db2 = self._db2 or self._stack.enter_context(db2_runner.server())
            except NoJars as error:
                return Outcome(case, skipped=str(error))
            return run_db2(case, self._db2, spark)
        if case.database in mysql_runner.VERSIONS:
            try:
                if case.database not in self._mysql:
                    self._mysql[case.database] = self._stack.enter_context(mysql_runner.server(case.database))
            except NoJars as error:
                return Outcome(case, skipped=str(error))
            return run_mysql(case, self._mysql[case.database], spark)
        return Outcome(case, skipped=f"there is no server for cases of {case.database or 'no connector'}")


def main(arguments: list[str] | None = None) -> int:
    """Run all cases of a folder and print a report. Return the exit code."""
    parser = argparse.ArgumentParser(prog="make golden", description="Compare with the recordings of Debezium.")
    parser.add_argument("cases", nargs="?", type=Path, default=default_cases(), help="a case, or a folder of cases")
    parser.add_argument("--spark", action="store_true", help="run each case as a query of Spark")
    parser.add_argument("--kinds", type=int, default=1, help="print up to so many kinds of difference (default: 1)")
    given = parser.parse_args(arguments)
    folder = given.cases
    found = cases.find(folder)
    if not found:
        parser.error(f"there are no cases in {folder}")
    known = expected_failures()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as warehouse, Servers() as servers:
        spark = fix_spark.start(Path(warehouse)) if given.spark else None
        for case in found:
            outcomes.append(servers.run(case, spark))
            print(line(outcomes[-1], known, given.kinds), flush=True)
        if spark is not None:
            spark.stop()
    judged = [outcome for outcome in outcomes if outcome.skipped is None]
    equal = [outcome for outcome in judged if outcome.difference is None]
    print(f"{len(equal)} of {len(judged)} cases equal")
    return 0 if all((outcome.difference is not None) == (outcome.case.name in known) for outcome in judged) else 1


def line(outcome: Outcome, known: dict[str, str], kinds: int = 1) -> str:
    """Return the report of one case."""
    name = outcome.case.name
    if outcome.skipped:
        return f"{name}: not run: {outcome.skipped}"
    if outcome.difference is None:
        more = "; it is listed in expected_failures.toml: remove it" if name in known else ""
        return f"{name}: equal ({outcome.seconds:.1f} s){more}"
    lines = [f"{name}: NOT EQUAL ({outcome.seconds:.1f} s)", *outcome.differences[:kinds]]
    if name in known:
        lines.append(f"expected to fail: {known[name]}")
    return "\n    ".join(lines)


if __name__ == "__main__":
    sys.exit(main())
