"""The lock of a local checkpoint: one run at a time. Driver and JVM.

Two runs of one checkpoint would share a slot, batches and their files. The lock is a file lock of the operating system
in the checkpoint. It therefore ends with the processes that hold it, however they end. The JVM holds it too: after a
driver is killed, its JVM lives a moment longer and may still be writing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from pathlib import Path

from tailrace.errors import CheckpointInUse, ConfigError, DiskFailed
from tailrace.process import disk

FILE = "tailrace.lock"
PATIENCE_S = 60.0
"""Seconds for which a run waits for the JVM of a dead driver to end."""

_log = logging.getLogger("tailrace")


class CheckpointLock:
    """The lock of the checkpoint in `directory`. The constructor does no I/O."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = -1

    def __del__(self) -> None:
        # For a pipeline whose query ended by itself, without a call of `stop`.
        self.release()

    @property
    def files(self) -> tuple[int, ...]:
        """The file descriptors that the JVM must inherit."""
        return () if self._file < 0 else (self._file,)

    def acquire(self, patience_s: float = PATIENCE_S) -> None:
        """Take the lock; waits for the JVM of a killed run to end.

        Raises CheckpointInUse, naming the process, if another run holds the lock, ConfigError if the directory cannot
        be created, and DiskFailed if a disk is full. On a file system without locks, logs a warning and takes no lock.
        """
        path = self._directory / FILE
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            full = self._full(error)
            if full is not None:
                raise full from None
            raise ConfigError(
                f"The checkpoint {self._directory} cannot be written: {error.strerror}.",
                "Name another directory in checkpoint.location, or get the rights there.",
            ) from None
        try:
            self._lock(file, patience_s)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Release the lock, also the JVM's share of it. May be called twice."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1

    def _lock(self, file: int, patience_s: float) -> None:
        deadline, is_again = time.monotonic() + patience_s, False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(file)
                # another process holds the lock for a moment during `is_held`, so try again once
                if (is_again and _lives(holder)) or time.monotonic() > deadline:
                    raise self._taken(holder) from None
                is_again = True
                time.sleep(0.05)
            except OSError as error:
                _log.warning("The checkpoint %s cannot be locked: %s.", self._directory, error.strerror)
                return
            else:
                break
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except OSError as error:
            raise self._full(error) or error from None

    def _full(self, error: OSError) -> DiskFailed | None:
        return disk.failed(error, [disk.Directory("the checkpoint", str(self._directory), "checkpoint.location")])

    def _taken(self, holder: tuple[int, str]) -> CheckpointInUse:
        pid, host = holder
        where = f" on {host}" if host and host != socket.gethostname() else ""
        named = f", process {pid}{where}" if pid else ""
        return CheckpointInUse(
            f"The checkpoint {self._directory} is in use by another run{named}.",
            "Stop that run or wait for its end; two pipelines need two checkpoints.",
        )


def is_held(directory: Path) -> bool:
    """Return True if a run holds the lock of the checkpoint in `directory`; False on a file system without locks."""
    try:
        file = os.open(directory / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _holder(file: int) -> tuple[int, str]:
    """Return process id and host of the run that took the lock last; `(0, "")` if it has not written them yet."""
    try:
        found = json.loads(os.pread(file, 4096, 0))
        return int(found["pid"]), str(found["host"])
    except (ValueError, KeyError, TypeError):
        return 0, ""


def _lives(holder: tuple[int, str]) -> bool:
    """Return True if the process is alive. A process of another host counts as alive, an unknown one as dead."""
    pid, host = holder
    if host and host != socket.gethostname():
        return True
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
