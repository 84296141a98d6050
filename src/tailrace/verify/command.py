"""The command `tailrace verify`: prints differing keys to stdout, and writes them all to the --report file. Driver."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace import sinks
from tailrace.config.files import RunConfig
from tailrace.connectors.signalling import demand_channel
from tailrace.errors import ConfigError, SinkError
from tailrace.pipeline import Pipeline
from tailrace.verify.arguments import DIFFERENT
from tailrace.verify.check import Lake, TableResult, Verification, VerificationResult, demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(configured: RunConfig, arguments: argparse.Namespace, master: str | None, conf: Mapping[str, str]) -> int:
    """Run the command in a new session; return the exit code. Raises TailraceError."""
    from tailrace.spark.cluster import LOCAL
    from tailrace.spark.session import session

    sink = sinks.open(configured.sink.name, configured.sink.options, configured.source)
    if not isinstance(sink, Lake):
        raise ConfigError(
            "tailrace verify compares the tables of debezium.sink.type=tables.", "Name a file with that sink."
        )
    demand(configured.source.connector, sink, configured.source)
    if arguments.repair:
        # signals request the rows that a table lacks, but only after minutes of comparing
        demand_channel(configured.source)
    spark = session(
        {**sink.settings, **conf},
        jars=sink.jars,
        log_level="warn" if arguments.debug else "off",
        master=master or LOCAL,
    )
    try:
        return verify(spark, configured, sink, arguments)
    finally:
        spark.stop()


def verify(spark: SparkSession, configured: RunConfig, sink: Lake, arguments: argparse.Namespace) -> int:
    """Compare, report and, if asked for, repair, in the session `spark`; return the exit code. Raises TailraceError."""
    options = Pipeline(configured, spark).options()
    verification = Verification(spark, sink, configured.source.connector, options, configured.checkpoint)
    verified = verification.run(arguments.table, arguments.wait)
    print(*lines(verified, arguments.limit), sep="\n", flush=True)
    if arguments.report:
        write(Path(arguments.report), verified)
    if arguments.repair and not verified.is_clean:
        from tailrace.verify.repair import Repair

        repair = Repair(spark, configured, verification, lambda line: print(line, flush=True))
        verified = repair.run(repair.caught_up(verified), arguments.wait)
        print("after the repair:", *lines(verified, arguments.limit), sep="\n", flush=True)
    return 0 if verified.is_clean else DIFFERENT


def lines(verified: VerificationResult, limit: int) -> Iterator[str]:
    """Yield the lines of the report: for each table a summary and at most `limit` keys."""
    for table in verified.tables:
        counted = Counter(kind for _, kind in _entries(table))
        differences = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counted.items())) or "no difference"
        yield f"{table.table}: {table.rows:,} rows at {verified.position}, {differences}"
        entries = list(_entries(table))
        for key, kind in entries[: max(limit, 0)]:
            yield f"  {kind} {json.dumps(key, ensure_ascii=False, default=str)}"
        if len(entries) > max(limit, 0):
            yield f"  and {len(entries) - max(limit, 0):,} more"


def write(path: Path, verified: VerificationResult) -> None:
    """Write all keys to a file, one JSON object per line. Raises SinkError if that fails."""
    try:
        with path.open("w", encoding="utf-8") as file:
            for table in verified.tables:
                for key, kind in _entries(table):
                    entry = {"table": str(table.table), "kind": kind, "key": key}
                    file.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
    except OSError as error:
        raise SinkError(f"The file of --report cannot be written: {error.strerror}.", "Name another one.") from None


def _entries(table: TableResult) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield differing keys, then undecided keys: values by column name, and what is wrong or "undecided"."""
    for keys, undecided in ((table.differing, False), (table.undecided, True)):
        for key in sorted(keys, key=lambda key: tuple(map(_sortable, key))):
            yield dict(zip(table.shape.names, key, strict=True)), "undecided" if undecided else keys[key]


def _sortable(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value
