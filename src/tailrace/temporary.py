"""Temporary directories that do not outlive their process for long, however it ends. Driver, planner and worker.

The process holds a lock on a file in its directory. A lock goes with its process, also with one that is killed: whoever
makes the next directory and gets the lock of another one knows that its owner is gone, and removes it. This holds where
containers with process numbers of their own share the system's directory for temporary files, too.
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


def folder(prefix: str) -> str:
    """A new directory, for this user alone, that the end of the process removes.

    Those with the same prefix that killed processes have left are removed.
    """
    sweep(prefix)
    made = tempfile.mkdtemp(prefix=prefix)
    atexit.register(_remove, made, os.getpid())
    new = Path(made, f"{_LOCK}.new")
    handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    # under its name the file is locked from the first moment on
    new.rename(Path(made, _LOCK))
    _held.append(handle)
    return made


def can_share_files() -> bool:
    """Whether a process of this host can open another's files by their descriptors, as Linux has them in /proc."""
    with tempfile.TemporaryFile() as file:
        return os.path.exists(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def sweep(prefix: str) -> None:
    """Remove this user's directories with that prefix whose processes are gone; others are left alone."""
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
    # a forked process ends with the handlers of its parent
    if os.getpid() == owner:
        shutil.rmtree(made, ignore_errors=True)
