"""Where compiled functions are kept from one process to the next. Runs when the package is imported, in every process.

numba keeps them beside the source, or in the user's cache directory. Where it can write to neither (a container with a
file system that is read only, a service without a home), it would refuse to compile at all.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

_NAME = "NUMBA_CACHE_DIR"


def settle() -> None:
    """Name a directory of this user's own in the temporary one, where numba finds no other that it can write to.

    Processes that are started from here use the same one.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    given = os.environ.get(_NAME)
    places = [*([Path(given)] if given else []), Path(__file__).parent / "serde" / "__pycache__", home / "numba"]
    if any(map(_is_writable, places)):
        return
    try:
        found = str(_own())
    except OSError:
        # numba says that it has nowhere to write
        return
    os.environ[_NAME] = found
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = found


def _is_writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except (OSError, RuntimeError):
        return False


def _own() -> Path:
    """A directory that nobody else can write to: what is in it is run."""
    place = Path(tempfile.gettempdir()) / f"tailrace-compiled-{os.geteuid()}"
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="tailrace-compiled-"))
    return place
