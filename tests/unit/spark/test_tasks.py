"""Tasks reach the workers: small ones in Spark's plan, large ones in files without a name."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.connectors.registry import parse
from tailrace.errors import ProcessLost, SpoolFailed
from tailrace.spark.stream_reader import ChangeStreamReader
from tailrace.spark.tasks import PACKED_BYTES, PlacedPartition, TaskFiles, TaskPartition

FIRST, SECOND, THIRD = {"lsn": "1"}, {"lsn": "2"}, {"lsn": "3"}
OPTIONS = {"database.hostname": "db", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


@dataclass(frozen=True)
class Bytes:
    """A task of one row."""

    data: bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": [self.data]})


@dataclass(frozen=True)
class Arrays:
    """A task of arrays as kernels need them: writable, and at aligned addresses."""

    arrays: tuple[np.ndarray[Any, Any], ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        for one in self.arrays:
            assert one.flags.writeable
            assert one.flags.aligned
            np.add(one, 1, out=one)
            yield pa.RecordBatch.from_pydict({"value": [one.tobytes()]})


LARGE, OTHER, SMALL = (Bytes(os.urandom(size)) for size in (3 * PACKED_BYTES, 2 * PACKED_BYTES, 10))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskFiles]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = TaskFiles()
    yield made
    made.close()


def rows(partition: Any) -> list[bytes]:
    """Return what a worker reads of the partition in its transferred form."""
    return [row for batch in pickle.loads(pickle.dumps(partition)).read() for row in batch["value"].to_pylist()]


def open_files(folder: Path) -> int:
    """Return the number of a directory's files that this process holds open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor of the listing itself is closed by now.
        with suppress(FileNotFoundError):
            found += os.readlink(link).startswith(f"{folder}/")
    return found


def test_large_tasks_lie_in_files_without_a_name_and_small_ones_in_the_plan(files: TaskFiles, tmp_path: Path) -> None:
    placed = files.placed(FIRST, SECOND, [LARGE, SMALL, OTHER])
    assert [type(one) for one in placed] == [PlacedPartition, TaskPartition, PlacedPartition]
    assert all(len(pickle.dumps(one)) < 1000 for one in placed)
    assert [rows(one) for one in placed] == [[LARGE.data], [SMALL.data], [OTHER.data]]
    assert not list(tmp_path.iterdir())
    assert open_files(tmp_path) == 2


def test_arrays_are_those_of_the_task_and_each_worker_has_its_own(files: TaskFiles) -> None:
    odd = np.arange(PACKED_BYTES + 1, dtype=np.uint8)
    task = Arrays((odd, np.arange(0, dtype=np.int64), np.arange(1000, dtype=np.int64), odd[::2], odd[:0]))
    (placed,) = files.placed(FIRST, SECOND, [task])
    wanted = [(one + one.dtype.type(1)).tobytes() for one in task.arrays]
    assert type(placed) is PlacedPartition
    assert rows(placed) == rows(placed) == wanted


def test_another_process_reads_them(files: TaskFiles) -> None:
    (placed,) = files.placed(FIRST, SECOND, [LARGE])
    code = "import pickle, sys; print(sum(len(b['value'][0].as_py()) for b in pickle.load(sys.stdin.buffer).read()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    worker = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(placed), capture_output=True, check=True, env=environment
    )
    assert int(worker.stdout) == len(LARGE.data)


def test_a_batch_that_is_planned_again_has_its_files_twice(files: TaskFiles) -> None:
    """Spark plans a batch anew for each query that a function of foreachBatch runs."""
    (once,) = files.placed(FIRST, SECOND, [LARGE])
    (again,) = files.placed(FIRST, SECOND, [LARGE])
    assert rows(once) == rows(again) == [LARGE.data]


def test_they_are_gone_behind_the_batch(files: TaskFiles, tmp_path: Path) -> None:
    (placed,) = files.placed(FIRST, SECOND, [LARGE])
    files.passed(FIRST)
    assert rows(placed) == [LARGE.data]
    files.passed(SECOND)
    assert not open_files(tmp_path)
    with pytest.raises(ProcessLost, match=r"the batch is repeated"):
        rows(placed)


def test_the_next_batch_takes_their_place(files: TaskFiles, tmp_path: Path) -> None:
    (placed,) = files.placed(FIRST, SECOND, [LARGE])
    (later,) = files.placed(SECOND, THIRD, [OTHER])
    assert open_files(tmp_path) == 1
    # The descriptor is the same, and so may be the file's number.
    assert isinstance(placed, PlacedPartition)
    assert isinstance(later, PlacedPartition)
    assert placed.place.descriptor == later.place.descriptor
    with pytest.raises(ProcessLost):
        rows(placed)
    assert rows(later) == [OTHER.data]


def test_a_full_disk_is_an_error_and_leaves_nothing(
    files: TaskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.TemporaryFile

    class Full:
        """A stream that accepts at most PACKED_BYTES."""

        def __init__(self, **options: Any) -> None:
            self._file = made(**options)
            self.close, self.seek = self._file.close, self._file.seek

        def write(self, data: bytes | memoryview) -> Any:
            if self._file.tell() + len(data) > PACKED_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data)

    monkeypatch.setattr("tailrace.spark.tasks.TemporaryFile", Full)
    with pytest.raises(SpoolFailed, match=r"No space left on device; \d+\.\d MB were to be written"):
        files.placed(FIRST, SECOND, [SMALL, LARGE])
    assert not open_files(tmp_path)


def test_workers_get_a_reader_without_files() -> None:
    reader = ChangeStreamReader(parse("postgres", {**OPTIONS, "tasks.in.files": "true"}), "run")
    assert reader._files is not None
    assert pickle.loads(pickle.dumps(reader))._files is None
