"""Compiled functions (kernels) and the cache that keeps them from one process to the next. Every process.

A kernel is compiled on its first call, once for each set of argument types, and kept in numba's cache, from which later
processes load it. The cache is beside the source or in the user's cache directory. If numba can write to neither (a
container with a read-only file system, a service without a home), it refuses to compile; so `settle` runs when the
package is imported.

numba compares a kernel's own source with the compiled one, but not the sources of functions that the kernel calls and
of constants. After an update in place it would run outdated code. So a cache is used only if all of these sources are
unchanged (`_stamp`).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME = "NUMBA_CACHE_DIR"
_IMPORTS = re.compile(rb"^(?:from ([\w.]+) import (?:\(([^)]*)\)|(.*))|import ([\w.]+))", re.MULTILINE)


@overload
def kernel(function: _Function, /) -> _Function: ...


@overload
def kernel(*, leaf: bool = ..., inlined: bool = ...) -> Callable[[_Function], _Function]: ...


def kernel(function: Any = None, /, *, leaf: bool = False, inlined: bool = False) -> Any:
    """Compile a function on its first use; it runs without the GIL, checks no bounds and must not raise.

    A `leaf` makes no arrays and does not count references to its arguments, which its callers hold: counting is atomic,
    and took half of the time of the kernels for dates and integers. An `inlined` function becomes part of each caller:
    a call passes every array as seven numbers, and often costs more than its work.
    """
    # numba takes long to import, and this module is imported with the package.
    from numba import njit

    options: dict[str, Any] = {"cache": True, "nogil": True}
    if leaf:
        options["_nrt"] = False
    if inlined:
        options["forceinline"] = True

    def compiled(function: _Function) -> _Function:
        return cast(_Function, _kept(njit(**options)(function)))

    return compiled if function is None else compiled(function)


def _kept(made: Any) -> Any:
    """Patch the cache of a compiled function: it counts as empty if any of the function's sources has changed, or if it
    names a class that no longer exists.

    numba reads the types of a cache before it compares the source: it would fail if a tuple's class has moved.
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
        kept._source_stamp = kept._source_stamp, _stamp(inspect.getfile(made.py_func), made.py_func.__module__)
    return made


@cache
def _stamp(path: str, module: str) -> bytes:
    """Return a digest of all sources that kernels of `module`, in the file `path`, may be compiled from.

    These are the file itself, the modules of its package and of tailrace that it imports, and the imports of those
    modules that have kernels.
    """
    found: dict[str, bytes] = {}
    _gather(path, tuple({f"{module.partition('.')[0]}.", "tailrace."}), found)
    return hashlib.sha256(b"".join(sorted(found.values()))).digest()


def _gather(path: str, packages: tuple[str, ...], found: dict[str, bytes]) -> None:
    digest, imported = _source(path)
    found[path] = digest
    for name in imported:
        source = getattr(sys.modules.get(name), "__file__", None) if name.startswith(packages) else None
        if source is not None and source not in found:
            found[source], further = _source(source)
            if __name__ in further:
                _gather(source, packages, found)


@cache
def _source(path: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the digest of a source, and the names of modules that it may import at its top."""
    try:
        text = Path(path).read_bytes()
    except OSError:
        # for example in an archive; numba at least compares the kernel's own source
        return b"", ()
    return hashlib.sha256(text).digest(), tuple(_imported(text))


def _imported(text: bytes) -> Iterator[str]:
    for found in _IMPORTS.finditer(text):
        module, several, one, plain = (part.decode() if part else "" for part in found.groups())
        yield module or plain
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", several or one.partition("#")[0]):
            yield f"{module}.{name}"


def settle() -> None:
    """If numba cannot write to its cache directories, name a private one in the system's temporary directory.

    Child processes use the same directory.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    given = os.environ.get(_NAME)
    places = [*([Path(given)] if given else []), Path(__file__).parents[1] / "values" / "__pycache__", home / "numba"]
    if any(map(_is_writable, places)):
        return
    try:
        found = str(_own())
    except OSError:
        # numba will raise the error
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
    """Create and return a directory that no other user can write to, because its content is executed."""
    place = Path(tempfile.gettempdir()) / f"tailrace-compiled-{os.geteuid()}"
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="tailrace-compiled-"))
    return place
