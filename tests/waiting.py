"""Waiting for a condition, with regular checks until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def until(look: Callable[[], _Found], what: str, seconds: float = 60.0, pace: float = 0.01) -> _Found:
    """Call `look` every `pace` seconds until it returns something true, and return that.

    Raises AssertionError that names `what` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(pace)
    return found
