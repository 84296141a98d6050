"""The repair of differing rows: by incremental snapshots of these rows, and by removing rows from tables. Driver.

A snapshot writes the rows that the source has. Rows that only a table has, and duplicate rows, are removed from the
table, in one commit. A running pipeline would conflict with that commit, so rows are removed only while no pipeline
runs.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace import sinks
from tailrace.config.files import RunConfig
from tailrace.connectors import signalling
from tailrace.errors import SinkError, TailraceError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.statements import DELETED, OP, Clause, Merge, literal, quoted
from tailrace.snapshot.signals import Signal
from tailrace.values.arrow import arrow_type_of
from tailrace.verify.check import Lake, TableResult, Verification, VerificationResult
from tailrace.verify.comparison import DUPLICATE, EXTRA, Key
from tailrace.verify.keys import array_of
from tailrace.verify.moments import latest_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST = 2000
"""Most characters of a signal's data: the data column of most signal tables has 2048."""
_PAUSE_S = 0.5
_VIEW = "tailrace_keys"
_UNKNOWN = "unknown.values"


class Repair:
    """Repairs the differences that a verification has found. `say` prints a line."""

    def __init__(
        self, spark: SparkSession, run: RunConfig, verification: Verification, say: Callable[[str], None]
    ) -> None:
        self._spark, self._verification, self._say = spark, verification, say
        self._run = reading_again(run)

    def caught_up(self, verified: VerificationResult) -> VerificationResult:
        """If keys are undecided and the pipeline is stopped, run it to the end of the log and compare again.

        Raises TailraceError.
        """
        if verified.is_running or not any(table.undecided for table in verified.tables):
            return verified
        pipeline = Pipeline(self._run, self._spark)
        try:
            pipeline.start(available_now=True).awaitTermination()
        except Exception as error:
            known = pipeline.cause(error)
            if known is None:
                raise
            raise known from None
        finally:
            pipeline.stop()
        return self._verification.run([str(table.table) for table in verified.tables], 0)

    def run(self, verified: VerificationResult, wait_s: float) -> VerificationResult:
        """Repair differing rows, and compare again until the rows are equal, for at most `wait_s` seconds.

        If no pipeline runs, this method runs it meanwhile. Raises TailraceError.
        """
        wrong = [table for table in verified.tables if table.differing]
        if not wrong:
            return verified
        for table in wrong:
            _demand_mendable(table)
        if verified.is_running:
            kept = sum(1 for table in wrong for kind in table.differing.values() if kind in (EXTRA, DUPLICATE))
            if kept:
                self._say(
                    f"{kept} keys are left that only a table has, or has twice: stop the pipeline, and repair again."
                )
            self._send(wrong, {EXTRA, DUPLICATE})
            return self._shown(verified, None, wait_s)
        pipeline = Pipeline(self._run, self._spark)
        try:
            # takes the checkpoint's lock: from here on no other run writes
            pipeline.begin()
            # The signals come first. If this process ends before the removal, the next run reads the rows again; in the
            # other order, duplicate rows would be missing until the next verification.
            wanted = self._send(wrong, {EXTRA})
            for table in wrong:
                remove(self._spark, self._verification.sink, table, verified)
            if wanted:
                pipeline.start()
            return self._shown(verified, pipeline, wait_s)
        finally:
            pipeline.stop()

    def _send(self, tables: Sequence[TableResult], without: set[str]) -> int:
        """Send signals for the rows of keys that differ in another way than `without`; return the number of signals."""
        wanted = _wanted(tables, without)
        for signal in wanted:
            self._say(signalling.send(self._run.source, signal))
        return len(wanted)

    def _shown(self, before: VerificationResult, pipeline: Pipeline | None, wait_s: float) -> VerificationResult:
        """Compare until the requested rows no longer differ, for at most `wait_s` seconds; return the last result."""
        until = time.monotonic() + wait_s
        names = [str(table.table) for table in before.tables if not table.is_clean]
        left_alone = {EXTRA, DUPLICATE} if before.is_running else set()
        asked = {
            str(table.table): {key for key, kind in table.differing.items() if kind not in left_alone}
            for table in before.tables
        }
        after = self._verification.run(names, 0)
        while any(
            asked[str(table.table)] & (table.differing.keys() | table.undecided.keys()) for table in after.tables
        ):
            if time.monotonic() > until or (pipeline is not None and pipeline.query is None):
                break
            while self._verification.newest(after).batch == after.moment.batch:
                _demand_running(pipeline)
                if time.monotonic() > until:
                    break
                time.sleep(_PAUSE_S)
            after = self._verification.run(names, 0)
        if any(table.undecided for table in after.tables):
            after = self._verification.run(names, max(until - time.monotonic(), 0))
        seen = {str(table.table): table for table in after.tables}
        tables = tuple(seen.get(str(table.table), table) for table in before.tables)
        return VerificationResult(tables, after.position, after.moment, after.is_running)


def reading_again(run: RunConfig) -> RunConfig:
    """Return the configuration for a repair: if possible, unknown values are read from the source.

    Otherwise a missing value of a damaged row could end the pipeline before the row is repaired.
    """
    options = run.sink.options
    again = replace(run, sink=replace(run.sink, options={**options, _UNKNOWN: "reselect"}))
    if options.get(_UNKNOWN, "stop") != "stop":
        return run
    try:
        sinks.open(again.sink.name, again.sink.options, again.source)
    except SinkError:
        return run
    return again


def _demand_running(pipeline: Pipeline | None) -> None:
    query = None if pipeline is None else pipeline.query
    if pipeline is None or query is None or query.isActive:
        return
    failure = query.exception()
    raise (failure and pipeline.cause(failure)) or TailraceError(
        "The pipeline has ended before the tables were repaired.", "Run it by itself to see why."
    )


def _wanted(tables: Sequence[TableResult], without: set[str]) -> list[Signal]:
    """Return signals for the rows of keys that differ in another way than `without`."""
    return [
        signal
        for table in tables
        for signal in signals(table, [key for key, kind in table.differing.items() if kind not in without])
    ]


def signals(table: TableResult, keys: Sequence[Key]) -> Iterator[Signal]:
    """Yield signals that ask for the rows of these keys, each with as many keys as fit."""
    empty = len(_data(table, []))
    kept: list[Key] = []
    size = empty
    for key in keys:
        # plus the comma and the blank that precede it
        length = len(_data(table, [key])) - empty + 2
        if kept and size + length > _LONGEST:
            yield _signal(table, kept)
            kept, size = [], empty
        kept.append(key)
        size += length
    if kept:
        yield _signal(table, kept)


def _signal(table: TableResult, keys: Sequence[Key]) -> Signal:
    return Signal(str(uuid.uuid4()), "execute-snapshot", _data(table, keys))


def _data(table: TableResult, keys: Sequence[Key]) -> str:
    """Return the data of a signal: a JSON object with a condition for the keys."""
    name = ".".join('"' + part.replace('"', '""') + '"' for part in (table.table.schema, table.table.table))
    condition = table.condition(table.shape.sources, keys)
    data = {
        "type": "incremental",
        "data-collections": [name],
        "additional-conditions": [{"data-collection": name, "filter": condition}],
    }
    return json.dumps(data)


def _demand_mendable(table: TableResult) -> None:
    """Raise SinkError if the key has a column whose values have no SQL literals here."""
    for column in table.shape.key:
        kind = arrow_type_of(column.schema)
        if pa.types.is_nested(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
            raise SinkError(
                f"The rows of {table.table} cannot be asked for by their keys: {column.name} is of the type {kind}.",
                "Read the table by an incremental snapshot.",
            )


def remove(spark: SparkSession, sink: Lake, table: TableResult, verified: VerificationResult) -> None:
    """Remove rows that only the table has, and all rows of keys with several rows.

    Rows that only the table has are marked as deleted with upsert-keep-deletes; in a history their versions end. Raises
    SinkError if the table was written to since it was compared.
    """
    wrong = {kind: [key for key, found in table.differing.items() if found == kind] for kind in (EXTRA, DUPLICATE)}
    if not any(wrong.values()):
        return
    if latest_version(spark, table.path) != table.version:
        raise SinkError(
            f"The table {table.path} was written to after the comparison: by a batch that is not whole, or by others.",
            "Let the pipeline run to the end of the log, then repair again.",
        )
    current, ended = "", Clause()
    if sink.keeps_deletes:
        current, ended = f" and t.{DELETED} = 'false'", Clause("", {DELETED: "'true'", OP: "'d'"})
    elif sink.mode == "history":
        at = f"timestamp_micros({round(verified.moment.at.timestamp() * 1_000_000)})"
        current = " and t.__valid_to is null"
        place = {"__valid_to": literal(verified.moment.position), "__valid_to_ordinal": str(verified.moment.ordinal)}
        ended = Clause("", place | {"__valid_to_at": at})
    session = spark.newSession()
    stored = found_at(session, table.path).table(session, table.path)
    for kind, keys in wrong.items():
        if keys:
            _keys_frame(session, table, keys).createOrReplaceTempView(_VIEW)
            on = " and ".join(f"t.{quoted(name)} <=> s.k{place}" for place, name in enumerate(table.shape.names))
            stored.mend(Merge(_VIEW, f"{on}{current}", (ended if kind == EXTRA else Clause(),), None))


def _keys_frame(spark: SparkSession, table: TableResult, keys: Sequence[Key]) -> Any:
    types = [table.shape.form.types[place] for place in table.shape.form.key]
    columns = [
        array_of([float("nan") if value == "NaN" and pa.types.is_floating(kind) else value for value in values], kind)
        for values, kind in zip(zip(*keys, strict=True), types, strict=True)
    ]
    from pyspark.sql.pandas.types import from_arrow_schema

    found = pa.table(columns, names=[f"k{place}" for place in range(len(columns))])
    return spark.createDataFrame(found, from_arrow_schema(found.schema, prefer_timestamp_ntz=True))
