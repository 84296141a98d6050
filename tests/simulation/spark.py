"""A simulated Spark for a planner: the offset log, the commit log, batches that are read again, AvailableNow."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from tailrace.errors import ConnectionFailed
from tailrace.log.contracts import Offset, Planner, Task
from tests.simulation.world import Process

Row = tuple[Any, ...]
"""The identity of a record, in the connector's form."""
Batch = dict[str, list[Row]]
"""The rows of each topic, in the order of delivery."""
Limits = tuple[int | None, int | None]
"""The most rows and bytes of a batch; None for no limit."""

Result = TypeVar("Result")


class Meaning(Protocol):
    """Interprets a connector's offsets and tasks."""

    def check(self, start: Offset, end: Offset) -> None:
        """Raise AssertionError if the batch goes back, or beyond the allowed position."""
        ...

    def rows(self, tasks: Sequence[Task]) -> Batch:
        """Return the rows of the tasks."""
        ...

    def again(self, kept: Batch, rows: Batch) -> Batch:
        """Return the sink's rows after a batch was read again. Raises AssertionError if the batch differs."""
        ...


@dataclass
class Checkpoint:
    """The state that outlives a query: the offset log, the commit log, and the sink's rows of each batch."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, Batch] = field(default_factory=dict)

    def committed(self) -> Offset | None:
        """Return the offset at the end of the last committed batch."""
        return json.loads(self.offsets[self.commits - 1]) if self.commits else None

    def commit(self) -> None:
        """Commit the last planned batch."""
        self.commits += 1


@dataclass
class Query:
    """A run of a query, until it ends, fails or is killed.

    Calls `limits()` for the limits of each batch, `planned()` between the plan of a batch and its first reading, and
    `done(batch)` after its commit. A failed call ends the query, unless `tries_again()`.
    """

    checkpoint: Checkpoint
    planner: Planner
    meaning: Meaning
    process: Process
    done: Callable[[int], None]
    limits: Callable[[], Limits]
    tries_again: Callable[[], bool]
    planned: Callable[[], None]
    available_now: bool = False
    is_over: bool = False

    def run(self) -> None:
        """Run the query; the body of its thread."""
        if self.available_now:
            self._called(self.planner.stop_at_present)
        checkpoint = self.checkpoint
        while True:
            self.process.step()
            committed = checkpoint.committed()
            start = self.planner.initial_offset() if committed is None else committed
            if len(checkpoint.offsets) == checkpoint.commits:
                end = self._called(partial(self.planner.latest_offset, start, *self.limits()))
                self.process.step()
                if self.process.world.rng.random() < 0.1:
                    self.planner.status()
                if end == start:
                    if self.available_now:
                        break
                    continue
                self.meaning.check(start, end)
                checkpoint.offsets.append(json.dumps(end))
                self.planned()
            self._deliver(start, json.loads(checkpoint.offsets[-1]))
        self.planner.close()
        self.is_over = True

    def _called(self, call: Callable[[], Result]) -> Result:
        while True:
            try:
                return call()
            except ConnectionFailed:
                if not self.tries_again():
                    raise
                self.process.step()

    def _deliver(self, start: Offset, end: Offset) -> None:
        checkpoint = self.checkpoint
        self.process.step()
        tasks = self._called(partial(self.planner.partitions, start, end))
        self.process.step()
        rows = self.meaning.rows(tasks)
        number = checkpoint.commits
        kept = checkpoint.sink.get(number)
        checkpoint.sink[number] = rows if kept is None else self.meaning.again(kept, rows)
        self.process.step()
        checkpoint.commit()
        self.done(number)
