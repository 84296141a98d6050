"""A runner of SQL Server's golden cases against the test server `tdsserver`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tdsserver.process import TestDatabase, TestServer, TestSession
from tests.golden import script
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS
from tests.golden.stream import Stream, opened
from tests.golden.tds_accept import Reasons, without_last_end
from tests.golden.tds_normalise import TdsNormaliser

DATABASE = "golden"
_CREATED = re.compile(r"\bcreate\s+database\s+\[?(\w+)", re.I)


@contextmanager
def server() -> Iterator[TestServer]:
    """Run a server for golden cases."""
    with TestServer() as started:
        yield started


def variables(server: TestServer, folder: Path) -> dict[str, str]:
    """Return the variables for the server and its files in a case's configuration."""
    return {
        "MSHOST": server.host,
        "MSPORT": str(server.port),
        "MSUSER": server.user,
        "MSPASSWORD": server.password,
        "MSDATABASE": DATABASE,
        "OFFSETS": str(folder / "offsets.dat"),
        "HISTORY": str(folder / "history.dat"),
    }


@contextmanager
def prepared(case: Case, server: TestServer) -> Iterator[tuple[TestSession, list[TestDatabase]]]:
    """Yield a session in the case's databases, set up and fully captured; they are dropped at the end."""
    names = [DATABASE, *_CREATED.findall(case.read("setup.sql"))]
    databases = [TestDatabase(server, DATABASE)]
    try:
        with TestSession(server, DATABASE) as session:
            for item in script.split(case.read("setup.sql")):
                if isinstance(item, script.Statement):
                    session.run(item.text)
            databases += [TestDatabase(server, name, exists=True) for name in names[1:]]
            captured(databases)
            yield session, databases
    finally:
        for name in names:
            server.execute(f"DROP DATABASE IF EXISTS [{name}]")


def captured(databases: list[TestDatabase]) -> int:
    """Wait until everything committed is captured. Return the newest position as a number."""
    return max(int.from_bytes(database.capture()) for database in databases)


def heartbeats(case: Case) -> str:
    """Return the prefix of the case's heartbeat topics."""
    found = case.properties.get("topic.heartbeat.prefix") or case.properties.get("heartbeat.topics.prefix")
    return str(found or HEARTBEATS)


def run(
    case: Case, server: TestServer, spark: SparkSession | None, folder: Path, given: dict[str, str]
) -> Iterator[str]:
    """Return the differences in one run of the case. Raises Failed and the client's own errors. `given` are further
    options."""
    expected = case.expected()
    beats = heartbeats(case)
    with ExitStack() as stack:
        session, databases = stack.enter_context(prepared(case, server))
        options = case.options(variables(server, folder))
        if "signal.data.collection" in options:
            # One chunk for each window, as the recorded connector reads them.
            options["incremental.snapshot.window.chunks"] = "1"
        stream = opened(spark, "sqlserver", options | given, folder / "checkpoint", lambda: captured(databases))
        stream.start()
        stack.callback(stream.stop)
        # The snapshot, if any, is over, and changes are read.
        stream.catch_up()
        _work(stream, session, case)
        stream.catch_up()
        stream.beat(beats, expected)
        stream.stop()
        got = stream.records()
    notifications = case.properties.get("notification.sink.topic.name", NOTIFICATIONS)
    reasons = Reasons(given.get("event.version.string", ""))
    terms = Terms(
        0,
        beats,
        notifications,
        normaliser=partial(TdsNormaliser, beats, notifications),
        value_reason=reasons.of_value,
        schema_reason=reasons.of_schema,
    )
    yield from differences(expected, without_last_end(expected, got), terms)


def _work(stream: Stream, session: TestSession, case: Case) -> None:
    for item in case.workload():
        if isinstance(item, script.Statement):
            session.run(item.text)
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
