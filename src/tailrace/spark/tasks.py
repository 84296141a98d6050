"""A batch's tasks on their way from the planner to the workers.

Spark writes a task into the plan of a batch, and from there into each job that reads the plan: the JVM holds the bytes
of the log several times. Where planner and workers are processes of one host, a large batch lies in a file instead. The
file has no name, so that nothing is left of it whatever ends the planner: workers open it by the planner's descriptor,
as Linux lets processes of one user do (proc(5), /proc/PID/fd).
"""

from __future__ import annotations

import os
import pickle
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from tailrace.errors import ProcessLost
from tailrace.log.spill import spool_failed

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.log.planner import Offset, Task

PACKED_BYTES = 1 << 20
"""A task that is no larger than this, in bytes, travels with Spark's plan."""
_MARK_BYTES = 16


class TaskPartition(InputPartition):
    """A connector's task as Spark ships it."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __repr__(self) -> str:
        # The task may hold a password, and Spark prints partitions.
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of the task. Worker."""
        return self.task.read()


@dataclass(frozen=True, slots=True)
class _Place:
    """An open file of a process; the `mark` at its beginning tells it from a later one with the descriptor."""

    process: int
    descriptor: int
    mark: bytes

    def task(self) -> Task:
        """What stands there. Worker; raises ProcessLost where it cannot be opened."""
        try:
            with open(f"/proc/{self.process}/fd/{self.descriptor}", "rb") as file:
                if file.read(_MARK_BYTES) == self.mark:
                    task: Task = pickle.load(file)
                    return task
        except OSError:
            pass
        raise ProcessLost(
            "The planner does not hold the file with the tasks of this batch any more.",
            "Start again: the batch is repeated. Where that does not help, set tasks.in.files = false: workers of "
            "another host or user cannot open the file.",
        )


class PlacedPartition(InputPartition):
    """Where a worker finds a task."""

    def __init__(self, place: _Place) -> None:
        self.place = place

    def __repr__(self) -> str:
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of the task. Worker."""
        return self.place.task().read()


@dataclass(slots=True)
class TaskFiles:
    """The files with the tasks of the batch `(start, end]` that runs. Planner.

    They are there until Spark plans behind the batch, however often it plans the batch itself.
    """

    _batch: tuple[Offset, Offset] | None = None
    _files: list[IO[bytes]] = field(default_factory=list)

    def placed(self, start: Offset, end: Offset, tasks: Sequence[Task]) -> Sequence[InputPartition]:
        """Partitions for the tasks. Raises SpoolFailed where the disk does not take them."""
        if (start, end) != self._batch:
            self.close()
            self._batch = (start, end)
        try:
            return self._written(tasks)
        except OSError as error:
            raise spool_failed(error) from error

    def passed(self, start: Offset) -> None:
        """Spark has committed what is up to `start`."""
        if self._batch is not None and self._batch[1] == start:
            self.close()

    def close(self) -> None:
        """Give the files back."""
        for file in self._files:
            file.close()
        self._files, self._batch = [], None

    def _written(self, tasks: Sequence[Task]) -> Sequence[InputPartition]:
        files: list[IO[bytes]] = []
        try:
            for _ in tasks:
                # closed by `close`, or below
                files.append(tempfile.SpooledTemporaryFile(PACKED_BYTES, prefix="tailrace-tasks-"))  # noqa: SIM115
            if len(tasks) > 1:
                with ThreadPoolExecutor(len(tasks)) as pool:
                    places = list(pool.map(_place, tasks, files))
            else:
                places = list(map(_place, tasks, files))
        except BaseException:
            for file in files:
                file.close()
            raise
        found: list[InputPartition] = []
        for task, file, place in zip(tasks, files, places, strict=True):
            if place is None:
                file.close()
                found.append(TaskPartition(task))
            else:
                self._files.append(file)
                found.append(PlacedPartition(place))
        return found


def _place(task: Task, file: IO[bytes]) -> _Place | None:
    """Where the task stands in the file; None where it is small enough to travel with the plan."""
    mark = secrets.token_bytes(_MARK_BYTES)
    file.write(mark)
    pickle.dump(task, file, pickle.HIGHEST_PROTOCOL)
    if file.tell() <= PACKED_BYTES:
        return None
    file.flush()
    return _Place(os.getpid(), file.fileno(), mark)
