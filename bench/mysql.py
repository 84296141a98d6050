"""MySQL and MariaDB beside PostgreSQL, Debezium's engine and a bare copy of the log, for the same rows. Driver.

The servers are the tests' own (tests/servers/mysql.py). Their log is drained from a checkpoint that is older than the
rows, PostgreSQL's from a copy of a slot, in turn, into Spark's noop sink.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from bench import drain, tables
from bench.workload import TRANSACTION, Workload
from tailrace.connectors.binlog.log.dump import Dump
from tailrace.process.runtime import THREADS
from tailrace.sinks.console import NoopSink
from tests.servers.mysql import MARIADB_11, MYSQL_8, PASSWORD, USER, MySqlServer, Version

BESIDE = tables.plain("beside")
SERVERS: Mapping[str, Version] = {"mysql": MYSQL_8, "mariadb": MARIADB_11}
ENGINE = "3.6.1.Final"
"""The version of Debezium's engine for MySQL; Maven Central has no such version for MariaDB."""
WARM_ROUNDS = 2
SETTINGS = {"innodb_buffer_pool_size": "256M", "innodb_log_file_size": "256M"}
TABLE = (
    "create table bench (id bigint primary key, n int not null, amount numeric(12,2) not null, note text not null,"
    " at timestamp(6) not null, flag boolean not null, code varchar(20), doc json)"
)
ROWS = (
    "insert into bench select i, i % 100000, (i % 9999999) / 100.0, rpad(concat('note of row ', i, ' '), 60,"
    " 'abcdefghij'), timestamp'2024-01-01 00:00:00' + interval i * 1000001 microsecond, i % 2 = 0,"
    ' concat(\'code-\', i % 1000), concat(\'{{"a": \', i, \', "b": "text", "c": \','
    " if(i % 2 = 0, 'true', 'false'), '}}')"
    " from (select number + {low} as i from numbers where number <= {count}) as counted"
)
"""The rows of tables.plain: the numbers 1 to `count` after `low`."""


def measure(
    spark: SparkSession, workload: Workload, rows: int, repeat: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Return the figures of a backlog of `rows` inserts and of a snapshot of that table, for each server."""
    found: dict[str, float] = {"mysql_rows": float(rows)}
    workload.create(BESIDE)
    workload.create_slot("bench_beside")
    try:
        workload.insert(BESIDE, rows)
        workload.settle(BESIDE.name)
        for name, version in SERVERS.items():
            with ExitStack() as stack:
                server = stack.enter_context(MySqlServer(version, **SETTINGS))
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
                beside = _Beside(spark, workload, server, folder, rows, say)
                found |= {f"{name}_{figure}": value for figure, value in beside.measure(repeat).items()}
    finally:
        workload.drop_slot("bench_beside")
    return found


class _Beside:
    """A server with the rows, and PostgreSQL with the same ones."""

    def __init__(
        self,
        spark: SparkSession,
        workload: Workload,
        server: MySqlServer,
        folder: Path,
        rows: int,
        say: Callable[[str], None],
    ) -> None:
        self._spark, self._workload, self._server = spark, workload, server
        self._folder, self._rows, self._say = folder, rows, say
        self._checkpoints = 0

    def measure(self, repeat: int) -> dict[str, float]:
        server = self._server
        server.execute("create database bench character set utf8mb4")
        server.execute(TABLE, "create table numbers (number int primary key)", database="bench")
        values = ",".join(f"({number})" for number in range(1, TRANSACTION + 1))
        server.execute(f"insert into numbers values {values}", "flush binary logs", database="bench")
        engine = _Engine(server, self._folder / "engine", self._say) if self._has_engine() else None
        if engine is not None:
            engine.prepare()
        self._drain(self._folder / "before", 0)
        file, begin = self._end()
        self._say(f"inserting {self._rows:,} rows into {server.version.name}")
        self._insert()
        found = self._stream(repeat, file, begin)
        snapshot = [self._snapshot() for _ in range(repeat + 1)][1:]
        found |= {"snapshot_seconds": median(snapshot)}
        if engine is not None:
            of = engine.rates(self._rows)
            found |= {f"engine_{name}_per_second": value for name, value in of.items()}
            found["engine_ratio"] = found["per_second"] / of["stream"]
            found["snapshot_engine_ratio"] = self._rows / found["snapshot_seconds"] / of["snapshot"]
        return found

    def _has_engine(self) -> bool:
        return self._server.version is MYSQL_8 and shutil.which("mvn") is not None

    def _insert(self) -> None:
        with self._server.connect("bench") as session, session.cursor() as cursor:
            for low in range(0, self._rows, TRANSACTION):
                cursor.execute(ROWS.format(low=low, count=min(TRANSACTION, self._rows - low)))

    def _end(self) -> tuple[str, int]:
        """Return the end of the log."""
        *_, (file, size, *_) = self._server.execute("show binary logs")
        return str(file), int(size)

    def _stream(self, repeat: int, file: str, begin: int) -> dict[str, float]:
        own: list[float] = []
        other: list[float] = []
        raw: list[float] = []
        for number in range(-WARM_ROUNDS, repeat):
            beside = self._postgres()
            self._checkpoints += 1
            checkpoint = self._folder / str(self._checkpoints)
            shutil.copytree(self._folder / "before", checkpoint)
            seconds = self._drain(checkpoint, self._rows)
            copied = self._receive(file, begin)
            name = self._server.version.name
            self._say(
                f"{name}: query {seconds:.2f} s, PostgreSQL's {beside:.2f} s, log copied {copied:.2f} s"
                f"{' (warm-up)' if number < 0 else ''}"
            )
            if number >= 0:
                own.append(seconds)
                other.append(beside)
                raw.append(copied)
        return {
            "seconds": median(own),
            "per_second": self._rows / median(own),
            "postgres_seconds": median(other),
            "postgres_ratio": median(one / mine for one, mine in zip(other, own, strict=True)),
            "raw_seconds": median(raw),
            "raw_ratio": median(one / mine for one, mine in zip(raw, own, strict=True)),
        }

    def _postgres(self) -> float:
        with self._workload.copy_of("bench_beside") as copy:
            more = {"slot.name": copy, "snapshot.mode": "never", "event.order": "key", "event.format": "3"}
            drained = drain.to_noop(self._spark, drain.options(self._workload, BESIDE.name, more))
        return self._expect(drained, self._rows)

    def _receive(self, file: str, begin: int) -> float:
        """Return the seconds in which a session takes the log with the rows and throws it away."""
        _, end = self._end()
        with self._server.connect() as session, closing(THREADS.bell()) as bell:
            dump = Dump(session, bell, 10.0)
            dump.prepare(is_mariadb=self._server.dialect == "mariadb")
            began = time.monotonic()
            dump.begin(85745, file, begin)
            # heads of packets and two events that the server makes up come beside the log
            while dump.received < end - begin:
                dump.wait(1.0, lambda: False)
                dump.take()
            return time.monotonic() - began

    def _options(self, **more: str) -> dict[str, str]:
        return {
            **login(self._server),
            "topic.prefix": "bench",
            "table.include.list": "bench[.]bench",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "include.schema.changes": "false",
            "event.order": "key",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def _drain(self, checkpoint: Path, rows: int, mode: str = "no_data") -> float:
        """Read what is behind a checkpoint into Spark's noop sink; return the seconds."""
        options = drain.needed(NoopSink({}), self._options(snapshot_mode=mode))
        frame = self._spark.readStream.format(f"{self._server.dialect}-cdc").options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        started = time.monotonic()
        return self._expect(drain.finish(writer.trigger(availableNow=True).start(), started), rows)

    def _snapshot(self) -> float:
        self._checkpoints += 1
        seconds = self._drain(self._folder / str(self._checkpoints), self._rows, "initial_only")
        self._say(f"{self._server.version.name}: snapshot {seconds:.2f} s")
        return seconds

    @staticmethod
    def _expect(drained: drain.Drained, rows: int) -> float:
        if drained.rows != rows:
            raise RuntimeError(f"the query delivered {drained.rows} of {rows} events")
        return drained.seconds


def login(server: MySqlServer) -> dict[str, str]:
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
    }


class _Engine:
    """Debezium's engine, with its records as JSON that nobody keeps. `prepare` stores an offset before the rows."""

    def __init__(self, server: MySqlServer, folder: Path, say: Callable[[str], None]) -> None:
        from tools.record.engine import build

        self._server, self._folder, self._say = server, folder, say
        self._classpath = build("mysql", ENGINE)

    def _engine(self, kind: str, mode: str) -> tuple[Path, dict[str, str]]:
        folder = self._folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        return folder, {
            "name": "bench",
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.server.id": "85744",
            "topic.prefix": "bench",
            "table.include.list": "bench[.]bench",
            "snapshot.mode": mode,
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(folder / "history.dat"),
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets.dat"),
            "converter.schemas.enable": "false",
            "recorder.counts": "true",
            **login(self._server),
        }

    def prepare(self) -> None:
        """Let the engine begin at the present end of the log."""
        from tools.record.engine import Engine

        folder, options = self._engine("stream", "initial")
        self._server.execute("insert into bench (id, n, amount, note, at, flag) values (0, 0, 0, '', now(), 0)",
                             database="bench")  # fmt: skip
        engine = Engine(self._classpath, options, folder, "UTC", "__heartbeat", 120)
        engine.start()
        try:
            engine.wait(lambda: engine.count() >= 1 and engine.streams(), "the engine streamed")
            engine.stop()
        finally:
            engine.kill()
        self._server.execute("delete from bench", database="bench")

    def rates(self, rows: int) -> dict[str, float]:
        """Return rows a second of stream and snapshot, each of the second half, when the virtual machine is warm."""
        folder, options = self._engine("stream", "initial")
        # the row of `prepare` was deleted: a delete and a tombstone
        stream = self._rate(folder, options, 1 + 2, rows)
        folder, options = self._engine("snapshot", "initial_only")
        return {"stream": stream, "snapshot": self._rate(folder, options, 0, rows)}

    def _rate(self, folder: Path, options: Mapping[str, str], before: int, rows: int) -> float:
        from tools.record.engine import Engine

        engine = Engine(self._classpath, options, folder, "UTC", "__heartbeat", 900)
        engine.java = ("-Xmx1g",)
        half, at_half = before + rows // 2, [0, 0.0]

        def reached(count: int) -> bool:
            now = engine.count()
            if now >= half and not at_half[1]:
                at_half[:] = now, time.monotonic()
            return now >= count

        engine.start()
        try:
            engine.wait(lambda: reached(before + rows), "all rows were there")
            seconds = time.monotonic() - at_half[1]
            engine.stop()
        finally:
            engine.kill()
        rate = (before + rows - at_half[0]) / seconds
        self._say(f"Debezium's engine, {folder.name}: {rate:,.0f} rows a second")
        return rate
