"""SecantusDB as a source of the machine: it speaks MongoDB's protocol, and keeps what it has acknowledged.

Committed changes are read from a change stream of the machine's own.
"""

from __future__ import annotations

import base64
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import bson
import pymongo
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from tests.chaos.changes import Change, Row, from_document, row_of
from tests.chaos.source import Offset
from tests.servers.secantus import Secantus, fetch

Document = dict[str, Any]
DATABASE = "chaos"
COLLECTIONS = ("rows", "bulk", "shared", "ledger")
WRITERS = 3
DOCUMENTS = 6_000
PAD = 600
WHOLE = 2_147_483_647
"""The number in a position after all changes with its timestamp."""


class Mongo:
    """A replica set of one member."""

    connector = "mongodb"

    def __init__(self) -> None:
        self._server = Secantus(fetch(), ["--sync-on-commit", "--oplog-max-entries", "20000000"])
        self._token: Document | None = None
        self._begin: tuple[int, int] | None = None

    def open(self, stack: ExitStack) -> None:
        stack.callback(self._server.remove)
        self._server.start()
        with self._client() as client:
            database = client[DATABASE]
            for name in COLLECTIONS:
                database.create_collection(name)
            client["other"].create_collection("signals")
            with database.watch() as stream:
                self._token = dict(stream.resume_token or {})
            pad = "x" * PAD
            database["rows"].insert_many(
                [{"_id": n, "n": 0, "tag": "first", "pad": pad} for n in range(DOCUMENTS)], ordered=False
            )
            database["shared"].insert_many([{"_id": n, "n": 0, "tag": "first"} for n in range(8)])

    @property
    def port(self) -> int:
        return self._server.port

    def options(self, port: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
            "mongodb.connection.string": f"mongodb://127.0.0.1:{port}/?directConnection=true",
            "capture.mode": "change_streams", "database.include.list": DATABASE,
            "signal.data.collection": "other.signals", "mongodb.heartbeat.frequency.ms": "1000",
            "mongodb.server.selection.timeout.ms": "20000",
        }  # fmt: skip

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> MongoWriters:
        return MongoWriters(self._client, seed, signals, reads_first)

    def watch(self, checkpoint: Path) -> None:
        """Return None: the oplog is limited only by its size."""

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        return from_document(topic, key, value) if topic.split(".")[1] == DATABASE else None

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        with self._client() as client, client[DATABASE].watch(resume_after=self._token) as stream:
            # When this document arrives, everything before it has arrived.
            client[DATABASE]["end"].insert_one({"at": time.time()})
            self._begin = self._begin or _first_time(client, first["log"]["token"])
            while True:
                event = stream.next()
                self._token = dict(stream.resume_token or {})
                here = _time(event)
                collection = event["ns"]["coll"]
                if collection == "end":
                    return
                # The time in a record is that of the write to the oplog, not that of the timestamp.
                wall = event["wallTime"].replace(tzinfo=UTC)
                change = _change(collection, event, int(wall.timestamp()) << 32 | here[1])
                if change is not None:
                    yield change, here >= self._begin

    def rows(self) -> dict[str, dict[str, Row]]:
        with self._client() as client:
            found = {name: list(client[DATABASE][name].find()) for name in COLLECTIONS}
        return {name: {str(one["_id"]): row_of(one) for one in documents} for name, documents in found.items()}

    def crash(self) -> None:
        self._server.kill()

    def again(self) -> None:
        self._server.start()

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        """Return None: this server has no command for it, so the proxy cuts connections instead."""

    def described(self) -> list[str]:
        return [self._server.output[-2000:]]

    def keep(self, folder: Path) -> None:
        (folder / "secantus.log").write_text(self._server.output)

    def _client(self) -> pymongo.MongoClient[Document]:
        return pymongo.MongoClient(self._server.uri, retryWrites=False, serverSelectionTimeoutMS=15_000)


def _time(event: Any) -> tuple[int, int]:
    stamp = event["clusterTime"]
    return int(stamp.time), int(stamp.inc)


def _first_time(client: pymongo.MongoClient[Document], token: str) -> tuple[int, int]:
    """Return the time of the first change that the server sends after a resume token, which may be earlier than the
    token's.

    The pipeline's stream begins with that change, whatever change the token was made for.
    """
    with client.watch(start_after=bson.decode(base64.b64decode(token))) as stream:
        return next(_time(event) for event in stream if event["ns"]["db"] == DATABASE)


def _change(collection: str, event: Any, place: int) -> Change | None:
    kind = event["operationType"]
    key = str(event["documentKey"]["_id"]) if "documentKey" in event else ""
    if kind == "insert":
        return Change(collection, "c", key, row_of(event["fullDocument"]), place)
    if kind == "update":
        return Change(collection, "u", key, row_of(event["updateDescription"]["updatedFields"]), place, partial=True)
    if kind == "delete":
        return Change(collection, "d", key, None, place)
    return None


@dataclass
class MongoWriters:
    """Sessions that write until they are stopped. Keys are never reused."""

    client: Callable[[], pymongo.MongoClient[Document]]
    seed: int
    signals: bool
    reads_first: Callable[[], bool]
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _counters: dict[int, int] = field(default_factory=dict)
    _begun: int = 0

    def start(self) -> None:
        self._stop.clear()
        self._begun += 1
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"writer-{number}", daemon=True)
            for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def lost(self) -> list[tuple[int, int]]:
        with self.client() as client:
            there = {one["_id"] for one in client[DATABASE]["ledger"].find({}, {"_id": 1})}
        return sorted(one for one in self.acknowledged if f"{one[0]}-{one[1]}" not in there)

    def _work(self, number: int) -> None:
        choice = random.Random(f"{self.seed}/{self._begun}/{number}")
        while not self._stop.is_set():
            try:
                with self.client() as client:
                    while not self._stop.is_set():
                        self._write(client, choice, number)
            except (DuplicateKeyError, BulkWriteError):
                continue
            except PyMongoError:
                # The server is down, and the change stream tells whether the write was kept.
                time.sleep(0.1)
            except Exception as error:
                self.failures.append(f"writer {number}: {type(error).__name__}: {error}")
                time.sleep(1)

    def _write(self, client: pymongo.MongoClient[Document], choice: random.Random, number: int) -> None:
        database = client[DATABASE]
        self._counters[number] = txn = self._counters.get(number, 0) + 1
        tag = f"{number}-{txn}"
        own = choice.randrange(DOCUMENTS // WRITERS) * WRITERS + number
        fresh = DOCUMENTS + txn * WRITERS + number
        kind = choice.choices(range(6), (6, 8, 3, 4, 0.3, 0.2))[0]
        if kind == 0:
            database["rows"].insert_one({"_id": fresh, "n": 0, "tag": tag, "pad": tag * choice.choice((1, 50))})
        elif kind == 1:
            database["rows"].update_one({"_id": own}, {"$set": {"tag": tag}, "$inc": {"n": 1}})
        elif kind == 2:
            database["rows"].delete_one({"_id": own})
        elif kind == 3:
            database["shared"].update_one({"_id": choice.randrange(8)}, {"$set": {"tag": tag}, "$inc": {"n": 1}})
        elif kind == 4:
            count = choice.randrange(50, 1_500)
            database["bulk"].insert_many([{"_id": f"{tag}-{i}", "tag": tag, "pad": "y" * PAD} for i in range(count)])
            if choice.random() < 0.5:
                database["bulk"].delete_many({"tag": tag})
        elif number == 0 and self.signals and not self.reads_first():
            data = {"type": "incremental", "data-collections": [f"{DATABASE}.{choice.choice(('rows', 'shared'))}"]}
            client["other"]["signals"].insert_one({"type": "execute-snapshot", "data": data})
        else:
            self._stop.wait(choice.uniform(0.5, 3))
        database["ledger"].insert_one({"_id": tag})
        self.acknowledged.add((number, txn))
        self._stop.wait(choice.choice((0, 0.01, 0.03, 0.06)))
