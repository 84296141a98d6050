"""Time and threads of a simulated machine: everything runs in one real thread, in steps chosen by a seed.

A simulated thread is a greenlet. It runs until it waits or calls the server; then the World chooses the next thread.
Time passes only when all threads wait, and then at once. A killed process ends at such a step.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Protocol

import greenlet

from tailrace.process.runtime import Bell, Condition, Event, Helper, Result, Thread

FOREVER = 1e12


class Killed(BaseException):
    """Raised in a step of a killed process."""


class Stuck(AssertionError):
    """Raised if nothing happens any more, though something should."""


@contextmanager
def noting(note: str) -> Iterator[None]:
    """Add a note to errors raised inside the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


class Readable(Protocol):
    """The object behind a file descriptor."""

    def has_input(self) -> bool: ...


@dataclass(eq=False)
class Running:
    """A thread of a process: its greenlet, and the time and condition for which it waits."""

    process: Process
    body: greenlet.greenlet
    until: float = 0.0
    is_due: Callable[[], bool] | None = None

    def is_alive(self) -> bool:
        return not self.body.dead

    def join(self, timeout: float | None = None) -> None:
        self.process.wait(timeout, lambda: self.body.dead)


class World:
    """The scheduler of all threads."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        # not 0, as on a machine that has been running for a while
        self.now = 1000.0
        self.hub = greenlet.getcurrent()
        self.threads: list[Running] = []
        self.files: dict[int, Readable] = {}
        self.numbers = itertools.count(10)
        self.turns = 0

    def file(self, one: Readable) -> int:
        """Return a new file descriptor for an object."""
        number = next(self.numbers)
        self.files[number] = one
        return number

    def run(self, outside: Callable[[], None], over: Callable[[], bool], most: int) -> None:
        """Let the threads run until it is `over`. Raises Stuck after `most` turns.

        `outside` is called between two steps: it may change the server, or kill a process.
        """
        for _ in range(most):
            if over():
                return
            self.turns += 1
            outside()
            self._turn()
        raise Stuck(f"not over after {most} turns")

    def _turn(self) -> None:
        threads = self.threads = [one for one in self.threads if one.is_alive()]
        if not threads:
            return
        able = [one for one in threads if one.until <= self.now or (one.is_due is not None and one.is_due())]
        if not able:
            next_due = min(one.until for one in threads)
            if next_due >= FOREVER:
                # only an action outside of the process can help
                return
            self.now = max(self.now, next_due)
            able = [one for one in threads if one.until <= self.now]
        self.rng.choice(able).body.switch()


@dataclass(eq=False)
class Process:
    """A process with its threads, and the Runtime for its code. `failure` is the error that has ended a thread."""

    world: World
    is_dead: bool = False
    threads: list[Running] = field(default_factory=list)
    failure: BaseException | None = None

    def kill(self) -> None:
        """End every thread at its current step."""
        self.is_dead = True
        for one in self.threads:
            if one.is_alive() and one.body is not greenlet.getcurrent():
                # a greenlet that has not begun would pass Killed on to its parent
                one.body.throw(Killed() if one.body else greenlet.GreenletExit())
                assert one.body.dead, "a killed thread goes on"
        self.threads.clear()

    def step(self, share: float = 0.3) -> None:
        """Let other threads go first, with the probability `share`. Raises Killed."""
        if self.is_dead:
            raise Killed
        if self.world.rng.random() < share:
            self.wait(0.0, None)

    def wait(self, seconds: float | None, is_due: Callable[[], bool] | None) -> bool:
        """Wait until `is_due`, at most `seconds`; return True if it is. Raises Killed."""
        if self.is_dead:
            raise Killed
        current = greenlet.getcurrent()
        for one in self.threads:
            if one.body is current:
                one.until = FOREVER if seconds is None else self.world.now + max(0.0, seconds)
                one.is_due = is_due
                self.world.hub.switch()
                one.is_due = None
                if self.is_dead:
                    raise Killed
                return is_due is not None and is_due()
        raise AssertionError("a thread of another process waits")

    # --- tailrace.process.runtime.Runtime ---

    def monotonic(self) -> float:
        return self.world.now

    def time_ns(self) -> int:
        return int(self.world.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.wait(seconds, None)

    def condition(self) -> Condition:
        return _Condition(self)

    def event(self) -> Event:
        return _Event(self)

    def bell(self) -> Bell:
        return _Bell(self)

    def start(self, run: Callable[[], None], name: str) -> Thread:
        def body() -> None:
            try:
                run()
            except Killed:
                pass
            except BaseException as error:
                self.failure = error

        thread = Running(self, greenlet.greenlet(body, self.world.hub), self.world.now)
        self.threads.append(thread)
        self.world.threads.append(thread)
        return thread

    def helper(self, name: str) -> Helper:
        return _Helper(self, name)

    def ready(self, descriptors: tuple[int, ...], seconds: float, events: int = select.POLLIN) -> set[int]:
        files = self.world.files

        def found() -> set[int]:
            return {one for one in descriptors if events & select.POLLOUT or files[one].has_input()}

        if self.is_dead:
            raise Killed
        if seconds > 0 and not found():
            self.wait(seconds, lambda: bool(found()))
        return found()


class _Condition:
    """A reentrant lock, and the wait for changes of the guarded data."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._count = 0
        self._holder: greenlet.greenlet | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self._take(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None

    def _take(self, depth: int) -> None:
        current = greenlet.getcurrent()
        if self._holder is not None and self._holder is not current:
            self._process.wait(None, lambda: self._holder is None)
        self._holder = current
        self._depth += depth

    def wait(self, timeout: float | None = None) -> bool:
        count, depth = self._count, self._depth
        self._holder, self._depth = None, 0
        try:
            return self._process.wait(timeout, lambda: self._count != count)
        finally:
            self._take(depth)

    def notify_all(self) -> None:
        self._count += 1


class _Helper:
    """Runs submitted calls one after another in a simulated thread, which ends when there are none left."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._thread: Thread | None = None

    def submit(self, call: Callable[..., Result], /, *args: Any) -> Future[Result]:
        future: Future[Result] = Future()
        self._waiting.append((future, lambda: call(*args)))
        if self._thread is None or not self._thread.is_alive():
            self._thread = self._process.start(self._run, self._name)
        return future

    def _run(self) -> None:
        while self._waiting:
            future, call = self._waiting.pop(0)
            try:
                future.set_result(call())
            except Killed:
                raise
            except BaseException as error:
                future.set_exception(error)

    def wait(self, future: Future[Any]) -> None:
        if not future.done():
            self._process.wait(None, future.done)

    def close(self) -> None:
        self._waiting.clear()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()


class _Event:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set or self._process.wait(timeout, self.is_set)


class _Bell:
    def __init__(self, process: Process) -> None:
        self._rings = False
        self._number = process.world.file(self)

    def has_input(self) -> bool:
        return self._rings

    def fileno(self) -> int:
        return self._number

    def ring(self) -> None:
        self._rings = True

    def silence(self) -> None:
        self._rings = False

    def close(self) -> None:
        pass
