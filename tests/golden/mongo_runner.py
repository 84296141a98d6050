"""A runner of MongoDB's golden cases on one server, emptied before each, with a proxy if the case needs one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pymongo
from pyspark.sql import SparkSession

from tailrace.connectors.mongodb.log.oplog import newest
from tests.fix_mongodb import Document, Mongo, running, through
from tests.golden import mongo_steps
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.mongo_accept import unwanted, without
from tests.golden.mongo_normalise import MongoNormaliser, by_window
from tests.golden.mongo_steps import Step, Writer
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS
from tests.golden.record import Record
from tests.golden.stream import Failed, Late, Stream, opened
from tests.servers.mongo_proxy import STAND_IN, Oplog, Proxy
from tests.servers.secantus import Secantus, fetch

SYSTEM = frozenset({"admin", "config", "local"})
WINDOW = 1024
"""Documents in a window if incremental.snapshot.chunk.size is not given."""
AWAIT_MS = "20"
"""Time in ms for which the server keeps the reader waiting if nothing happens."""


@contextmanager
def server() -> Iterator[Mongo]:
    """Run a server for golden cases. Raises tests.servers.secantus.Unavailable if it cannot be fetched."""
    with Secantus(fetch()) as started:
        yield running(started)


def options(case: Case, mongo: Mongo, folder: Path) -> dict[str, str]:
    """Return the case's configuration for a connection to `mongo`."""
    variables = {"MONGO_URI": mongo.uri, "MONGO_HOSTS": mongo.hosts, "OFFSETS": str(folder / "offsets.dat")}
    filled = case.options(variables)
    if "signal.data.collection" in filled:
        # One chunk for each window, as the recorded connector reads them.
        filled["incremental.snapshot.window.chunks"] = "1"
    return filled | {"cursor.max.await.time.ms": AWAIT_MS}


def run(case: Case, mongo: Mongo, spark: SparkSession | None, folder: Path, given: dict[str, str]) -> Iterator[str]:
    """Return the differences in one run of the case. Raises Failed and PyMongo's errors. `given`
    are further options."""
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
        settings = options(case, shown, folder) | given
        # The log as the query sees it.
        looking = stack.enter_context(shown.client())
        stream = opened(spark, "mongodb", settings, folder / "checkpoint", lambda: newest(looking).time)
        play = _Play(stream, Writer(client))
        try:
            for step in steps:
                play.do(step)
            stream.beat(heartbeats, expected)
            play.end()
        except Failed as error:
            # Debezium ended with an error, too.
            if "exit" not in case.knobs or isinstance(error, Late):
                raise
        finally:
            stream.stop()
            empty(client)
        got = stream.records()
    if "exit" in case.knobs:
        # Ours continues, so there is nothing to compare with.
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
    """A running case."""

    def __init__(self, stream: Stream, writer: Writer) -> None:
        self._stream = stream
        self._writer = writer
        self._runs = False

    def do(self, step: Step) -> None:
        """Carry out one step."""
        op = step["op"]
        if op == "start":
            self._stream.start()
            self._runs = True
            # Position and snapshot are fixed, and the log is read.
            self._stream.catch_up()
        elif op == "stop":
            self.end()
        elif op in ("wait", "settle"):
            # The recorder had to wait for records, or for silence.
            self._stream.catch_up()
        elif op == "sleep":
            self._stream.pause(step["seconds"])
        else:
            self._writer.do(step)

    def end(self) -> None:
        """Stop the query after everything in the log."""
        if self._runs:
            self._stream.catch_up()
            self._stream.stop()
            self._runs = False
