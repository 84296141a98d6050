"""A batch's tasks on their way from the planner to the workers.

Spark writes a task into the plan of a batch, and from there into each job that reads the plan: the JVM holds the bytes
of the log several times. Where planner and workers are processes of one host, a large batch lies in a file instead. The
file has no name, so that nothing is left of it whatever ends the planner: workers open it by the planner's descriptor,
as Linux lets processes of one user do (proc(5), /proc/PID/fd).
"""

from __future__ import annotations

import mmap
import os
import pickle
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from tempfile import TemporaryFile
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
_ALIGNED = 64
"""Bytes. Kernels are compiled for arrays at addresses of their type."""


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
    """An open file of a process; the `mark` at its beginning tells it from a later one with the descriptor.

    The file has the pickled task without its arrays, then the bytes of these: `sizes` are how many they are, and each
    begins at a multiple of `_ALIGNED`.
    """

    process: int
    descriptor: int
    mark: bytes
    sizes: tuple[int, ...]

    def task(self) -> Task:
        """What stands there. Worker; raises ProcessLost where it cannot be opened."""
        try:
            with open(f"/proc/{self.process}/fd/{self.descriptor}", "rb") as file:
                if file.read(_MARK_BYTES) == self.mark:
                    # without a copy of the bytes: the pages are those that the planner has written
                    held = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
                    text, *arrays = (held[first : first + size] for first, size in _starts(self.sizes))
                    task: Task = pickle.loads(text, buffers=arrays)
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
        kept = len(self._files)

        def written(task: Task) -> InputPartition:
            arrays: list[pickle.PickleBuffer] = []
            text = pickle.dumps(task, pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
            parts = [memoryview(text), *(array.raw() for array in arrays)]
            if sum(part.nbytes for part in parts) <= PACKED_BYTES:
                return TaskPartition(task)
            # closed by `close`, or below
            file = TemporaryFile(prefix="tailrace-tasks-")  # noqa: SIM115
            self._files.append(file)
            return PlacedPartition(_place(file, parts))

        try:
            if len(tasks) > 1:
                with ThreadPoolExecutor(len(tasks)) as pool:
                    return list(pool.map(written, tasks))
            return list(map(written, tasks))
        except BaseException:
            while len(self._files) > kept:
                self._files.pop().close()
            raise


def _starts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where in a file parts of so many bytes begin, and these sizes."""
    first = _ALIGNED
    for size in sizes:
        yield first, size
        first += -(-size // _ALIGNED) * _ALIGNED


def _place(file: IO[bytes], parts: Sequence[memoryview]) -> _Place:
    """Write the parts of a task into a file."""
    mark = secrets.token_bytes(_MARK_BYTES)
    file.write(mark)
    sizes = tuple(part.nbytes for part in parts)
    for part, (first, _) in zip(parts, _starts(sizes), strict=True):
        file.seek(first)
        file.write(part)
    file.flush()
    return _Place(os.getpid(), file.fileno(), mark, sizes)
