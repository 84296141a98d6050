"""A simulated disk for spools that fails now and then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tailrace.log import spool
from tailrace.log.spool import FilePlace, Spill, spool_failed


class Disk:
    """A context in which each write to a spool fails with the probability `refuses()`."""

    def __init__(self, rng: Random, refuses: Callable[[], float]) -> None:
        class Failing(Spill):
            def append(self, data: Any) -> FilePlace:
                if rng.random() < refuses():
                    raise spool_failed(OSError(28, "No space left on device"))
                return super().append(data)

        self._kind = Failing

    def __enter__(self) -> None:
        setattr(spool, "Spill", self._kind)  # noqa: B010  (no name that the module gives away)

    def __exit__(self, *_: object) -> None:
        setattr(spool, "Spill", Spill)  # noqa: B010
