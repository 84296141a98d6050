"""Frames passed to a sink batch by batch, as by Spark's query but without a query, for sinks that accept batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Step = Callable[[DataFrame], DataFrame]


class Frames:
    """The parts of a stream's frame and writer that a sink of batches calls.

    `awaitTermination` works like a query up to the present: each batch that the checkpoint has not committed is
    planned, written and committed, one after another.
    """

    def __init__(self, frames: Sequence[DataFrame], steps: Sequence[Step] = ()) -> None:
        self._frames = frames
        self._steps = tuple(steps)
        self._write: Callable[[DataFrame, int], None] | None = None
        self._checkpoint = Path()
        self.id = "c0ffee"
        self.isActive = True  # Spark's name.

    @property
    def sparkSession(self) -> SparkSession:
        return self._frames[0].sparkSession

    @property
    def columns(self) -> list[str]:
        return self._stepped(self._frames[0]).columns

    def select(self, *columns: str) -> Frames:
        return Frames(self._frames, (*self._steps, lambda frame: frame.select(*columns)))

    def selectExpr(self, *expressions: str) -> Frames:
        return Frames(self._frames, (*self._steps, lambda frame: frame.selectExpr(*expressions)))

    @property
    def writeStream(self) -> Frames:
        return self

    def queryName(self, name: str) -> Frames:
        return self

    def trigger(self, **how: Any) -> Frames:
        return self

    def option(self, name: str, value: str) -> Frames:
        if name == "checkpointLocation":
            self._checkpoint = Path(value)
        return self

    def foreachBatch(self, write: Callable[[DataFrame, int], None]) -> Frames:
        self._write = write
        return self

    def start(self) -> Frames:
        return self

    def awaitTermination(self) -> None:
        assert self._write is not None
        offsets, commits = (self._checkpoint / name for name in ("offsets", "commits"))
        offsets.mkdir(parents=True, exist_ok=True)
        commits.mkdir(exist_ok=True)
        for number, frame in enumerate(self._frames):
            if not (commits / str(number)).exists():
                (offsets / str(number)).write_text(f"v1\nbatch {number}")
                self._write(self._stepped(frame), number)
                (commits / str(number)).touch()

    def _stepped(self, frame: DataFrame) -> DataFrame:
        for step in self._steps:
            frame = step(frame)
        return frame
