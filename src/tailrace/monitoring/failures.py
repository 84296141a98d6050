"""The search for the deliberate error in an exception of Spark. No I/O.

An error that the planner or a worker raises reaches the driver as text inside a Java exception, often several times:
with Python's traceback, and again as the cause of further failures.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence

from tailrace import errors
from tailrace.errors import TailraceError

_OWN = re.compile(r"\b(tailrace(?:\.\w+)*)\.(\w+): ([^\n]*(?:\n +(?!at |File |SQLSTATE)[^\n]*)*)")

_DISK = {
    "No space left on device": "No space is left on a disk",
    "Disk quota exceeded": "The quota is used up on a disk",
    "Read-only file system": "A file system is read-only",
}
"""The system's words in exceptions of Java and Python, with what they mean."""

Foreign = Callable[[str], TailraceError | None]
"""Finds the error in a text of foreign exceptions, as `tailrace.sinks.base.Sink.failure` does."""


def cause(error: BaseException, foreign: Foreign | None = None) -> TailraceError | None:
    """Return the deliberate error behind `error`: itself, one of its causes, or one found in their texts.

    If the texts hold no TailraceError, calls `foreign` with them: the sink's `failure`.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    texts: list[str] = []
    while at is not None and id(at) not in seen:
        if isinstance(at, TailraceError):
            return at
        seen.add(id(at))
        texts.append(str(at))
        at = at.__cause__ or at.__context__
    return recognise("\n".join(texts), foreign)


def recognise(text: str, foreign: Foreign | None = None) -> TailraceError | None:
    """Return the first TailraceError in a text of exceptions, which is the innermost; else the result of `foreign`."""
    for found in _OWN.finditer(text):
        kind = _kind(found[1], found[2])
        if kind is not None:
            return kind(_unescaped(found[3]).rstrip())
    return None if foreign is None else foreign(text)


def disk_failure(text: str, places: Sequence[str]) -> TailraceError | None:
    """Return the error for a disk that takes no files, if a text of exceptions has the system's words for it.

    The words name no file, so the message names the `places` where the run writes.
    """
    said = next((meaning for words, meaning in _DISK.items() if words in text), None)
    if said is None:
        return None
    return TailraceError(
        f"{said} that the run writes to: {', '.join(places[:-1])} or {places[-1]}.",
        "Make room there, or name other directories, and start again: the run goes on from its checkpoint.",
    )


def _kind(module: str, name: str) -> type[TailraceError] | None:
    """Return the class of `tailrace.errors` that the named class is or derives from; None for other names."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    if not (isinstance(found, type) and issubclass(found, TailraceError)):
        return None
    return next(kind for kind in found.__mro__ if kind.__module__ == errors.__name__)


def _unescaped(text: str) -> str:
    """Cut the text at an escaped line end, which remains if the text was inside a JSON log line."""
    return text.partition("\\n")[0]
