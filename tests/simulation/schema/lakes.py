"""Copies as real tables of Delta Lake, written by the sink's own writer in the modes `latest`, `history` and `log`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from tailrace.errors import SinkError
from tailrace.sinks.base import Sink
from tailrace.sinks.tables import rebuilt_rows
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.modes import CHANGE
from tailrace.sinks.tables.positions import NAME
from tailrace.sinks.tables.sink import TablesSink, Writer
from tailrace.sinks.tables.statements import unknown_column
from tailrace.sinks.tables.target import KEY
from tailrace.sinks.tables.versions import VALIDITY
from tests.simulation.schema.copies import Copies, Row

_SCHEMA = (
    "key binary, value binary, op string, database string, schema string, table string, position string, "
    "ordinal bigint, source_ts timestamp"
)
_COLUMNS = [part.split()[0] for part in _SCHEMA.split(", ")]


class LakeCopies(Copies):
    """Tables of Delta Lake under the sink's path.

    The rows of a table of versions are those that are current. The rows of a table of changes are those that
    `tailrace rebuild` makes of them; where it refuses, `rows` raises its SinkError.
    """

    def __init__(self, spark: SparkSession, sink: Sink) -> None:
        self._spark = spark
        self.follow(sink)
        # The pipeline begins anew, with new tables.
        shutil.rmtree(self._path, ignore_errors=True)

    def follow(self, sink: Sink) -> None:
        assert isinstance(sink, TablesSink)
        self._sink, self._path = sink, Path(sink.path)

    def write(self, number: int, rows: Sequence[Row]) -> None:
        frame = self._spark.createDataFrame([tuple(row[name] for name in _COLUMNS) for row in rows], _SCHEMA)
        Writer(self._sink, "pipeline", "query", lambda _: True).write(frame, number)

    def names(self) -> set[str]:
        return {found.parent.name for found in self._path.glob("*/_delta_log")} - {NAME}

    def rows(self, name: str) -> list[Row] | None:
        if name not in self.names():
            return None
        found = self._rebuilt(name) if self._sink.mode == "log" else self._table(name)
        if found is None:
            return None
        if self._sink.mode == "history":
            found = found.where("__valid_to is null").drop(*self._own())
        # Spark shows an instant without its zone, the session's.
        zoned = [field.name for field in found.schema if isinstance(field.dataType, TimestampType)]
        try:
            rows = [row.asDict(recursive=True) for row in found.collect()]
        except Exception as error:
            lacking = unknown_column(str(error))
            if lacking is None:
                raise
            raise SinkError(f"No change in the log has the value of {lacking}.", "Rebuild with null.") from None
        return [row | {name: _in_utc(row[name]) for name in zoned} for row in rows]

    def _table(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._path / name))

    def _rebuilt(self, name: str) -> DataFrame | None:
        """Return the rows that the changes in a table result in; None for a table without a key.

        A rebuild of files needs a moment in which all tables are whole; this one takes the newest changes.
        """
        path = str(self._path / name)
        stored = found_at(self._spark, path).table(self._spark, path)
        keys, renamed = stored.past(KEY)
        key = json.loads(stored.properties()[KEY])
        if not key:
            return None
        if len(keys) > 1:
            raise SinkError(f"The key of the table {name} has had other columns.", "Read the database anew.")
        names = self.columns(name)
        form = rebuilt_rows.RebuiltForm(tuple(names), tuple(names.index(column) for column in key), renamed=renamed)
        changes = rebuilt_rows.changes(self._table(name), form)
        rebuilt_rows.demand_keys(changes, form, name)
        return rebuilt_rows.last_rows(changes, form, keeps_deletes=False)

    def columns(self, name: str) -> list[str]:
        if name not in self.names():
            return []
        return [column for column in self._table(name).columns if column not in self._own()]

    def _own(self) -> set[str]:
        """Return the names of the columns that the sink adds."""
        return {column for column, _ in {"history": VALIDITY, "log": CHANGE}.get(self._sink.mode, ())}

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)

    def empty(self, name: str) -> None:
        if name in self.names():
            self._spark.sql(f"delete from delta.`{self._path / name}`")


def _in_utc(shown: datetime | None) -> datetime | None:
    return None if shown is None else shown.replace(tzinfo=UTC)
