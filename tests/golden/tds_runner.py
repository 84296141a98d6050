"""Runs the golden cases of SQL Server against the test server of tests/servers/tds."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.golden import script
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS, payload
from tests.golden.record import Record
from tests.golden.stream import Frame, Stream
from tests.golden.tds_accept import Reasons, without_last_end
from tests.golden.tds_normalise import TdsNormaliser
from tests.servers.tds.process import TestDatabase, TestServer, TestSession

DATABASE = "golden"
_CREATED = re.compile(r"\bcreate\s+database\s+\[?(\w+)", re.I)


@contextmanager
def server() -> Iterator[TestServer]:
    """A server for golden cases."""
    with TestServer() as started:
        yield started


def variables(server: TestServer, folder: Path) -> dict[str, str]:
    """What a case's configuration calls the server and its files."""
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
def prepared(case: Case, server: TestServer) -> Iterator[TestSession]:
    """The case's databases, set up and wholly captured, and a session in them; they are dropped at the end."""
    names = [DATABASE, *_CREATED.findall(case.read("setup.sql"))]
    databases = [TestDatabase(server, DATABASE)]
    try:
        with TestSession(server, DATABASE) as session:
            for item in script.split(case.read("setup.sql")):
                if isinstance(item, script.Statement):
                    session.run(item.text)
            databases += [TestDatabase(server, name, exists=True) for name in names[1:]]
            for database in databases:
                database.capture()
            yield session
    finally:
        for name in names:
            server.execute(f"DROP DATABASE IF EXISTS [{name}]")


def heartbeats(case: Case) -> str:
    """How the names of the case's heartbeat topics begin."""
    found = case.properties.get("topic.heartbeat.prefix") or case.properties.get("heartbeat.topics.prefix")
    return str(found or HEARTBEATS)


def run(
    case: Case, server: TestServer, spark: SparkSession, folder: Path, given: dict[str, str], frame: Frame
) -> Iterator[str]:
    """What differs in one run of the case; `given` are further options. Raises Failed, and the client's errors."""
    expected = case.expected()
    beats = heartbeats(case)
    with ExitStack() as stack:
        session = stack.enter_context(prepared(case, server))
        options = case.options(variables(server, folder))
        if "signal.data.collection" in options:
            # one chunk for each window, as the recorded connector reads them
            options["incremental.snapshot.window.chunks"] = "1"
        beating = beats if int(case.properties.get("heartbeat.interval.ms", "0")) else ""
        stream = Stream(spark, options | given, folder / "checkpoint", frame, beating)
        stream.start()
        stack.callback(stream.stop)
        _await_reads(stream, folder, expected, beats)
        _work(stream, session, case)
        _await_end(stream, case, expected, beats)
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


def _await_reads(stream: Stream, folder: Path, expected: list[Record], beats: str) -> None:
    reads = _leading_reads(expected, beats)
    # A snapshot without rows is over with the first batch; the log is read from where that batch began.
    stream.wait(lambda: stream.count() >= reads and (folder / "checkpoint" / "commits" / "0").exists(), 60)


def _work(stream: Stream, session: TestSession, case: Case) -> None:
    for item in case.workload():
        if isinstance(item, script.Statement):
            session.run(item.text)
        elif item.name == "sleep":
            time.sleep(float(item.argument))
        elif item.name == "settle":
            stream.settle(float(item.argument))
        elif item.name == "wait":
            target = int(item.argument)
            stream.wait(lambda target=target: stream.count() >= target, 60)  # type: ignore[misc]
        elif item.name == "stop":
            stream.settle(3.0)
            stream.stop()
        else:
            stream.start()
            stream.settle(1.0)


def _await_end(stream: Stream, case: Case, expected: list[Record], beats: str) -> None:
    wanted = Counter(record.topic for record in expected if not record.topic.startswith(beats))

    def complete() -> bool:
        counts = stream.counts()
        return all(counts.get(topic, 0) >= number for topic, number in wanted.items())

    stream.settle(0.2)
    stream.wait(lambda: complete() or stream.quiet(max(8.0, float(case.knobs.get("idle", "3")))), 120)
    if stream.check():
        stream.settle(0.5)


def _leading_reads(expected: list[Record], beats: str) -> int:
    count = 0
    for record in expected:
        value = payload(record.value)
        if isinstance(value, dict) and (value.get("op") == '"r"' or "tableChanges" in value):
            count += 1
        elif not record.topic.startswith(beats):
            break
    return count
