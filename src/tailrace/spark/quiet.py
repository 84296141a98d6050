"""Runs a module of PySpark as `python -m` does, without stack traces from a process that the JVM has left alone.

A query that is stopped ends its planner and its tasks by closing their sockets. Over Unix sockets they notice before
they are ended, and print it at length; the JVM, which has closed them, knows. Planner and workers of a local session:
`tailrace.spark.python` starts them by this file, so it imports what any Python has loaded already.

PySpark's daemon makes a process for each worker, which would import what it needs anew: most of a second of each. So
the daemon imports it before (`LOADED`), and its workers share it. Where there is a fork server, the daemon has it from
there.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any

LOADED = "TAILRACE_LOADED"
"""The environment variable that names the modules that tasks need, with commas."""

DAEMON, TASKS = "pyspark.daemon", "pyspark.worker"


def is_left_alone(error: BaseException | None) -> bool:
    """Whether the JVM has closed the socket that `error` is about, or has none any more for a process that starts."""
    if isinstance(error, (BrokenPipeError, ConnectionResetError)):
        return True
    condition = getattr(error, "getCondition", None)
    return callable(condition) and condition() == "CANNOT_OPEN_SOCKET"


def _write(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not is_left_alone(error):
        sys.__excepthook__(kind, error, trace)


_print_exc = traceback.print_exc


def _print(*arguments: Any, **named: Any) -> None:
    """The daemon prints the errors of its workers by this function."""
    is_daemon = sys._getframe(1).f_globals.get("__spec__") is getattr(sys.modules["__main__"], "__spec__", None)
    if not (is_daemon and is_left_alone(sys.exc_info()[1])):
        _print_exc(*arguments, **named)


def load(*workers: str) -> None:
    """Import the modules `workers` and what tasks need. What fails here fails where it is needed too, which says so."""
    named = os.environ.get(LOADED, "")
    for module in (*workers, *(["tailrace.spark.source", *named.split(",")] if named else [])):
        with suppress(Exception):
            import_module(module)
    if named and TASKS in workers:
        with suppress(Exception):
            from tailrace.spark.warm import compile_functions

            compile_functions()
    # A worker that looks at none of these objects copies none of their pages.
    gc.freeze()


def run(arguments: list[str]) -> None:
    """Run the module that `arguments` name, after -m, with those behind it."""
    sys.excepthook = _write
    traceback.print_exc = _print
    # what `python -m` has there
    sys.path[0] = os.getcwd()
    sys.argv[:] = arguments[1:]
    if sys.argv[0] == DAEMON and len(sys.argv) > 1:
        load(sys.argv[1])
    # one that is imported already would be warned of
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(sys.argv[1:])
