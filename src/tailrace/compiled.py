"""How functions are compiled, and where they are kept from one process to the next. Every process.

A compiled function (a kernel) is compiled on its first call in a process, once for each set of argument types, and kept
in numba's cache, from which later processes load it. numba keeps it beside the source, or in the user's cache
directory. Where it can write to neither (a container with a file system that is read only, a service without a home),
it would refuse to compile at all; so `settle` runs when the package is imported.

The cache does not see a change of functions in another file than the kernel that calls them: after such a change,
remove the *.nbi and *.nbc files of the callers.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME = "NUMBA_CACHE_DIR"


@overload
def kernel(function: _Function, /) -> _Function: ...


@overload
def kernel(*, leaf: bool = ..., inlined: bool = ...) -> Callable[[_Function], _Function]: ...


def kernel(function: Any = None, /, *, leaf: bool = False, inlined: bool = False) -> Any:
    """The function, compiled on its first use; it runs without the GIL, checks no bounds and never raises.

    A `leaf` makes no arrays and does not count references to those that it is given, since its callers hold them:
    counting is atomic, and took half of the time of the kernels of dates and integers. What is `inlined` becomes part
    of each caller: a call passes every array as seven numbers, and costs more than most of what it does.
    """
    # numba takes long to import, and this module is imported with the package.
    from numba import njit

    options: dict[str, Any] = {"cache": True, "nogil": True}
    if leaf:
        options["_nrt"] = False
    if inlined:
        options["forceinline"] = True

    def compiled(function: _Function) -> _Function:
        return cast(_Function, _forgiving(njit(**options)(function)))

    return compiled if function is None else compiled(function)


def _forgiving(made: Any) -> Any:
    """A compiled function for which a cache that names a class which is gone, as after an update, counts as empty.

    numba reads the types of a cache before it compares the source: it would fail where a tuple's class has moved.
    """
    kept = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if kept is not None:
        load = kept._load_index

        def loaded() -> Any:
            try:
                return load()
            except (AttributeError, ImportError):
                return {}

        kept._load_index = loaded
    return made


def settle() -> None:
    """Name a directory of this user's own in the temporary one, where numba finds no other that it can write to.

    Processes that are started from here use the same one.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    given = os.environ.get(_NAME)
    places = [*([Path(given)] if given else []), Path(__file__).parent / "values" / "__pycache__", home / "numba"]
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
