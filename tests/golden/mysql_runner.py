"""A runner of the golden cases of MySQL and MariaDB, on one server of each, emptied before each case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pymysql.connections import Connection
from pyspark.sql import SparkSession

from tailrace.connectors.binlog.log.position import number_of
from tests.golden import mysql_script
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.mysql_accept import Reasons
from tests.golden.mysql_normalise import MySqlNormaliser
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS, payload
from tests.golden.record import Record
from tests.golden.script import Directive, Statement
from tests.golden.stream import Failed, Late, Stream, opened
from tests.golden.wire import write
from tests.servers.mysql import MARIADB_11, MYSQL_8, PASSWORD, USER, MySqlServer, Version

VERSIONS: dict[str, Version] = {"mysql": MYSQL_8, "mariadb": MARIADB_11}
DATABASE = "golden"
RACING = "incremental_snapshot_concurrent"
"""The case whose updates race with the chunks of a snapshot."""
_SYSTEM = ("mysql", "performance_schema", "sys", "information_schema")
_COMMON = {"binlog_row_image": "'FULL'", "binlog_format": "'ROW'", "binlog_row_metadata": "'FULL'"}
_GLOBALS = {
    "mysql": _COMMON | {"binlog_rows_query_log_events": "OFF"},
    "mariadb": _COMMON | {"log_bin_compress": "OFF", "gtid_domain_id": "0", "server_id": "223344"},
}


@contextmanager
def server(database: str) -> Iterator[MySqlServer]:
    """Run a server for golden cases. Raises tests.servers.jars.Unavailable if it cannot be fetched."""
    with MySqlServer(VERSIONS[database]) as started:
        yield started


def head(server: MySqlServer) -> int:
    """Return the end of the server's log as one number."""
    file, pos = server.execute("SHOW MASTER STATUS")[0][:2]
    return number_of(file) << 40 | int(pos)


def empty(server: MySqlServer) -> None:
    """Bring the server into the state in which each case begins: no databases but `golden`, and an empty log."""
    dialect = server.dialect
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        names = [str(row[0]) for row in cursor.fetchall() if row[0] not in _SYSTEM]
        cursor.execute("SET foreign_key_checks = 0")
        for name in names:
            cursor.execute(f"DROP DATABASE `{name}`")
        for name, value in _GLOBALS[dialect].items():
            cursor.execute(f"SET GLOBAL {name} = {value}")
        if dialect == "mysql":
            cursor.execute("SET GLOBAL enforce_gtid_consistency = ON")
            cursor.execute("SELECT @@global.gtid_mode")
            steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
            for mode in steps[steps.index(str(cursor.fetchone()[0])) + 1 :]:
                cursor.execute(f"SET GLOBAL gtid_mode = {mode}")
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        cursor.execute("RESET MASTER")


def run(
    case: Case, server: MySqlServer, spark: SparkSession | None, folder: Path, given: dict[str, str]
) -> Iterator[str]:
    """Return the differences in one run of the case. Raises Failed and PyMySQL's errors.

    `given` are further options.
    """
    expected = case.expected()
    beats = case.properties.get("topic.heartbeat.prefix") or HEARTBEATS
    ends = "exit" in case.knobs
    with ExitStack() as stack:
        empty(server)
        play = _Play(case, server, spark, folder, given)
        stack.callback(play.close)
        try:
            play.whole()
            play.stream.beat(beats, expected)
        except Failed as error:
            # the recorded connector has ended with an error, too
            if not ends or isinstance(error, Late):
                raise
        got = play.records()
    if case.path.name == RACING:
        yield from _states(expected, got)
        return
    if ends:
        # ours goes on, so only what was recorded can be compared
        got = _as_far(expected, got)
    notifications = case.properties.get("notification.sink.topic.name", NOTIFICATIONS)
    reasons = Reasons(case)
    terms = Terms(
        0,
        beats,
        notifications,
        normaliser=partial(MySqlNormaliser, beats, notifications),
        value_reason=reasons.of_value,
        schema_reason=reasons.of_schema,
    )
    yield from differences(reasons.comparable(expected), reasons.comparable(got), terms)


def _states(expected: list[Record], got: list[Record]) -> Iterator[str]:
    """Return the differences between the states of the tables that two runs lead to, if their order is not repeatable.

    Within a run, no READ event may be older than the event of its key before it.
    """
    states = []
    for records in (expected, got):
        rows: dict[str, str] = {}
        for record in records:
            value = payload(record.value)
            if record.topic.endswith(".golden.t") and isinstance(value, dict):
                key, after = write(payload(record.key)), write(value.get("after"))
                if str(value["op"]) == '"r"' and rows.get(key, after) not in (after, "null"):
                    yield f"{record.topic}: the row of a chunk, {after}, comes after {rows[key]}"
                rows[key] = after
        states.append({key: after for key, after in rows.items() if after != "null"})
    if states[0] != states[1]:
        yield f"{len(states[0])} rows expected at the end, got {len(states[1])}, or others"


def _as_far(expected: list[Record], got: list[Record]) -> list[Record]:
    """Return for each topic as many records as were recorded."""
    left: dict[str, int] = {}
    for record in expected:
        left[record.topic] = left.get(record.topic, 0) + 1
    kept = []
    for record in got:
        if left.get(record.topic, 0):
            left[record.topic] -= 1
            kept.append(record)
    return kept


class _Play:
    """A case while it runs."""

    def __init__(
        self, case: Case, server: MySqlServer, spark: SparkSession | None, folder: Path, given: dict[str, str]
    ) -> None:
        self._case, self._server, self._spark, self._folder, self._given = case, server, spark, folder, given
        self._sessions: dict[str, Connection[Any]] = {}
        self._now = "main"
        self._signals = folder / "signals.txt"
        self._signals.touch()
        self._changed: dict[str, str] = {}
        self._older: list[Record] = []
        self.stream = self._opened()

    def _opened(self) -> Stream:
        variables = {
            "DBHOST": "127.0.0.1",
            "DBPORT": str(self._server.port),
            "DBUSER": USER,
            "DBPASSWORD": PASSWORD,
            "OFFSETS": str(self._folder / "offsets.dat"),
            "HISTORY": str(self._folder / "history.dat"),
            "SIGNALS": str(self._signals),
        }
        options = self._case.options(variables) | self._changed | self._given
        options = {name: value for name, value in options.items() if value != ""}
        if "signal.data.collection" in options or options.get("read.only") == "true":
            # One chunk for each window, as the recorded connector reads them.
            options["incremental.snapshot.window.chunks"] = "1"
        connector = self._case.database
        return opened(self._spark, connector, options, self._folder / "checkpoint", lambda: head(self._server))

    def whole(self) -> None:
        """Carry out the set-up, the start, and the workload."""
        with self._server.connect(DATABASE) as session, session.cursor() as cursor:
            for item in mysql_script.split(self._case.read("setup.sql")):
                if isinstance(item, Statement):
                    cursor.execute(item.text)
        self.stream.start()
        # the snapshot, if any, is over, and changes are read
        self.stream.catch_up()
        for step in mysql_script.split(self._case.read("run.sql")):
            self._do(step)
        self.stream.catch_up()
        self.stream.stop()

    def _do(self, step: Statement | Directive) -> None:
        if isinstance(step, Statement):
            with self._session().cursor() as cursor:
                cursor.execute(step.text)
        elif step.name == "session":
            self._now = step.argument
        elif step.name == "sleep":
            self.stream.pause(float(step.argument))
        elif step.name == "stop":
            self.stream.catch_up()
            self.stream.stop()
        elif step.name == "start":
            self.stream.start()
            self.stream.catch_up()
        elif step.name == "config":
            name, _, value = step.argument.partition("=")
            self._changed[name] = value
            self.stream.change({name: value})
        elif step.name == "signal":
            with self._signals.open("a", encoding="utf-8") as file:
                file.write(step.argument + "\n")
            # signals of files are read by the clock
            self.stream.pause(0.5)
            self.stream.catch_up()
        elif step.name in ("settle", "wait"):
            # the recorder had to wait for records, or for silence
            self.stream.catch_up()

    def _session(self) -> Connection[Any]:
        if self._now not in self._sessions:
            self._sessions[self._now] = self._server.connect(DATABASE)
        return self._sessions[self._now]

    def records(self) -> list[Record]:
        return self.stream.records()

    def close(self) -> None:
        self.stream.stop()
        for session in self._sessions.values():
            session.close()
