"""A checkpoint has one run at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.errors import CheckpointInUse, ConfigError, DiskFailed
from tailrace.spark.lock import FILE, CheckpointLock, is_held

HOLD = """
import subprocess, sys
from pathlib import Path
from tailrace.spark.lock import CheckpointLock
lock = CheckpointLock(Path(sys.argv[1]))
lock.acquire()
# As the JVM of a run: it has the file too, and lives as long as its input.
child = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE if sys.argv[2] == "alone" else None,
                         stdout=subprocess.DEVNULL, pass_fds=lock.files)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(checkpoint: Path, child: str = "alone") -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(checkpoint), child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
            process.stdin.close()


def test_a_second_run_is_told_of_the_first(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with held(checkpoint) as process:
        with pytest.raises(CheckpointInUse) as refused:
            CheckpointLock(checkpoint).acquire()
        assert refused.value.message == f"The checkpoint {checkpoint} is in use by another run, process {process.pid}."
        assert refused.value.remedy
    CheckpointLock(checkpoint).acquire()


def test_a_run_waits_for_the_jvm_of_one_that_was_killed(tmp_path: Path) -> None:
    with held(tmp_path, "outlives") as process:
        process.kill()
        process.wait()
        # The child still has the lock, and no live process does, so it is awaited; here not at all.
        with pytest.raises(CheckpointInUse, match=f"process {process.pid}"):
            CheckpointLock(tmp_path).acquire(patience_s=0)
        assert process.stdin is not None
        process.stdin.close()
        lock = CheckpointLock(tmp_path)
        lock.acquire()
        assert json.loads((tmp_path / FILE).read_text())["pid"] == os.getpid()
        lock.release()


def test_a_lock_that_was_released_is_free_although_the_jvm_lives(tmp_path: Path) -> None:
    lock = CheckpointLock(tmp_path)
    lock.acquire()
    child = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, pass_fds=lock.files)
    try:
        with pytest.raises(CheckpointInUse, match="in use"):
            CheckpointLock(tmp_path).acquire()
        lock.release()
        lock.release()
        other = CheckpointLock(tmp_path)
        other.acquire()
        other.release()
    finally:
        child.communicate(b"")


def test_a_lock_that_nobody_refers_to_is_free(tmp_path: Path) -> None:
    lock = CheckpointLock(tmp_path)
    lock.acquire()
    del lock
    CheckpointLock(tmp_path).acquire()


def test_a_run_of_another_host_counts_as_alive(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / FILE).write_text(json.dumps({"pid": 1 << 22, "host": "elsewhere.example"}))
        with pytest.raises(CheckpointInUse, match=r"process 4194304 on elsewhere\.example"):
            CheckpointLock(tmp_path).acquire()


def test_who_asks_whether_it_is_held_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_held` holds the lock for a moment, when its last holder is alive."""
    first = CheckpointLock(tmp_path)
    first.acquire()
    first.release()
    asking = os.open(tmp_path / FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr("tailrace.spark.lock.time.sleep", lambda seconds: fcntl.flock(asking, fcntl.LOCK_UN))
    CheckpointLock(tmp_path).acquire()
    os.close(asking)


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/checkpoint cannot be written"):
        CheckpointLock(tmp_path / "file" / "checkpoint").acquire()


@pytest.mark.parametrize("step", ["open", "pwrite"])
def test_a_disk_that_is_full_may_have_room_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(DiskFailed, match=rf"the checkpoint {tmp_path} \(.* MB free\)\. .*checkpoint\.location"):
            CheckpointLock(tmp_path).acquire()
    CheckpointLock(tmp_path).acquire()


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        lock = CheckpointLock(tmp_path)
        lock.acquire()
        lock.release()


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (b"", ""),
        (b"{}", ""),
        (b'{"pid": 7, "host": "elsewhere"}', ", process 7 on elsewhere"),
        # a process of another user
        (json.dumps({"pid": 1, "host": socket.gethostname()}).encode(), ", process 1"),
    ],
)
def test_the_run_that_holds_a_checkpoint_is_named_as_far_as_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bytes, named: str
) -> None:
    def denied(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", denied)
    (tmp_path / FILE).write_bytes(written)
    with open(tmp_path / FILE, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(tmp_path)
        with pytest.raises(CheckpointInUse) as refused:
            CheckpointLock(tmp_path).acquire(patience_s=0)
    assert refused.value.message == f"The checkpoint {tmp_path} is in use by another run{named}."
    assert not is_held(tmp_path)
    assert not is_held(tmp_path / "absent")
