"""Time, threads and waiting, as a planner's parts use them: the machine's own, or those that a test puts there.

Whoever waits or asks for the time does it through the Runtime that it was given. So a test can run a planner and its
reader in steps, and let an hour pass at once. Planner.
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
    """A lock, and the wait for a change of what it guards; as threading.Condition."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up until `notify_all`, at most `timeout` seconds."""
        ...

    def notify_all(self) -> None: ...


class Event(Protocol):
    """Something that happens once; as threading.Event."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """What `Runtime.start` has started."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class Bell(Protocol):
    """Ends another thread's wait in `Runtime.ready`: it is ready to be read from `ring` to `silence`."""

    def fileno(self) -> int: ...

    def ring(self) -> None: ...

    def silence(self) -> None: ...

    def close(self) -> None: ...


class Helper(Protocol):
    """A thread that does one thing after another for the one that started it; as an executor of one thread."""

    def submit(self, call: Callable[..., Result], /, *args: Any) -> Future[Result]:
        """Have `call(*args)` done."""
        ...

    def wait(self, future: Future[Any]) -> None:
        """Wait until what was submitted is done, or has failed."""
        ...

    def close(self) -> None:
        """Wait for what is being done; nothing else is begun."""
        ...


class Runtime(Protocol):
    """How time passes and who runs."""

    def monotonic(self) -> float:
        """Seconds since some moment; never less than before."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since 1970, by the clock on the wall."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def condition(self) -> Condition: ...

    def event(self) -> Event: ...

    def bell(self) -> Bell: ...

    def start(self, run: Callable[[], None], name: str) -> Thread:
        """Run `run` beside the caller; the process may end without it."""
        ...

    def helper(self, name: str) -> Helper:
        """A thread of its own for what is submitted; it begins with the first thing."""
        ...

    def ready(self, descriptors: tuple[int, ...], seconds: float, events: int = select.POLLIN) -> set[int]:
        """The descriptors on which something has come or gone; waits at most `seconds` for the first."""
        ...


class _SocketBell:
    """A pair of sockets."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)

    def fileno(self) -> int:
        return self._near.fileno()

    def ring(self) -> None:
        # a bell that rings already, or that is gone
        with suppress(OSError):
            self._far.send(b"!")

    def silence(self) -> None:
        with suppress(OSError):
            self._near.recv(4096)

    def close(self) -> None:
        self._near.close()
        self._far.close()


class _ThreadHelper:
    """A pool of one thread."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)

    def submit(self, call: Callable[..., Result], /, *args: Any) -> Future[Result]:
        return self._pool.submit(call, *args)

    def wait(self, future: Future[Any]) -> None:
        wait([future])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Threads:
    """The machine's own time, threads and descriptors."""

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
        # `select` fails for a descriptor above 1,023, and a program around this one may have as many open
        waiting = select.poll()
        for descriptor in descriptors:
            waiting.register(descriptor, events)
        return {descriptor for descriptor, _ in waiting.poll(seconds * 1000)}


THREADS: Runtime = Threads()
