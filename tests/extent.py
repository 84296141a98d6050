"""The two extents of a run: the short one of `make test`, the full one of `make test-all`.

A test or a case marked `full` runs in the full one alone. A test that takes a number of histories, seconds or examples
asks `sized` for it. `make quick` is of the short extent, and draws fewer examples still.
"""

from __future__ import annotations

import os
from typing import TypeVar

FULL = "TAILRACE_TESTS_FULL"
"""The environment variable that is 1 in a full run; `pytest --full` sets it before any test is collected."""
QUICK = "TAILRACE_TESTS_QUICK"
"""The environment variable that is 1 in a quick run; `pytest --quick` sets it before any test is collected."""

_Size = TypeVar("_Size")


def is_full() -> bool:
    """Return True in a full run."""
    return os.environ.get(FULL) == "1"


def sized(short: _Size, full: _Size) -> _Size:
    """Return the size for the extent of this run."""
    return full if is_full() else short


def examples(full: int) -> int:
    """Return the number of examples of a property: all of a full run, or a quarter, drawn anew in each run.

    A quick run draws a twelfth.
    """
    share = 12 if os.environ.get(QUICK) == "1" else 4
    return sized(max(full // share, 10), full)
