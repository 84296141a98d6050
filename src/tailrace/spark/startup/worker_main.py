"""The runner of PySpark's modules: like `python -m`, but without stack traces when the JVM has closed the socket.

A query that is stopped closes the sockets of its planner and its tasks. Over Unix sockets, the processes notice this
before they are ended, and would print long stack traces. `spark.startup.python` starts this file for the planner and
the workers of a local session. The file therefore imports only modules that any Python has already loaded.

PySpark's daemon makes a process for each worker, and each would spend most of a second on imports. The daemon therefore
imports their modules (`LOADED`) beforehand, and the workers share them. With a fork server, the daemon inherits them.
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
"""The environment variable with the names of the modules that tasks need, separated by commas."""

DAEMON, TASKS = "pyspark.daemon", "pyspark.worker"
_OWN = ("tailrace.spark.source", "tailrace.spark.stream_reader")


def is_left_alone(error: BaseException | None) -> bool:
    """Return True if `error` means that the JVM has closed the process's socket, or no longer listens for it."""
    if isinstance(error, (BrokenPipeError, ConnectionResetError)):
        return True
    condition = getattr(error, "getCondition", None)
    return callable(condition) and condition() == "CANNOT_OPEN_SOCKET"


def _write(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not is_left_alone(error):
        sys.__excepthook__(kind, error, trace)


_print_exc = traceback.print_exc


def _print(*arguments: Any, **named: Any) -> None:
    """Replace `traceback.print_exc`, by which the daemon prints the errors of its workers."""
    is_daemon = sys._getframe(1).f_globals.get("__spec__") is getattr(sys.modules["__main__"], "__spec__", None)
    if not (is_daemon and is_left_alone(sys.exc_info()[1])):
        _print_exc(*arguments, **named)


def load(*workers: str) -> None:
    """Import the modules `workers` and those that tasks need. Ignores errors: they recur where a module is needed."""
    named = os.environ.get(LOADED, "")
    for module in (*workers, *([*_OWN, *named.split(",")] if named else [])):
        with suppress(Exception):
            import_module(module)
    if named and TASKS in workers:
        with suppress(Exception):
            from tailrace.spark.startup.warm_workers import compile_functions

            compile_functions()
    # The garbage collector would write to these objects, and thereby copy their pages in every worker.
    gc.freeze()


def run(arguments: list[str]) -> None:
    """Run a module: `arguments` are those of `python`, from -m on."""
    sys.excepthook = _write
    traceback.print_exc = _print
    # as `python -m` sets it
    sys.path[0] = os.getcwd()
    sys.argv[:] = arguments[1:]
    if sys.argv[0] == DAEMON and len(sys.argv) > 1:
        load(sys.argv[1])
    # runpy warns of a module that is imported already
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(sys.argv[1:])
