"""How many rows are taken from a driver at once, where one may hold megabytes. Worker and planner."""

from __future__ import annotations

FIRST_FETCH = 16
"""Rows of the first fetch from a table whose columns may hold megabytes."""

_FETCH_BYTES = 64 << 20


def next_fetch(rows: int, size: int, most: int) -> int:
    """The rows of the next fetch, at most `most`, after one of `rows` with `size` bytes: as many as have some 64 MB.

    A column of a fetch is one array, which Arrow ends at 2 GiB. Rows that are suddenly much larger are not foreseen, so
    a fetch grows fourfold at most.
    """
    return max(1, min(most, 4 * rows, _FETCH_BYTES * rows // max(size, 1)))
