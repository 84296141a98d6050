"""Runs the golden cases of MongoDB on one server, emptied before each, through a proxy where the case asks for one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pymongo
from pyspark.sql import SparkSession

from tests.fix_mongodb import Document, Mongo, running, through
from tests.golden import mongo_steps
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.mongo_accept import unwanted, without
from tests.golden.mongo_normalise import MongoNormaliser, by_window
from tests.golden.mongo_steps import Step, Writer
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS, payload
from tests.golden.record import Record
from tests.golden.stream import Failed, Frame, Stream
from tests.servers.mongo_proxy import STAND_IN, Oplog, Proxy
from tests.servers.secantus import Secantus, fetch

SYSTEM = frozenset({"admin", "config", "local"})
WINDOW = 1024
"""Documents of a window where incremental.snapshot.chunk.size is not given."""
PATIENCE = 15.0
"""Seconds that a step waits for a record, as in the recording."""


@contextmanager
def server() -> Iterator[Mongo]:
    """A server for golden cases; raises tests.servers.secantus.Unavailable where it cannot be fetched."""
    with Secantus(fetch()) as started:
        yield running(started)


def options(case: Case, mongo: Mongo, folder: Path) -> dict[str, str]:
    """The case's configuration as it connects to `mongo`."""
    variables = {"MONGO_URI": mongo.uri, "MONGO_HOSTS": mongo.hosts, "OFFSETS": str(folder / "offsets.dat")}
    filled = case.options(variables)
    if "signal.data.collection" in filled:
        # one chunk for each window, as the recorded connector reads them
        filled["incremental.snapshot.window.chunks"] = "1"
    return filled


def run(
    case: Case, mongo: Mongo, spark: SparkSession, folder: Path, given: dict[str, str], frame: Frame
) -> Iterator[str]:
    """What differs in one run of the case; `given` are further options. Raises Failed and PyMongo's errors."""
    steps = mongo_steps.load(case.path / "run.json")
    recorded = case.expected()
    heartbeats = case.properties.get("topic.heartbeat.prefix") or case.properties.get(
        "heartbeat.topics.prefix", HEARTBEATS
    )
    form = case.path.parent.name.rpartition("-")[2]
    stays = without(recorded, unwanted(case.properties, form))
    expected = [record for record, stay in zip(recorded, stays, strict=True) if stay]
    with ExitStack() as stack:
        client = stack.enter_context(mongo.client())
        empty(client)
        shown = mongo
        if case.knobs.get("proxy") == "true":
            shown = through(mongo, stack.enter_context(Proxy(mongo.address, Oplog())))
        beating = heartbeats if int(case.properties.get("heartbeat.interval.ms", "0")) else ""
        stream = Stream(spark, options(case, shown, folder) | given, folder / "checkpoint", frame, beating)
        told = [stay for record, stay in zip(recorded, stays, strict=True) if not record.topic.startswith(heartbeats)]
        play = _Play(case, stream, Writer(client), heartbeats, expected, told)
        try:
            for step in steps:
                play.do(step)
            play.end()
        except Failed:
            # Debezium ended with an error there, too.
            if "exit" not in case.knobs:
                raise
        finally:
            stream.stop()
            empty(client)
        got = stream.records()
    if "exit" in case.knobs:
        # Where ours goes on, there is nothing to compare with.
        got = _as_far(expected, got)
    size = int(case.properties.get("incremental.snapshot.chunk.size", WINDOW))
    genuine = any(step["op"] == "oplog" for step in steps)
    notifications = case.properties.get("notification.sink.topic.name", NOTIFICATIONS)
    terms = Terms(
        0,
        heartbeats,
        notifications,
        normaliser=partial(MongoNormaliser, heartbeats, notifications, genuine=genuine),
        value_reason=lambda place, wanted, got: None,
        schema_reason=lambda wanted, got: None,
    )
    return differences(by_window(expected, size), by_window(got, size), terms)


def empty(client: pymongo.MongoClient[Document]) -> None:
    """Drop every database of earlier cases, and the stand-in for the oplog."""
    for name in client.list_database_names():
        if name not in SYSTEM:
            client.drop_database(name)
    client[STAND_IN[0]].drop_collection(STAND_IN[1])
    for name in client["config"].list_collection_names():
        if not name.startswith("system."):
            client["config"].drop_collection(name)


def _as_far(expected: list[Record], got: list[Record]) -> list[Record]:
    """Of each topic as many records as were recorded."""
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
    """One case being played; `stays` tells for each record, heartbeats aside, whether ours has it, too."""

    def __init__(
        self,
        case: Case,
        stream: Stream,
        writer: Writer,
        heartbeats: str,
        expected: list[Record],
        stays: list[bool],
    ) -> None:
        self._case = case
        self._stream = stream
        self._writer = writer
        self._heartbeats = heartbeats
        self._expected = [record for record in expected if not record.topic.startswith(heartbeats)]
        self._stays = stays
        self._started = 0
        self._runs = False
        self._patience = PATIENCE

    def do(self, step: Step) -> None:
        """One step."""
        op = step["op"]
        if op == "start":
            self._start()
        elif op == "stop":
            self._stop()
        elif op == "wait":
            self._wait(sum(self._stays[: step["records"]]))
        elif op == "settle":
            self._stream.settle(step["seconds"])
        elif op == "sleep":
            time.sleep(step["seconds"])
        else:
            self._writer.do(step)

    def end(self) -> None:
        """Wait for what was recorded, and a moment for one record too many."""
        if self._runs:
            self._stop()

    def _count(self) -> int:
        return sum(n for topic, n in self._stream.counts().items() if not topic.startswith(self._heartbeats))

    def _wait(self, records: int) -> None:
        # A case that lacks a record lacks it at every further step, too.
        if not self._stream.wait(lambda: self._count() >= records, self._patience):
            self._patience = 1.0

    def _start(self) -> None:
        """Start the query, and go on when its position and its snapshot are fixed."""
        self._stream.start()
        self._runs = True
        self._started += 1
        if self._started == 1:
            self._stream.wait(self._stream.committed, 60)
            self._wait(_leading_reads(self._expected))
        self._stream.settle(0.3)

    def _stop(self) -> None:
        """Stop the query after all that is on its way."""
        wanted = len(self._expected)
        # A stop before the last is for as many records as had come; nobody wrote down how many.
        idle = float(self._case.knobs.get("idle", "2"))
        self._stream.wait(lambda: self._count() >= wanted or self._stream.quiet(idle), 60)
        self._stream.settle(0.3)
        self._stream.stop()
        self._runs = False


def _leading_reads(expected: list[Record]) -> int:
    """How many records of the initial snapshot a recording begins with."""
    count = 0
    for record in expected:
        value = payload(record.value)
        if not isinstance(value, dict) or value.get("op") != '"r"':
            break
        count += 1
    return count
