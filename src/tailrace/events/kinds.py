"""Records by their kind: which layout each record of a batch has. Worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tailrace.events.envelope import Kind
from tailrace.events.expansion import TOMBSTONE, Records
from tailrace.events.table_plan import KindPlan, TablePlans

# The ops of records, and what their places are multiplied by to leave room for what else kinds differ in.
_OPS = (TOMBSTONE, *b"cudrt")
_ROOM = 36
_KINDS = len(_OPS) * _ROOM
_PLACES = np.zeros(256, np.int32)
_PLACES[list(_OPS)] = np.arange(len(_OPS))


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """Records in order: `change` is the index of each one's change, `op` as in `tailrace.events.expansion.Records`, and
    record r is of the kind `kinds[of[r]]`. Each of the kinds has records."""

    change: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]
    kinds: Sequence[KindPlan]
    of: npt.NDArray[np.int32]

    def part(self, first: int, last: int) -> KnownRecords:
        """The records `first` to `last`."""
        if last - first == len(self.change):
            return self
        change, op, of = self.change[first:last], self.op[first:last], self.of[first:last]
        used = np.flatnonzero(np.bincount(of))
        if len(used) == len(self.kinds):
            return KnownRecords(change, op, self.kinds, of)
        number = np.zeros(len(self.kinds), np.int32)
        number[used] = np.arange(len(used))
        return KnownRecords(change, op, [self.kinds[one] for one in used.tolist()], number[of])


def by_kind(records: Records, tables: TablePlans, ordered: bool) -> KnownRecords:
    """The records with their kinds, without those that a transform leaves out.

    `ordered` says whether the places of changes in their transactions are known.
    """
    code = _PLACES[records.op] * np.int32(_ROOM)
    code += records.before * np.int32(18) + records.after * np.int32(9)
    code += records.key * np.int32(3) + records.header
    known = np.flatnonzero(np.bincount(code, minlength=_KINDS))
    place = np.zeros(_KINDS, np.int32)
    place[known] = np.arange(len(known))
    every = place[code]
    if tables.of is not None:
        every += tables.of[records.change] * np.int32(len(known))
    used = np.flatnonzero(np.bincount(every))
    kinds: list[KindPlan] = []
    number = np.zeros(len(known) * len(tables.plans), np.int32)
    for one in used.tolist():
        table, which = divmod(one, len(known))
        kind = tables.plans[table].kind(_kind(int(known[which]), ordered))
        number[one] = -1 if kind is None else len(kinds)
        if kind is not None:
            kinds.append(kind)
    of = number[every]
    change, op = records.change, records.op
    if len(kinds) < len(used):
        kept = of >= 0
        change, op, of = change[kept], op[kept], of[kept]
    return KnownRecords(change, op, kinds, of)


@lru_cache(maxsize=_KINDS * 2)
def _kind(code: int, ordered: bool) -> Kind:
    """The kind of records that a code stands for."""
    op, rest = divmod(code, _ROOM)
    return Kind(_OPS[op], rest // 18 == 1, rest // 9 % 2 == 1, rest // 3 % 3, rest % 3, ordered)
