"""Disks that take no more files: the system's words for that, the free space, and the error of a run. Any process."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import DiskFailed

_SAID = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EROFS: "Read-only file system",
    errno.EFBIG: "File too large",
}
_MEANT = {
    errno.ENOSPC: "No space is left on a disk",
    errno.EDQUOT: "The quota is used up on a disk",
    errno.EROFS: "A file system is read-only",
    errno.EFBIG: "A limit on the size of files is reached on a disk",
}
_TEMPORARY = "TMPDIR"
# A disk with less free room counts as full: the failed write may have freed its space again.
_FULL = 16 << 20
# A server's error about a large request may have the same words, so these need a prefix.
_WORDS = {code: re.escape(words) for code, words in _SAID.items()}
_WORDS[errno.EFBIG] = rf"(?:IOException: |\[Errno {errno.EFBIG}\] ){_SAID[errno.EFBIG]}"


class Directory(NamedTuple):
    """A directory that a run writes to: its content in words, its path, and the option that names another directory."""

    what: str
    directory: str
    option: str


def temporary() -> Directory:
    """Return the place of temporary files."""
    try:
        directory = tempfile.gettempdir()
    except OSError:
        # every directory that Python tries is full
        directory = os.environ.get(_TEMPORARY, "/tmp")
    return Directory("temporary files in", directory, _TEMPORARY)


def free(place: str | Path) -> int | None:
    """Return the bytes that are free where a directory is or will be made; None if that is unknown."""
    at = Path(place).absolute()
    there = next((path for path in (at, *at.parents) if path.exists()), None)
    try:
        return None if there is None else shutil.disk_usage(there).free
    except OSError:
        return None


def megabytes(count: int) -> str:
    """Return a number of bytes as text."""
    return f"{count / (1 << 20):,.1f} MB"


def failure(text: str, places: Sequence[Directory] = ()) -> DiskFailed | None:
    """Return the error for a disk that takes no files, if a text of exceptions has the system's words for it.

    `places` are the directories of a run; none for a command without a checkpoint. The message names the directory of a
    file in `text`. Without a file it names the full ones of `places`, or all if none is full any more. It says how much
    is free in each.
    """
    code = next((code for code, words in _WORDS.items() if re.search(words, text)), None)
    if code is None:
        return None
    shown = list(places) or [temporary()]
    file = re.search(rf"{_SAID[code]}: '([^'\n]+)'|(/[^\n:()]*) \({_SAID[code]}\)", text)
    if file:
        path = Path(file[1] or file[2])
        inside = [place for place in shown if path.is_relative_to(Path(place.directory).absolute())]
        shown = inside or [Directory("the directory", str(path.parent), "")]
    elif code == errno.ENOSPC:
        shown = [place for place in shown if _is_full(place.directory)] or shown
    named = [f"{what} {directory}{_room(directory)}" for what, directory, _ in shown]
    listed = f"{', '.join(named[:-1])} or {named[-1]}" if named[1:] else named[0]
    options = [option for *_, option in shown if option]
    moved = f", or name another directory in {' or '.join(options)}" if options else ""
    if any(option != _TEMPORARY for option in options):
        moved += "; the files of a checkpoint or a sink go with it"
    kept = ": nothing is lost, and the run goes on from its checkpoint" if places else ""
    return DiskFailed(
        f"{_MEANT[code]} that is written to: {listed}.", f"Make room there{moved}. Then start again{kept}."
    )


def failed(error: OSError, places: Sequence[Directory] = ()) -> DiskFailed | None:
    """Return the result of `failure` if `error` means that a disk takes no more files; None otherwise."""
    return failure(str(error), places) if error.errno in _SAID else None


def _is_full(directory: str) -> bool:
    count = None if "://" in directory else free(directory)
    return count is not None and count < _FULL


def _room(directory: str) -> str:
    count = None if "://" in directory else free(directory)
    return "" if count is None else f" ({megabytes(count)} free)"
