"""The size of a driver's fetches from tables whose rows may hold megabytes. Worker and planner."""

from __future__ import annotations

FIRST_FETCH = 16
"""Rows of the first fetch from a table whose columns may hold megabytes."""

_FETCH_BYTES = 64 << 20


def next_fetch(rows: int, size: int, most: int) -> int:
    """Return the rows of the next fetch, at most `most`, after a fetch of `rows` with `size` bytes: about 64 MB.

    A column of a fetch is one array, which Arrow limits to 2 GiB. Later rows may be much larger, so a fetch grows at
    most fourfold.
    """
    return max(1, min(most, 4 * rows, _FETCH_BYTES * rows // max(size, 1)))
