"""Which deliberate error an exception out of Spark stands for. No I/O.

An error that the planner or a worker raises reaches the driver as text inside a Java exception, often several
times: with Python's traceback, and again as the cause of what failed because of it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

from tailrace import errors
from tailrace.errors import TailraceError

_OWN = re.compile(r"\b(tailrace(?:\.\w+)*)\.(\w+): ([^\n]*(?:\n +(?!at |File |SQLSTATE)[^\n]*)*)")

Foreign = Callable[[str], TailraceError | None]
"""The error that a text of exceptions of others describes, as `tailrace.sinks.base.Sink.failure` finds it."""


def cause(error: BaseException, foreign: Foreign | None = None) -> TailraceError | None:
    """The deliberate error behind `error`: itself, one of its causes, or one that their texts describe.

    Where no text describes one of ours, `foreign` is asked: the sink's `failure`.
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
    """The deliberate error that a text of exceptions describes; the first, which is the innermost one raised."""
    for found in _OWN.finditer(text):
        kind = _kind(found[1], found[2])
        if kind is not None:
            return kind(_unescaped(found[3]).rstrip())
    return None if foreign is None else foreign(text)


def _kind(module: str, name: str) -> type[TailraceError] | None:
    """Return the class of `tailrace.errors` that a class of ours is, or is derived from; None for any other name."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    if not (isinstance(found, type) and issubclass(found, TailraceError)):
        return None
    return next(kind for kind in found.__mro__ if kind.__module__ == errors.__name__)


def _unescaped(text: str) -> str:
    """Without what a JSON log line around the text may have left of line ends."""
    return text.partition("\\n")[0]
