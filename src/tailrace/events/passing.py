"""Keys that rows take over from one another within a transaction. Pure, worker.

A statement as `update t set id = id + 1` is checked for double keys at its end alone. The log has its rows one after
another: the row that comes to a key may stand before the one that leaves it. Taken one by one, the row that leaves
would take the new one with it. So what a transaction does to a key is seen as a whole here: who leaves is the row
that looks like the one of the delete, and of the others one is left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tailrace.columns.reduction import Flags, Int64s

Same = Callable[[Int64s, Int64s], Flags]
"""Whether the rows that some entries leave behind are those that other entries take away."""


def standing(scope: Int64s, puts: Flags, takes: Flags, moved: Flags, same: Same) -> Flags:
    """Which entries are to be taken one by one, of entries in order.

    Entries of one key and one transaction have the same number in `scope`. `puts` are those behind which the key has
    a row, `takes` those that take one away; of the first `moved` are rows that came from another key. Two entries that
    do nothing together are both left out, and a row that leaves a key behind the arrival of the next one.
    """
    order = np.argsort(scope, kind="stable")
    left = np.ones(len(scope), np.bool_)
    overtaking = np.zeros(len(scope), np.bool_)
    while True:
        first, second = order[:-1], order[1:]
        pairs = np.flatnonzero((scope[first] == scope[second]) & puts[first] & takes[second])
        equal = same(first[pairs], second[pairs])
        # the row may have been there under this key before: nothing has changed then, and else it has come and gone
        nothing = pairs[equal & moved[first[pairs]]]
        other = pairs[~equal]
        if not len(nothing) and not len(other):
            break
        overtaking[second[other]] = True
        order[other], order[other + 1] = second[other], first[other]
        gone = np.concatenate([nothing, nothing + 1])
        left[order[gone]] = False
        order = np.delete(order, gone)
    left[order[overtaking[order] & (_behind(scope, puts, order) < order)]] = False
    return left


def _behind(scope: Int64s, puts: Flags, order: Int64s) -> Int64s:
    """Of each place in `order` the earliest entry that puts a row among those of its scope from there on; a number
    that is greater than all where there is none."""
    count = len(scope) + 1
    begins = np.append(True, scope[order[1:]] != scope[order[:-1]])[: len(order)]
    base = np.cumsum(begins) * count
    # in reverse order each scope has smaller numbers than the one before, so that it begins anew
    found: Int64s = np.minimum.accumulate((base + np.where(puts[order], order, count - 1))[::-1])[::-1] - base
    return found
