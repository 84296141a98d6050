"""Ctrl-C and SIGTERM: the first asks a run to stop, the second ends the process. Main thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

INTERRUPTED = 130
"""Exit code after a second Ctrl-C, which ends the process at once."""


class StopRequest:
    """The handler of Ctrl-C and SIGTERM: the first asks for a regular stop, the second ends the process at once.

    Before `postpone` there is nothing to finish, so the first raises SystemExit(0).
    """

    def __init__(self, leave: Callable[[int], Any] = os._exit) -> None:
        self._woken = threading.Event()
        self._is_asked = False
        self._leave = leave
        self._running = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def postpone(self) -> None:
        """Do not raise from now on: a query is starting or running, and the caller checks `asked` or `wait`."""
        self._running = True

    @property
    def asked(self) -> bool:
        return self._is_asked

    def wait(self, seconds: float) -> bool:
        """Wait for a signal or a call of `wake`, at most `seconds`; return True if a signal came."""
        if self._woken.wait(seconds) and not self._is_asked:
            self._woken.clear()
        return self._is_asked

    def wake(self) -> None:
        """End the current `wait`, or the next one. Any thread."""
        self._woken.set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            # The JVM ends when the pipe from this process closes.
            self._leave(INTERRUPTED)
        self._is_asked = True
        self._woken.set()
        if not self._running:
            raise SystemExit(0)
