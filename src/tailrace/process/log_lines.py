"""Log lines on stderr: with time and level as text or JSON, or with a priority for systemd's journal. Every process.

`show` sets the form in the driver and names it in the environment. The JVM and its Python processes inherit that, and
`follow` gives them the same lines.
"""

from __future__ import annotations

import logging
import os
from typing import TextIO

NAME = "tailrace"
"""The name of tailrace's logger."""

FORMS = ("text", "json")
"""The choices of log.format."""

_VARIABLE = "TAILRACE_LOG"
_TIME = "%Y-%m-%d %H:%M:%S"
# Priorities of sd-daemon(3).
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


class _Text(logging.Formatter):
    """Writes a line, and a second one with the remedy, if the record has the attribute `remedy`."""

    def format(self, record: logging.LogRecord) -> str:
        remedy = getattr(record, "remedy", "")
        return super().format(record) + (f"\n  {remedy}" if remedy else "")


class _Journal(_Text):
    """Writes each line behind a priority, and no time, which the journal has."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines to stderr. Made for `tailrace`, or with `others` for the warnings of libraries."""

    def __init__(self, form: str, *, others: bool = False) -> None:
        super().__init__()
        self._is_for_others = others
        self.setFormatter(_formatter(form))
        if others:
            self.setLevel(logging.WARNING)

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._is_for_others:
            return True
        # Py4J logs a stack trace for each call to a JVM that has ended, and raises too.
        return record.name.partition(".")[0] != NAME and f"{os.sep}py4j{os.sep}" not in record.pathname


def _formatter(form: str) -> logging.Formatter:
    if form == "json":
        from pythonjsonlogger.json import JsonFormatter

        names = {"asctime": "timestamp", "levelname": "level", "name": "logger"}
        made = JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z", rename_fields=names
        )
        return made
    if is_journal():
        return _Journal("%(message)s")
    return _Text("%(asctime)s %(levelname)s %(message)s", _TIME)


def is_journal(file: int = 2) -> bool:
    """Return True if `file`, stderr by default, is connected to systemd's journal."""
    try:
        found = os.fstat(file)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{found.st_dev}:{found.st_ino}"


def show(form: str = "text", level: int = logging.INFO) -> None:
    """Write this process's lines of at least `level` to stderr, and those of processes that it will start. Driver."""
    _handle(form, level)
    os.environ[_VARIABLE] = f"{form}:{logging.getLevelName(level)}"
    if level > logging.DEBUG:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, _Handler)]
    if level > logging.DEBUG:
        root.addHandler(_Handler(form, others=True))


def follow() -> None:
    """Write this process's lines as the driver does; warnings as text if it has not called `show`. Planner, worker.

    Does nothing if the process has handlers of its own.
    """
    logger = logging.getLogger(NAME)
    if not logger.hasHandlers():
        form, _, level = os.environ.get(_VARIABLE, "").partition(":")
        known = logging.getLevelNamesMapping().get(level, logging.WARNING)
        _handle(form if form in FORMS else FORMS[0], known)


def _handle(form: str, level: int) -> None:
    logger = logging.getLogger(NAME)
    logger.handlers = [_Handler(form)]
    logger.setLevel(level)


def hide_stacks(*, hidden: bool) -> None:
    """Let PySpark report an error of this process without Python's stack trace, if `hidden`. Planner, worker."""
    if hidden and not logging.getLogger(NAME).isEnabledFor(logging.DEBUG):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
