"""The sinks of one writer: the records a second of each, to a server on this machine. Driver.

The server of HTTP is the tests' own, a thread of this process, which reads each request and answers at once; it takes
part of the time. Redis writes each transaction to disk, as the tests' server does; JetStream keeps messages in files;
PostgreSQL commits as always.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from bench import tables
from bench.drain import AVAILABLE_NOW, frame, needed, options
from bench.workload import Workload
from tailrace import sinks
from tailrace.connectors.registry import parse
from tailrace.sinks.jetstream import missing
from tests.servers.jars import Unavailable
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer
from tests.servers.web import WebServer

ROWS = {"http": 10_000, "http_batch": 100_000, "redis": 100_000, "nats-jetstream": 100_000, "jdbc": 20_000}
"""The records of each case. `http` sends single records; the records of `jdbc` have schemas."""

_TABLE = tables.plain("written")
_TARGET = "bench_written"


def measure(spark: SparkSession, workload: Workload, repeat: int, say: Callable[[str], None]) -> dict[str, float]:
    """Return the records a second of each writer whose server is there; the first run is not counted."""
    found: dict[str, float] = {}
    for name, rows in ROWS.items():
        workload.create(_TABLE)
        workload.create_slot(_TABLE.name)
        workload.insert(_TABLE, rows)
        try:
            with _place(workload, name) as place:
                rates = [rows / _seconds(spark, workload, name, rows, place) for _ in range(repeat + 1)][1:]
            found[f"writers_{name}_per_second"] = median(rates)
            say(f"writers: {name} {median(rates):,.0f} records a second")
        except Unavailable as reason:
            say(f"writers: no {name}: {reason}")
        finally:
            workload.drop_slot(_TABLE.name)
            workload.execute("drop publication written")
            workload.execute("drop table written")
    return found


@contextmanager
def _place(workload: Workload, name: str) -> Iterator[Mapping[str, str]]:
    """Yield the options of a case's sink, with a running server."""
    if name == "redis":
        with RedisServer() as redis:
            yield {"address": redis.address}
    elif name == "nats-jetstream":
        if missing():
            raise Unavailable("its client is not installed")
        with NatsServer() as nats:
            yield {"url": nats.url, "create-stream": "true", "subjects": "bench.>", "storage": "file"}
    elif name == "jdbc":
        workload.execute(f"create database {_TARGET}")
        server = workload.server
        try:
            yield {
                "connection.url": f"jdbc:postgresql://{server.host}:{server.port}/{_TARGET}",
                "connection.username": server.user,
                "connection.password": server.password,
                "insert.mode": "upsert",
                "primary.key.mode": "record_key",
                "schema.evolution": "basic",
            }
        finally:
            workload.execute(f"drop database {_TARGET} with (force)")
    else:
        with WebServer() as web:
            yield {"url": web.url, "batch.enabled": str(name == "http_batch").lower()}


def _seconds(spark: SparkSession, workload: Workload, name: str, rows: int, place: Mapping[str, str]) -> float:
    """Return the seconds of a query that delivers all records, its start included.

    Raises RuntimeError if the number of records is wrong.
    """
    kind = name.partition("_")[0]
    schemas = str(kind == "jdbc").lower()
    with workload.copy_of(_TABLE.name) as copy, tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        more = {f"{part}.converter.schemas.enable": schemas for part in ("key", "value")}
        settings = options(
            workload, _TABLE.name, {"slot.name": copy, "snapshot.mode": "never", "topic.prefix": "bench", **more}
        )
        sink = sinks.open(kind, place, parse("postgres", settings))
        events = frame(spark, needed(sink, settings))
        started = time.monotonic()
        query = sink.start(events, Path(folder), AVAILABLE_NOW, "bench")
        query.awaitTermination()
        seconds = time.monotonic() - started
        read = sum(progress.numInputRows for progress in query.recentProgress)
    if read != rows:
        raise RuntimeError(f"the query delivered {read} of {rows} records")
    return seconds
