"""Peak memory while one large transaction of MySQL or MariaDB goes into Spark's noop sink. Driver.

A transaction is written as such, as an XA transaction, or with MariaDB's compressed events; before each, one of SMALL
rows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench import drain
from bench.mysql import ROWS, SETTINGS, TABLE, login
from bench.report import MIB
from bench.usage import Meter
from bench.workload import TRANSACTION
from tailrace.sinks.console import NoopSink
from tests.servers.mysql import MARIADB_11, MYSQL_8, MySqlServer, Version

SMALL = 100_000


@dataclass(frozen=True, slots=True)
class Case:
    """A way to write a transaction, by the statements around its rows."""

    version: Version
    before: tuple[str, ...]
    after: tuple[str, ...]


CASES = {
    "mysql": Case(MYSQL_8, ("begin",), ("commit",)),
    "mysql_xa": Case(MYSQL_8, ("xa start 'x'",), ("xa end 'x'", "xa prepare 'x'", "xa commit 'x'")),
    "mariadb": Case(MARIADB_11, ("begin",), ("commit",)),
    "mariadb_xa": Case(MARIADB_11, ("xa start 'x'",), ("xa end 'x'", "xa prepare 'x'", "xa commit 'x'")),
    "mariadb_compressed": Case(MARIADB_11, ("set global log_bin_compress = on", "begin"), ("commit",)),
}


def measure(spark: SparkSession, postmaster: int, rows: int, say: Callable[[str], None]) -> dict[str, float]:
    """Return the peaks in MiB of each case, for a transaction of `rows` and for one of SMALL."""
    found: dict[str, float] = {}
    for name, case in CASES.items():
        with ExitStack() as stack:
            server = stack.enter_context(MySqlServer(case.version, **SETTINGS))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
            _create(server)
            _drain(spark, server, folder, 0)
            # the first one loads what the others find loaded
            for count, suffix in ((TRANSACTION, "_first"), (SMALL, "_small"), (rows, "")):
                _write(server, case, count)
                with Meter(postmaster) as meter:
                    drained = _drain(spark, server, folder, count)
                own = meter.usage
                parts = ", ".join(f"{part} {size / MIB:.0f}" for part, size in own.python_parts.items())
                say(f"{name}: {count:,} rows in {drained.seconds:.1f} s and {len(drained.batches)} batches, Python "
                    f"{own.python_bytes / MIB:.0f} MiB ({parts}; shared pages once: "
                    f"{own.shared_python_bytes / MIB:.0f} MiB), JVM {own.jvm_bytes / MIB:.0f} MiB")  # fmt: skip
                found[f"transaction_{name}{suffix}_peak_rss_mib"] = own.python_bytes / MIB
                for part, size in own.python_parts.items():
                    found[f"transaction_{name}{suffix}_{part}_mib"] = size / MIB
                found[f"transaction_{name}{suffix}_peak_rss_jvm_mib"] = own.jvm_bytes / MIB
    return found


def _create(server: MySqlServer) -> None:
    server.execute("create database bench character set utf8mb4")
    server.execute(TABLE, "create table numbers (number int primary key)", database="bench")
    values = ",".join(f"({number})" for number in range(1, TRANSACTION + 1))
    server.execute(f"insert into numbers values {values}", database="bench")


def _write(server: MySqlServer, case: Case, count: int) -> None:
    """Write one transaction of `count` rows into the empty table."""
    with server.connect("bench", read_timeout=3600) as session, session.cursor() as cursor:
        # an empty table has no keys that repeat
        cursor.execute("truncate table bench")
        for statement in case.before:
            cursor.execute(statement)
        for low in range(0, count, TRANSACTION):
            cursor.execute(ROWS.format(low=low, count=min(TRANSACTION, count - low)))
        for statement in case.after:
            cursor.execute(statement)


def _drain(spark: SparkSession, server: MySqlServer, folder: Path, rows: int) -> drain.Drained:
    """Read what is behind the checkpoint into Spark's noop sink. Raises RuntimeError if that are not `rows`."""
    options = {
        **login(server), "topic.prefix": "bench", "table.include.list": "bench[.]bench", "snapshot.mode": "no_data",
        "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
        "include.schema.changes": "false", "event.order": "key", "skipped.operations": "t",
    }  # fmt: skip
    needed = drain.needed(NoopSink({}), options)
    frame = spark.readStream.format(f"{server.dialect}-cdc").options(**needed).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    started = time.monotonic()
    drained = drain.finish(writer.trigger(availableNow=True).start(), started)
    if drained.rows != rows:
        raise RuntimeError(f"the query delivered {drained.rows} of {rows} events")
    return drained
