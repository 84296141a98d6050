"""A tiny data source that records Spark's calls, for tests of Spark's own behaviour.

Options: `log` is a file to which every call is appended as one JSON line, `script` the misbehaviour of the source
(`plain`, `sorted`, `unsorted`, `schema`), `rows` the number of rows in a batch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

LAST = 3
"""The last position in the source's log."""


class Range(InputPartition):
    """The positions (start, end] that one task reads."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(0)
        self.start = start
        self.end = end


class Probe(DataSource):
    """The source `probe`: one bigint column, `n`."""

    @classmethod
    def name(cls) -> str:
        return "probe"

    def schema(self) -> StructType:
        return StructType([StructField("n", LongType(), True)])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ProbeReader(dict(self.options))


class ProbeReader(DataSourceStreamReader):
    """A log of three positions, one for each batch. `last` is set in latestOffset, to see which instance sees it."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = Path(options["log"])
        self.script = options.get("script", "plain")
        self.last = "never set"

    def initialOffset(self) -> dict[str, int]:
        self._note("initialOffset")
        return {"a": 0, "b": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        self.last = "set in latestOffset"
        position = start["a"]
        self._note("latestOffset", start=position, committed=self._committed(), limit=sorted(vars(limit)))
        if self.script == "unsorted":
            # The same position, with its keys in the other order each time.
            return {"b": 0, "a": position} if list(start) == ["a", "b"] else {"a": position, "b": 0}
        return {"a": min(position + 1, LAST), "b": 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._note("partitions", start=start["a"], end=end["a"])
        return [Range(start["a"], end["a"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        self._note("read", start=partition.start, end=partition.end, last=self.last)
        numbers = pa.array(range(partition.start + 1, partition.end + 1), pa.int64())
        if self.script == "schema":
            field = pa.field("n", pa.int64(), nullable=False)
            yield pa.RecordBatch.from_arrays([numbers], schema=pa.schema([field]))
        else:
            yield pa.RecordBatch.from_arrays([numbers], names=["n"])

    def commit(self, end: dict[str, int]) -> None:
        self._note("commit", end=end["a"])

    def _committed(self) -> int:
        """Return the newest position in the query's commit log, which lies beside the log of calls; -1 without one."""
        checkpoint = self.path.parent / "checkpoint"
        batches = (
            [int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit()]
            if (checkpoint / "commits").is_dir()
            else []
        )
        if not batches:
            return -1
        lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
        return int(json.loads(lines[-1])["a"])

    def _note(self, call: str, **values: object) -> None:
        with self.path.open("a") as out:
            out.write(json.dumps({"call": call, **values}) + "\n")


def calls(path: Path) -> list[dict[str, Any]]:
    """Return the recorded calls of a probe in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
