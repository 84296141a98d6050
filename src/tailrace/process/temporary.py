"""Temporary directories that are removed after their process, however it ends. Driver, planner, worker.

A process holds a lock on a file in its directory, and the lock ends with the process, even if it is killed. A process
that makes a directory and gets the lock of another one knows that its owner has ended, and removes it. This also works
if containers with process numbers of their own share the system's temporary directory.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_LOCK = "owner.lock"
_held: list[int] = []
_swept: set[tuple[str, str]] = set()


def folder(prefix: str) -> str:
    """Make a directory that only this user can read, and that is removed when the process ends.

    The first call of a process also removes directories with the same prefix that killed processes have left.
    """
    # once: a process with many planners would look at all their directories for each
    if (place := (tempfile.gettempdir(), prefix)) not in _swept:
        _swept.add(place)
        sweep(prefix)
    made = tempfile.mkdtemp(prefix=prefix)
    atexit.register(_remove, made, os.getpid())
    new = Path(made, f"{_LOCK}.new")
    handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    # renamed after locking: under its final name the file is always locked
    new.rename(Path(made, _LOCK))
    _held.append(handle)
    return made


def can_share_files() -> bool:
    """Return True if a process can open another process's files by their descriptors in /proc, as on Linux."""
    with tempfile.TemporaryFile() as file:
        return os.path.exists(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def sweep(prefix: str) -> None:
    """Remove this user's directories with that prefix whose processes have ended."""
    for found in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if found.is_symlink() or found.stat().st_uid != os.geteuid():
                continue
            handle = os.open(found / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(handle)


def _remove(made: str, owner: int) -> None:
    # a forked process inherits the exit handlers of its parent
    if os.getpid() == owner:
        shutil.rmtree(made, ignore_errors=True)
