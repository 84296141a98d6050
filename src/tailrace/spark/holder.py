"""The process that keeps a snapshot open while Spark reads it: the one that plans a read ends before the tasks begin.

It is made by the planning process, gets the configuration by a pipe, gives the tasks back by another one, and stays.
It ends when the process that serves Spark's driver does, or when no task has read for `read.hold.ms`.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import ProcessLost, TailraceError

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.connectors.held import Held
    from tailrace.events.settings import EventSettings
    from tailrace.log.planner import Task

log = logging.getLogger("tailrace")

_LOOK_S = 1.0
"""How often it looks whether it is still needed."""


def tasks_of(config: Config, settings: EventSettings) -> Sequence[Task]:
    """The tasks of a read, whose snapshot a new process keeps open. Planning process.

    Raises TailraceError as the connector does; ProcessLost where the process ends before it has given an answer.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        # the parent is Spark's: it is there for as long as its driver is
        child.stdin.write(pickle.dumps((config, settings, os.getppid())))
        child.stdin.close()
        said = child.stdout.read()
    # it outlives this process, and nobody waits for its end
    child.returncode = 0
    if not said:
        raise ProcessLost("The process that holds the snapshot has ended.", "See its log above, and read again.")
    found = pickle.loads(said)
    if isinstance(found, TailraceError):
        raise found
    tasks: Sequence[Task] = found
    return tasks


def stay(held: Held, hold_s: float, is_wanted: Callable[[], bool], clock: Callable[[], float], pause: Any) -> None:
    """Return when `is_wanted` says no, or when nobody has read for `hold_s` seconds. Holder process."""
    since = clock()
    while is_wanted() and clock() - since < hold_s:
        pause(_LOOK_S)
        if held.is_read():
            since = clock()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _quiet() -> None:
    """Give up what came from the parent: whoever waits for its output would wait for this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def main() -> int:
    config, settings, parent = pickle.loads(sys.stdin.buffer.read())
    from tailrace.connectors import registry

    try:
        reading = registry.find(config.connector).load_held()
        assert reading is not None
        held = reading(config, settings)
    except TailraceError as error:
        sys.stdout.buffer.write(pickle.dumps(error))
        return error.exit_code
    try:
        sys.stdout.buffer.write(pickle.dumps(held.tasks))
        sys.stdout.buffer.flush()
        _quiet()
        if held.stays:
            stay(held, config["read.hold.ms"] / 1000, lambda: _is_alive(parent), time.monotonic, time.sleep)
    except TailraceError as error:
        log.warning("the snapshot is lost: %s", error.message)
        return error.exit_code
    finally:
        held.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
