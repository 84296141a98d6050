"""Key reuse: within one transaction a row may take a key before the row that held it has left. Worker.

A statement like `update t set id = id + 1` is checked for duplicate keys only at its end, and the log has its rows one
after another. Applied one by one, the delete of the old row would remove the new row. So this module looks at all that
a transaction does to a key: a delete removes the row that equals it, and one of the other rows remains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tailrace.columns.reduction import Flags, Int64s

Same = Callable[[Int64s, Int64s], Flags]
"""Returns a mask: True if the row that the first entry puts equals the row that the second entry takes."""


def standing(scope: Int64s, puts: Flags, takes: Flags, moved: Flags, same: Same) -> Flags:
    """Return a mask of the entries to apply, in log order.

    Entries of one key and one transaction have the same number in `scope`. `puts` are entries after which the key has a
    row, `takes` those that remove a row; `moved` are puts whose row came from another key. Left out are pairs of
    entries that cancel out, and deletes of a row that leaves a key after the next row has arrived.
    """
    order = np.argsort(scope, kind="stable")
    left = np.ones(len(scope), np.bool_)
    overtaking = np.zeros(len(scope), np.bool_)
    while True:
        first, second = order[:-1], order[1:]
        pairs = np.flatnonzero((scope[first] == scope[second]) & puts[first] & takes[second])
        equal = same(first[pairs], second[pairs])
        # the row may have had this key before: then nothing has changed; otherwise it has come and gone
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
    """Return, for each place in `order`, the earliest entry from there on that puts a row within the same scope.

    If there is none, a number greater than all entries.
    """
    count = len(scope) + 1
    begins = np.append(True, scope[order[1:]] != scope[order[:-1]])[: len(order)]
    base = np.cumsum(begins) * count
    # reversed, each scope has smaller numbers than the one before, so the minimum starts anew
    found: Int64s = np.minimum.accumulate((base + np.where(puts[order], order, count - 1))[::-1])[::-1] - base
    return found
