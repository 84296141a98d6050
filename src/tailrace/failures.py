"""Which deliberate error an exception out of Spark stands for. No I/O.

An error that the planner or a worker raises reaches the driver as text inside a Java exception, often several
times: with Python's traceback, and again as the cause of what failed because of it.
"""

from __future__ import annotations

import re

from tailrace import errors
from tailrace.errors import SinkError, TailraceError

_OWN = re.compile(r"\btailrace\.errors\.(\w+): ([^\n]*(?:\n +(?!at |File |SQLSTATE)[^\n]*)*)")
_KAFKA = re.compile(r"\b(?:org\.apache\.kafka\.[\w.]*?)(\w+Exception): ([^\n]+)")


def cause(error: BaseException) -> TailraceError | None:
    """The deliberate error behind `error`: itself, one of its causes, or one that their texts tell of."""
    seen: set[int] = set()
    at: BaseException | None = error
    texts: list[str] = []
    while at is not None and id(at) not in seen:
        if isinstance(at, TailraceError):
            return at
        seen.add(id(at))
        texts.append(str(at))
        at = at.__cause__ or at.__context__
    return recognise("\n".join(texts))


def recognise(text: str) -> TailraceError | None:
    """The deliberate error that a text of exceptions tells of; the first, which is the innermost one raised."""
    for found in _OWN.finditer(text):
        kind = getattr(errors, found.group(1), None)
        if isinstance(kind, type) and issubclass(kind, TailraceError):
            return kind(_unescaped(found.group(2)).rstrip())
    kafka = _KAFKA.search(text)
    if kafka:
        return SinkError(
            f"Kafka refuses the records or cannot be reached: {kafka.group(2).strip()} ({kafka.group(1)}).",
            "Check debezium.sink.kafka.producer.* and the broker.",
        )
    return None


def _unescaped(text: str) -> str:
    """Without what a JSON log line around the text may have left of line ends."""
    return text.partition("\\n")[0]
