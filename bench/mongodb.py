"""Draining a backlog of MongoDB's oplog beside a bare PyMongo cursor that throws the same entries away. Driver.

The server is the tests' own (tests/servers/secantus.py), a Python process, which limits the rate of both. So the ratio
measures what reading adds to fetching, and nothing of MongoDB itself.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pymongo
from bson import Timestamp
from pyspark.sql import SparkSession

from tests.fix_mongodb import Mongo, running
from tests.servers.secantus import Secantus, fetch

Client = pymongo.MongoClient[dict[str, Any]]
_MANY = 2_000


def measure(spark: SparkSession, rows: int, repeat: int, say: Callable[[str], None]) -> dict[str, float]:
    """Return the figures of `rows` inserted documents: the seconds of query and cursor, and their ratio."""
    with Secantus(fetch(), ["--oplog-max-entries", str(2 * rows + 10_000)]) as server:
        mongo = running(server)
        client: Client = mongo.client()
        try:
            with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
                return _measure(spark, mongo, client, Path(folder), rows, repeat, say)
        finally:
            client.close()


def _measure(
    spark: SparkSession, mongo: Mongo, client: Client, folder: Path, rows: int, repeat: int, say: Callable[[str], None]
) -> dict[str, float]:
    client["bench"]["orders"].insert_one(_document(-1))
    before = folder / "before"
    _drain(spark, mongo, before)
    start = _newest(client)
    say(f"inserting {rows:,} documents into the test server")
    for first in range(0, rows, _MANY):
        client["bench"]["orders"].insert_many(_document(number) for number in range(first, min(first + _MANY, rows)))
    cursors: list[float] = []
    queries: list[float] = []
    for number in range(repeat + 1):
        checkpoint = folder / str(number)
        shutil.copytree(before, checkpoint)
        bare = _bare(client, start, rows)
        seconds, read = _drain(spark, mongo, checkpoint)
        if read != rows:
            raise RuntimeError(f"{read} of {rows} changes were read")
        say(f"mongodb: bare cursor {bare:.2f} s, query {seconds:.2f} s{'' if number else ' (warm-up)'}")
        if number:
            cursors.append(bare)
            queries.append(seconds)
    ratios = [bare / seconds for bare, seconds in zip(cursors, queries, strict=True)]
    return {
        "mongodb_rows": float(rows),
        "mongodb_cursor_seconds": median(cursors),
        "mongodb_seconds": median(queries),
        "mongodb_ratio": median(ratios),
    }


def _document(number: int) -> dict[str, Any]:
    return {
        "_id": number,
        "customer": number % 977,
        "name": f"customer number {number}",
        "price": number * 0.25,
        "tags": ["a", "b", "c"],
        "address": {"street": f"Main street {number}", "zip": f"{number % 99999:05d}"},
        "note": "x" * 60,
    }


def _newest(client: Client) -> Timestamp:
    found: Timestamp = next(client["local"]["oplog.rs"].find().sort("$natural", -1).limit(1))["ts"]
    return found


def _bare(client: Client, start: Timestamp, rows: int) -> float:
    """Fetch the entries behind `start` and discard them."""
    began = time.monotonic()
    found = sum(1 for _ in client["local"]["oplog.rs"].find({"ts": {"$gt": start}}))
    seconds = time.monotonic() - began
    if found < rows:
        raise RuntimeError(f"the cursor found {found} entries of {rows}")
    return seconds


def _drain(spark: SparkSession, mongo: Mongo, checkpoint: Path) -> tuple[float, int]:
    """Read all changes behind the checkpoint into Spark's noop sink; return the seconds and the number of records."""
    options = {
        "mongodb.hosts": mongo.hosts,
        "mongodb.name": "bench",
        "database.include.list": "bench",
        "snapshot.mode": "never",
        "event.order": "key",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    frame = spark.readStream.format("mongodb-cdc").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    began = time.monotonic()
    query = writer.start()
    query.awaitTermination()
    return time.monotonic() - began, sum(progress["numInputRows"] for progress in query.recentProgress)
