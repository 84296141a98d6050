"""Puts records of several tables that share a topic into the order of the log. Worker.

Each table's changes are converted as columns, separately. Then the records are merged into log order, a window of
changes at a time. So it does not matter how often the tables take turns, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import Int32s, Int64s
from tailrace.kernels.buffers import text_buffers

# Changes of a topic that are merged at a time: WINDOW, or PER_TABLE for each table if that is more, but at most MOST.
WINDOW, PER_TABLE, MOST = 16_384, 256, 65_536
# Bytes of records copied into another order at a time: bounds memory and stays below Arrow's 2 GB.
_MOST_BYTES = 256 << 20

Part = TypeVar("Part")
Numbered = tuple[pa.RecordBatch, Int32s]
"""Records, and the number of the change of each; the numbers ascend."""


def in_log_order(
    parts: Sequence[Part],
    places: Sequence[Int64s],
    cut: Callable[[Part, int, int], Part],
    records: Callable[[Part], Iterator[Numbered]],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `parts` in the order of their changes' `places`, which ascend within each part.

    `cut(part, low, high)` returns a range of a part's changes. `records` converts them; it numbers the changes from 0.
    """
    filled = [number for number in range(len(parts)) if len(places[number])]
    filled.sort(key=lambda number: int(places[number][0]))
    if all(places[number][-1] < places[following][0] for number, following in pairwise(filled)):
        for number in filled:
            for rows, _ in records(parts[number]):
                yield rows
        return
    order = np.sort(np.concatenate([places[number] for number in filled]), kind="stable")
    window = min(max(WINDOW, PER_TABLE * len(filled)), MOST)
    low = dict.fromkeys(filled, 0)
    for last in order[np.r_[window - 1 : len(order) : window, len(order) - 1]].tolist():
        found: list[pa.RecordBatch] = []
        at: list[Int64s] = []
        for number in filled:
            high = int(np.searchsorted(places[number], last, side="right"))
            if low[number] < high:
                window_places = places[number][low[number] : high]
                for rows, change in records(cut(parts[number], low[number], high)):
                    found.append(rows)
                    at.append(window_places[change])
                low[number] = high
        yield from merged(found, at)


def merged(found: Sequence[pa.RecordBatch], places: Sequence[npt.NDArray[Any]]) -> Iterator[pa.RecordBatch]:
    """Yield the records in the order of their places, which ascend in each batch. Records of one place keep their
    order.

    A place is a number, or bytes of one width.
    """
    if all(before[-1] <= after[0] for before, after in pairwise(places)):
        yield from found
        return
    every = np.sort(np.concatenate(places), kind="stable")
    low = [0] * len(found)
    for last in _lasts(found, places, every).tolist():
        high = [int(np.searchsorted(batch_places, last, side="right")) for batch_places in places]
        cuts = [number for number in range(len(found)) if low[number] < high[number]]
        if cuts:
            at = np.concatenate([places[number][low[number] : high[number]] for number in cuts])
            rows = pa.concat_batches([found[number].slice(low[number], high[number] - low[number]) for number in cuts])
            yield rows.take(pa.array(np.argsort(at, kind="stable")))
        low = high


def _lasts(found: Sequence[pa.RecordBatch], places: Sequence[npt.NDArray[Any]], every: npt.NDArray[Any]) -> Any:
    """Return the last place of each piece. A piece has at most some `_MOST_BYTES`, unless a single place has more."""
    if sum(rows.nbytes for rows in found) <= _MOST_BYTES:
        return every[-1:]
    order = np.argsort(np.concatenate(places), kind="stable")
    sizes = np.cumsum(np.concatenate([_sizes(rows) for rows in found])[order])
    ends: list[int] = []
    while not ends or ends[-1] < len(every):
        given = int(sizes[ends[-1] - 1]) if ends else 0
        end = int(np.searchsorted(sizes, given + _MOST_BYTES, side="right"))
        ends.append(max(end, (ends[-1] if ends else 0) + 1))
    return every[np.array(ends) - 1]


def _sizes(rows: pa.RecordBatch) -> Int64s:
    """Return the bytes of each record's texts, plus a constant for its other columns."""
    found = np.full(rows.num_rows, 64, np.int64)
    for column in rows.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            found += np.diff(text_buffers(column)[1])
    return found
