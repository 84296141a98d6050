"""Numbering of events within transactions, for `provide.transaction.metadata`. Planner.

Events are counted in log order over all captured tables. So the planner counts them, who sees the whole log, and not
the tasks: a transaction may be spread over tables, tasks and batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Counts, Int32s, Int64s
from tailrace.columns.reduction import running
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.protocol import pgoutput, scan
from tailrace.errors import DecodeError
from tailrace.events.control_records import in_java_order

_UPDATE = ord("u")
# What a logical message is counted under, which is no table.
_MESSAGES = ""
_MESSAGE_NAME = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId"


@dataclass(slots=True)
class Numbers:
    """The first event's number in its transaction and table, for each change."""

    total: Int64s
    table: Int64s

    def kept(self, keep: npt.NDArray[np.bool_]) -> Numbers:
        return Numbers(self.total[keep], self.table[keep])


class Numbering:
    """Numbers the events of runs; `versions` is the reader's list, `skipped` the operations that give no events.

    As in Debezium each logical message is a collection of its own: it is the first of its collection, and END lists
    every message.
    """

    def __init__(self, versions: Sequence[TableSchema], skipped: frozenset[str]) -> None:
        self._versions = versions
        self._weights = np.array([0 if chr(op) in skipped else 1 for op in range(256)], np.int64)
        self._key_change_weight = ("d" not in skipped) + ("c" not in skipped)

    def number(
        self,
        data: Bytes,
        offsets: Int64s,
        messages: Int64s,
        op: Bytes,
        version: Int32s,
        transaction: Int64s,
        transactions: int,
        ends: Sequence[int],
        carried: Mapping[str, int],
    ) -> tuple[Numbers, dict[int, Counts], dict[str, int]]:
        """Number the changes of a run, which are the given messages, and count the transactions that it ends.

        `transaction[i]` is the place of change i's transaction in the run; `ends` are the places of the transactions
        that end in it. `carried` are the counts by table of the transaction that was open before the run (place 0).
        Return the numbers, the counts of the ended transactions by place, and the counts by table of the transaction
        that is still open.
        """
        weight = self._weights[op]
        weight[self._key_changes(data, offsets, messages, op, version)] = self._key_change_weight
        names = [str(table.id) for table in self._versions]
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
        names = [*known, _MESSAGES]
        counts, still_open = self._count(transaction, table, weight, names, transactions, ends, carried)
        return Numbers(total, by_table), counts, still_open

    def _key_changes(self, data: Bytes, offsets: Int64s, messages: Int64s, op: Bytes, version: Int32s) -> Int64s:
        """The updates that become a delete and a create, as rows."""
        found = [np.empty(0, np.int64)]
        for number in np.unique(version[op == _UPDATE]):
            table = self._versions[int(number)]
            if not table.key:
                continue
            rows = np.flatnonzero((op == _UPDATE) & (version == number))
            indexes = np.array([table.index(name) for name in table.key], np.int32)
            _, moved = scan.key_hashes(data, offsets, messages[rows], indexes, len(table.columns))
            candidates = [int(row) for row in rows[moved]]
            changed = [row for row in candidates if _key_differs(data, offsets, int(messages[row]), indexes)]
            found.append(np.array(changed, np.int64))
        return np.concatenate(found)

    @staticmethod
    def _count(
        place: Int64s,
        table: Int64s,
        weight: Int64s,
        names: list[str],
        transactions: int,
        ends: Sequence[int],
        carried: Mapping[str, int],
    ) -> tuple[dict[int, Counts], dict[str, int]]:
        """Return the counts of the ended transactions by place, and those of the transaction that is still open."""
        sums: dict[int, dict[str, int]] = {0: dict(carried)}
        keys, first, inverse = np.unique(place * (len(names) + 1) + table, return_index=True, return_inverse=True)
        totals = np.bincount(inverse, weight, len(keys)).astype(np.int64) if len(keys) else np.empty(0, np.int64)
        for number in np.argsort(first):
            if totals[number]:
                tables = sums.setdefault(int(keys[number]) // (len(names) + 1), {})
                name = names[int(keys[number]) % (len(names) + 1)]
                tables[name] = tables.get(name, 0) + int(totals[number])
        ended = {
            end: Counts(sum(tables.values()), _listed(tables))
            for end, tables in ((end, sums.get(end, {})) for end in ends)
        }
        last = transactions - 1
        return ended, {} if last < 0 or last in ended else sums.get(last, {})


def _key_differs(data: Bytes, offsets: Int64s, message: int, indexes: Int32s) -> bool:
    update = pgoutput.parse(bytes(data[offsets[message] : offsets[message + 1]]))
    if not isinstance(update, pgoutput.Update):
        raise DecodeError("an update was expected", int(offsets[message]))
    if update.old is None:
        return False
    return any(
        update.new[index] is not pgoutput.UNAVAILABLE and update.old[index] != update.new[index] for index in indexes
    )


def _listed(tables: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the list of an END event: each message, then the tables.

    Debezium appends an object's address to a message's name, which decides its place in the list. Here the messages
    have numbers and come first.
    """
    messages = tables.get(_MESSAGES, 0)
    named = {name: count for name, count in tables.items() if name != _MESSAGES}
    numbered = [(f"{_MESSAGE_NAME}@{number:x}", 1) for number in range(1, messages + 1)]
    return (*numbered, *((name, named[name]) for name in in_java_order(named, messages)))
