"""Numbering of events within transactions, for `provide.transaction.metadata`. Planner.

Events are counted in log order over all captured tables. A transaction may be spread over tables, tasks and batches,
so the planner counts its events: only the planner sees the whole log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.columns.batch import Bytes, Counts, Int32s, Int64s
from tailrace.columns.reduction import running
from tailrace.columns.table import TableSchema
from tailrace.events.control_records import in_java_order

# Name under which rows without a table are counted. No table has it.
_OTHERS = ""


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """The numbers of the events of a run.

    `total` is the number of each row's first event in its transaction, `table` its number in the transaction among
    events of the same table. `counts` has the number of events of each transaction that ends in the run, by the
    transaction's place. `still_open` has the number of events by table of the transaction that is open at the end.
    """

    total: Int64s
    table: Int64s
    counts: dict[int, Counts]
    still_open: Mapping[str, int]


class Numbering:
    """Numbers the events of runs.

    `versions` is the reader's list of table versions, `skipped` the operations that give no events. A row without a
    table is a message of an application. As in Debezium each such message is a collection of its own: its number is 1,
    and END lists every message, as `message_name` with a number.
    """

    def __init__(self, versions: Sequence[TableSchema], skipped: frozenset[str], message_name: str = "") -> None:
        self.versions = versions
        self._message_name = message_name
        self._weights = np.array([0 if chr(op) in skipped else 1 for op in range(256)], np.int64)
        self._key_change_weight = ("d" not in skipped) + ("c" not in skipped)

    def number(
        self,
        op: Bytes,
        version: Int32s,
        key_changes: Int64s,
        transaction: Int64s,
        transactions: int,
        ends: Sequence[int],
        carried: Mapping[str, int],
    ) -> NumberedRows:
        """Number the changes of a run, and count the events of the transactions that end in it.

        `op` and `version` are as in RowRun, `key_changes` the updates that become a delete and a create.
        `transaction[i]` is the place of change i's transaction in the run; `ends` are the places of the transactions
        that end in it. `carried` are the counts by table of the transaction that was open before the run (place 0).
        """
        weight = self._weights[op]
        weight[key_changes] = self._key_change_weight
        names = [str(table.id) for table in self.versions]
        known = {name: place for place, name in enumerate(dict.fromkeys(names))}
        of_version = np.array([known[name] for name in names] or [0], np.int64)
        table = np.where(version < 0, len(known), of_version[np.maximum(version, 0)])
        total = running(weight, transaction)
        total[transaction == 0] += sum(carried.values())
        by_table = running(weight, transaction * (len(known) + 1) + table)
        for name, count in carried.items():
            if name in known:
                by_table[(transaction == 0) & (table == known[name])] += count
        by_table[table == len(known)] = 1
        names = [*known, _OTHERS]
        counts, still_open = self._count(transaction, table, weight, names, transactions, ends, carried)
        return NumberedRows(total, by_table, counts, still_open)

    def _count(
        self,
        place: Int64s,
        table: Int64s,
        weight: Int64s,
        names: list[str],
        transactions: int,
        ends: Sequence[int],
        carried: Mapping[str, int],
    ) -> tuple[dict[int, Counts], dict[str, int]]:
        """Return the counts of the ended transactions by place, and by table the counts of the open transaction."""
        sums: dict[int, dict[str, int]] = {0: dict(carried)}
        keys, first, inverse = np.unique(place * (len(names) + 1) + table, return_index=True, return_inverse=True)
        totals = np.bincount(inverse, weight, len(keys)).astype(np.int64) if len(keys) else np.empty(0, np.int64)
        for number in np.argsort(first):
            if totals[number]:
                tables = sums.setdefault(int(keys[number]) // (len(names) + 1), {})
                name = names[int(keys[number]) % (len(names) + 1)]
                tables[name] = tables.get(name, 0) + int(totals[number])
        ended = {
            end: Counts(sum(tables.values()), self._listed(tables))
            for end, tables in ((end, sums.get(end, {})) for end in ends)
        }
        last = transactions - 1
        return ended, {} if last < 0 or last in ended else sums.get(last, {})

    def _listed(self, tables: dict[str, int]) -> tuple[tuple[str, int], ...]:
        """Return the list of an END event: each message, then the tables.

        Debezium appends an object's address to a message's name, which decides its place in the list. Here the messages
        have numbers and come first.
        """
        messages = tables.get(_OTHERS, 0)
        named = {name: count for name, count in tables.items() if name != _OTHERS}
        numbered = [(f"{self._message_name}@{number:x}", 1) for number in range(1, messages + 1)]
        return (*numbered, *((name, named[name]) for name in in_java_order(named, messages)))
