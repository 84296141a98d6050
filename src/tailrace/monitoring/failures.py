"""The search for the deliberate error in an exception of Spark.

An error that the planner or a worker raises reaches the driver as text inside a Java exception, often several times:
with Python's traceback, and again as the cause of further failures.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

from tailrace import errors
from tailrace.errors import TailraceError
from tailrace.process import disk

_OWN = re.compile(r"\b(tailrace(?:\.\w+)*)\.(\w+): ([^\n]*(?:\n +(?!at |File |SQLSTATE)[^\n]*)*)")

Foreign = Callable[[str], TailraceError | None]
"""Finds the error in a text of foreign exceptions, as `tailrace.sinks.base.Sink.failure` does."""


def cause(error: BaseException, foreign: Foreign | None = None) -> TailraceError | None:
    """Return the deliberate error behind `error`: itself, one of its causes, or one found in their texts.

    If the texts hold no TailraceError, calls `foreign` with them: the sink's `failure`. Last comes a disk that is full.
    """
    full: TailraceError | None = None
    seen: set[int] = set()
    at: BaseException | None = error
    texts: list[str] = []
    while at is not None and id(at) not in seen:
        if isinstance(at, TailraceError):
            return at
        seen.add(id(at))
        texts.append(str(at))
        full = full or (disk.failed(at) if isinstance(at, OSError) else None)
        at = at.__cause__ or at.__context__
    return recognise("\n".join(texts), foreign) or full


def recognise(text: str, foreign: Foreign | None = None) -> TailraceError | None:
    """Return the first TailraceError in a text of exceptions, which is the innermost; else the result of `foreign`."""
    for found in _OWN.finditer(text):
        kind = _kind(found[1], found[2])
        if kind is not None:
            return kind(_unescaped(found[3]).rstrip())
    return None if foreign is None else foreign(text)


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
