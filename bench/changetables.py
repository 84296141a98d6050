"""Draining a backlog of SQL Server's change tables beside a bare cursor that throws the same rows away. Driver.

The server is the tests' own (tdsserver), a Python process, which limits the rate of both. So the ratio measures what
reading adds to fetching, and nothing of SQL Server itself.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.server.connection import connect
from tdsserver.process import TestDatabase, TestServer

TABLES = ("a", "b", "c")
_COLUMNS = (
    "id INT NOT NULL PRIMARY KEY, name NVARCHAR(50), amount DECIMAL(10,2), made DATETIME2(6), flag BIT, "
    "note VARCHAR(100)"
)
_FIRST = 500
_MORE = 5_000
_FETCH = 10_000


def measure(spark: SparkSession, rows: int, repeat: int, say: Callable[[str], None]) -> dict[str, float]:
    """Return the figures of `rows` changes over three tables: the seconds of query and cursor, and their ratio."""
    each = rows // len(TABLES)
    with TestServer() as server, tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        database = TestDatabase(server, "bench")
        database.execute(*(f"CREATE TABLE dbo.{table} ({_COLUMNS})" for table in TABLES))
        database.enable(*TABLES)
        _load(database, 1)
        before = Path(folder) / "before"
        _drain(spark, database, before)
        say(f"writing {each * len(TABLES):,} changes into three tables of the test server")
        _load(database, each)
        cursors: list[float] = []
        queries: list[float] = []
        for number in range(repeat + 1):
            checkpoint = Path(folder) / str(number)
            shutil.copytree(before, checkpoint)
            bare = _bare(database, each)
            seconds, read = _drain(spark, database, checkpoint)
            if read != each * len(TABLES):
                raise RuntimeError(f"{read} of {each * len(TABLES)} changes were read")
            say(f"changetables: bare cursor {bare:.2f} s, query {seconds:.2f} s{'' if number else ' (warm-up)'}")
            if number:
                cursors.append(bare)
                queries.append(seconds)
    ratios = [bare / seconds for bare, seconds in zip(cursors, queries, strict=True)]
    return {
        "changetables_rows": float(each * len(TABLES)),
        "changetables_cursor_seconds": median(cursors),
        "changetables_seconds": median(queries),
        "changetables_ratio": median(ratios),
    }


def _load(database: TestDatabase, each: int) -> None:
    """Insert rows into every table: a few literals, then copies of the table's rows; row 0 exists already."""
    with database.connect() as connection, connection.cursor() as cursor:
        for table in TABLES:
            if each == 1:
                cursor.execute(f"INSERT INTO dbo.{table} VALUES ({_row(0)})")
                continue
            first = min(_FIRST, each)
            values = ",".join(f"({_row(number)})" for number in range(1, first + 1))
            cursor.execute(f"INSERT INTO dbo.{table} VALUES {values}")
            have = first
            while have < each:
                more = min(have, each - have, _MORE)
                cursor.execute(
                    f"INSERT INTO dbo.{table} SELECT id + {have}, name, amount, made, flag, note FROM dbo.{table} "
                    f"WHERE id BETWEEN 1 AND {more}"
                )
                have += more
    database.capture(600)


def _row(number: int) -> str:
    return f"{number}, N'name {number}', {number}.25, '2026-01-02 03:04:05.123456', {number % 2}, 'note {number}'"


def _options(database: TestDatabase) -> dict[str, str]:
    return {
        **database.options(),
        "driver.encrypt": "false",
        "topic.prefix": "bench",
        "snapshot.mode": "no_data",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }


def _drain(spark: SparkSession, database: TestDatabase, checkpoint: Path) -> tuple[float, int]:
    """Read all changes behind the checkpoint into Spark's noop sink; return the seconds and the number of records."""
    frame = spark.readStream.format("sqlserver-cdc").options(**_options(database)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    began = time.monotonic()
    query = writer.start()
    query.awaitTermination()
    return time.monotonic() - began, sum(progress["numInputRows"] for progress in query.recentProgress)


def _bare(database: TestDatabase, each: int) -> float:
    """Fetch the rows of every change table in order with the product's driver, and discard them."""
    with closing(connect(parse("sqlserver", _options(database)), database.name)) as connection:
        began = time.monotonic()
        for table in TABLES:
            found = 0
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM cdc.[dbo_{table}_CT] ORDER BY [__$start_lsn], [__$seqval], [__$operation]")
            while rows := cursor.fetchmany(_FETCH):
                found += len(rows)
            cursor.close()
            if found != each + 1:
                raise RuntimeError(f"the cursor found {found} rows of {each + 1}")
        return time.monotonic() - began
