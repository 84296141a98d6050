"""The two extents of a test run: the short one of `make test`, and the full one of `make test-all`.

A test or a case marked `full` runs only in a full run. A test that takes a number of histories, seconds or examples
calls `sized` for it. `make quick` has the short extent, with even fewer examples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, TypeVar

import pytest

FULL = "TAILRACE_TESTS_FULL"
"""The environment variable that is 1 in a full run; `pytest --full` sets it before any test is collected."""
QUICK = "TAILRACE_TESTS_QUICK"
"""The environment variable that is 1 in a quick run; `pytest --quick` sets it before any test is collected."""

_Size = TypeVar("_Size")
_Test = TypeVar("_Test", bound=Callable[..., Any])


def is_full() -> bool:
    """Return True in a full run."""
    return os.environ.get(FULL) == "1"


def sized(short: _Size, full: _Size) -> _Size:
    """Return the size for the extent of this run."""
    return full if is_full() else short


def by_day(cases: Sequence[_Size], share: int) -> list[_Size]:
    """Return all cases in a full run, else one of `share` at even distances, others on each day."""
    return sized(list(cases)[date.today().toordinal() % share :: share], list(cases))


def turn(place: int, share: int) -> Callable[[_Test], _Test]:
    """Return a decorator for a slow test that runs in a full run, else on one of `share` days; `place` counts from 0.

    Tests with the same share take turns.
    """
    is_today = date.today().toordinal() % share == place
    return lambda test: test if is_today else pytest.mark.full(test)


def examples(full: int) -> int:
    """Return the number of examples for a property: all in a full run, else a quarter, drawn anew in each run.

    A quick run draws a twelfth.
    """
    share = 12 if os.environ.get(QUICK) == "1" else 4
    return sized(max(full // share, 10), full)
