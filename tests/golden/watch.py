"""The product's own sources, watched: a planner that tells when it has delivered the log up to a position.

A watched source differs from the product's in one respect. At each call of `latestOffset` its reader looks for a
question, and answers it once the query has nothing more to deliver up to the position in it. Spark makes that call only
after the commit of the previous batch, so the answered part of the log is in the sink.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tailrace import spark as sources
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.log_session import BinlogLogSession
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.log_session import MongoLogSession
from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.connectors.registry import known
from tailrace.log.contracts import Planner
from tailrace.log.engine import LogEngine
from tailrace.spark.source import ChangeDataSource, data_source, new_run_id
from tailrace.spark.stream_reader import ChangeStreamReader

PREFIX = "watched-"


class WatchedReader(ChangeStreamReader):
    """The product's reader, which also answers questions in `question` by writing `answer`."""

    question: Path
    answer: Path

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        asked = _read(self.question)
        serial, _, target = asked.partition(" ")
        planner = self._plan()
        # In this order, because changes read while the batch is planned may be too late for it.
        has_read = bool(asked) and reads_to(planner, int(target))
        end = super().latestOffset(start, limit)
        if has_read and end == start and is_idle(planner) and _read(self.answer) != serial:
            write(self.answer, serial)
        return end


def reads_to(planner: Planner, target: int) -> bool:
    """Return True if the planner has read the log up to `target`, in the numbers of its database.

    That is an LSN of PostgreSQL, the timestamp of an entry of MongoDB's oplog, or file and position of a binary log,
    the number of the file above the lower 40 bits. Planners of change tables have no
    reader of their own: each call asks the server for all captured changes, whatever `target` is.
    """
    if isinstance(planner, ChangeTablesPlanner):
        return True
    assert isinstance(planner, LogEngine)
    opened = planner._log
    if not planner._mode.streams:
        return True
    if opened is None or planner._dispatch.seconds:
        return False
    if isinstance(opened, PostgresLogSession):
        # The call makes the reader ask: the server rarely reports its position while nothing is captured.
        return opened.feed.gear != "starting" and opened.read_through(FlushedLsn(target), 0)
    if isinstance(opened, BinlogLogSession):
        file, pos = target >> 40, target & ((1 << 40) - 1)
        return opened.has_read(BinlogPosition(f"binlog.{file:06d}", pos - 1, pos))
    assert isinstance(opened, MongoLogSession)
    return opened.has_read(ChangePosition(target, WHOLE))


def is_idle(planner: Planner) -> bool:
    """Return True if no snapshot is running; a paused one does not count."""
    if isinstance(planner, ChangeTablesPlanner) and planner._mode.streams and planner._log is None:
        return False
    running = (planner.status() or {}).get("snapshot")
    return running is None or bool(running.get("paused"))


def load(spark: SparkSession, form: str, options: Mapping[str, str], question: Path, answer: Path) -> DataFrame:
    """Return the rows of the connector `form`, as for any user, by a watched planner."""
    base = next(data_source(one) for one in known() if one.format == form)
    spark.dataSource.register(_watched(base, question, answer))
    return spark.readStream.format(PREFIX + form).options(**sources.options(options)).load()


def _watched(base: type[ChangeDataSource], question: Path, answer: Path) -> type[ChangeDataSource]:
    """Return a source class for one query. A class within a function is pickled by value, with the paths in it."""

    class Watched(base):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return PREFIX + base.name()

        def streamReader(self, schema: StructType) -> ChangeStreamReader:
            reader = WatchedReader(self._config, new_run_id())
            reader.question, reader.answer = question, answer
            return reader

    return Watched


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def write(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)
