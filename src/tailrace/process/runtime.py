"""Runtime: time, threads and waiting for the planner, from the machine or from a test. Planner.

The planner's parts wait, and ask for the time, only through a given Runtime. So a test can run a planner and its reader
in steps, and let an hour pass at once.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Condition(Protocol):
    """A lock, and the wait for changes of the guarded data, like threading.Condition."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock and wait for `notify_all`, at most `timeout` seconds."""
        ...

    def notify_all(self) -> None: ...


class Event(Protocol):
    """A flag that is set once, like threading.Event."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """A thread that `Runtime.start` has started."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class Bell(Protocol):
    """A descriptor that ends another thread's wait in `Runtime.ready`: it is readable from `ring` to `silence`."""

    def fileno(self) -> int: ...

    def ring(self) -> None: ...

    def silence(self) -> None: ...

    def close(self) -> None: ...


class Helper(Protocol):
    """A thread that runs submitted calls one after another, like an executor of one thread."""

    def submit(self, call: Callable[..., Result], /, *args: Any) -> Future[Result]:
        """Run `call(*args)` after the calls submitted before."""
        ...

    def wait(self, future: Future[Any]) -> None:
        """Wait until a submitted call has returned or failed."""
        ...

    def close(self) -> None:
        """Wait for the running call; cancel calls that have not begun."""
        ...


class Runtime(Protocol):
    """A source of time, threads and waiting."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed moment; never decreases."""
        ...

    def time_ns(self) -> int:
        """Return the nanoseconds since 1970 by the system's clock."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def condition(self) -> Condition: ...

    def event(self) -> Event: ...

    def bell(self) -> Bell: ...

    def start(self, run: Callable[[], None], name: str) -> Thread:
        """Run `run` in a daemon thread."""
        ...

    def helper(self, name: str) -> Helper:
        """Return a helper, whose thread starts with the first call."""
        ...

    def ready(self, descriptors: tuple[int, ...], seconds: float, events: int = select.POLLIN) -> set[int]:
        """Return the descriptors with events; waits at most `seconds` for the first."""
        ...


class _SocketBell:
    """A bell of two connected sockets."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)

    def fileno(self) -> int:
        return self._near.fileno()

    def ring(self) -> None:
        # OSError: the bell already rings, or is closed.
        with suppress(OSError):
            self._far.send(b"!")

    def silence(self) -> None:
        with suppress(OSError):
            self._near.recv(4096)

    def close(self) -> None:
        self._near.close()
        self._far.close()


class _ThreadHelper:
    """A helper on a pool of one thread."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)

    def submit(self, call: Callable[..., Result], /, *args: Any) -> Future[Result]:
        return self._pool.submit(call, *args)

    def wait(self, future: Future[Any]) -> None:
        wait([future])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Threads:
    """The runtime of the machine: its time, threads and descriptors."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def condition(self) -> Condition:
        return threading.Condition()

    def event(self) -> Event:
        return threading.Event()

    def bell(self) -> Bell:
        return _SocketBell()

    def start(self, run: Callable[[], None], name: str) -> Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def helper(self, name: str) -> Helper:
        return _ThreadHelper(name)

    def ready(self, descriptors: tuple[int, ...], seconds: float, events: int = select.POLLIN) -> set[int]:
        # `select` fails for descriptors above 1,023, and the process may have that many open.
        waiting = select.poll()
        for descriptor in descriptors:
            waiting.register(descriptor, events)
        return {descriptor for descriptor, _ in waiting.poll(seconds * 1000)}


THREADS: Runtime = Threads()
