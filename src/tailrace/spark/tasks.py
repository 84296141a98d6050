"""The transport of a batch's tasks from the planner to the workers, in Spark's plan or in files. Planner, worker.

Spark writes a task into the plan of a batch, and from there into each job that reads the plan: the JVM holds the bytes
of the log several times. If planner and workers run on one host, a large task is in a file instead. The file has no
name, so it disappears with the planner, however the planner ends. Workers open it by the planner's descriptor, as Linux
lets processes of one user do (proc(5), /proc/PID/fd).
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
from tailrace.log.spool import spool_failed

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.log.contracts import Offset, Task
    from tailrace.metrics.reports import ReportPlace

PACKED_BYTES = 1 << 20
"""Most bytes of a task in Spark's plan; larger tasks are in files."""
_MARK_BYTES = 16
_ALIGNED = 64
"""Alignment of parts in the file, in bytes: compiled kernels need arrays at addresses aligned for their type."""


class TaskPartition(InputPartition):
    """A connector's task inside Spark's plan."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.report: ReportPlace | None = None

    def __repr__(self) -> str:
        # The task may hold a password, and Spark prints partitions.
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of the task. Worker."""
        return self.task.read()


@dataclass(frozen=True, slots=True)
class _Place:
    """A task in an open file of the planner. The `mark` at its beginning distinguishes it from later files of the
    descriptor.

    After the mark, the file has the pickled task without its arrays, then the bytes of each array: parts of `sizes`
    bytes, each at a multiple of `_ALIGNED`.
    """

    process: int
    descriptor: int
    mark: bytes
    sizes: tuple[int, ...]

    def task(self) -> Task:
        """Return the task, mapped from the file. Worker; raises ProcessLost if the file cannot be opened."""
        try:
            with open(f"/proc/{self.process}/fd/{self.descriptor}", "rb") as file:
                if file.read(_MARK_BYTES) == self.mark:
                    # no copy of the bytes: these are the pages that the planner has written
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
    """A connector's task in a file, whose place is in Spark's plan."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.report: ReportPlace | None = None

    def __repr__(self) -> str:
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of the task. Worker."""
        return self.place.task().read()


@dataclass(slots=True)
class TaskFiles:
    """The files with the tasks of the running batch `(start, end]`. Planner.

    They stay until Spark has committed the batch, however often it plans the batch.
    """

    _batch: tuple[Offset, Offset] | None = None
    _files: list[IO[bytes]] = field(default_factory=list)

    def placed(self, start: Offset, end: Offset, tasks: Sequence[Task]) -> Sequence[TaskPartition | PlacedPartition]:
        """Write large tasks to files; return partitions for all tasks. Raises SpoolFailed if the disk fails."""
        if (start, end) != self._batch:
            self.close()
            self._batch = (start, end)
        return self._written(tasks)

    def passed(self, start: Offset) -> None:
        """Release the files if Spark has committed their batch, which ends at `start`."""
        if self._batch is not None and self._batch[1] == start:
            self.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()
        self._files, self._batch = [], None

    def _written(self, tasks: Sequence[Task]) -> Sequence[TaskPartition | PlacedPartition]:
        kept = len(self._files)

        def written(task: Task) -> TaskPartition | PlacedPartition:
            arrays: list[pickle.PickleBuffer] = []
            text = pickle.dumps(task, pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
            parts = [memoryview(text), *(array.raw() for array in arrays)]
            if sum(part.nbytes for part in parts) <= PACKED_BYTES:
                return TaskPartition(task)
            try:
                # closed by `close`, or by the handler below
                file = TemporaryFile(prefix="tailrace-tasks-")  # noqa: SIM115
                self._files.append(file)
                return PlacedPartition(_place(file, parts))
            except OSError as error:
                raise spool_failed(error, sum(part.nbytes for part in parts)) from error

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
    """Yield offset and size of each part in the file, both in bytes."""
    first = _ALIGNED
    for size in sizes:
        yield first, size
        first += -(-size // _ALIGNED) * _ALIGNED


def _place(file: IO[bytes], parts: Sequence[memoryview]) -> _Place:
    """Write the parts of a task into a file; return their place."""
    mark = secrets.token_bytes(_MARK_BYTES)
    file.write(mark)
    sizes = tuple(part.nbytes for part in parts)
    for part, (first, _) in zip(parts, _starts(sizes), strict=True):
        file.seek(first)
        file.write(part)
    file.flush()
    return _Place(os.getpid(), file.fileno(), mark, sizes)
