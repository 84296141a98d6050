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

_UPDATE, _TRUNCATE = ord("U"), ord("T")
_OPS = {ord("I"): "c", ord("U"): "u", ord("D"): "d", ord("T"): "t"}
# The name under which logical messages are counted, which is no table's.
_MESSAGES = ""
_MESSAGE_NAME = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId"


@dataclass(slots=True)
class Numbers:
    """The number of each change's first event in its transaction (`total`) and there in its table (`table`).

    `truncates` has by message the pairs of these numbers for a truncate, one for each of its table versions.
    """

    total: Int64s
    table: Int64s
    truncates: dict[int, tuple[tuple[int, int], ...]]

    def among(self, messages: Int64s, rows: Int64s) -> Numbers:
        """Return the numbers, which are those of `messages`, laid out for `rows`; 0 for rows without a number."""
        total, table = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        places = np.searchsorted(rows, messages)
        total[places], table[places] = self.total, self.table
        return Numbers(total, table, self.truncates)

    def kept(self, keep: npt.NDArray[np.bool_]) -> Numbers:
        return Numbers(self.total[keep], self.table[keep], self.truncates)

    def moved(self, places: dict[int, int]) -> Numbers:
        """Return the numbers after message `m` has become message `places[m]`."""
        truncates = {places[message]: found for message, found in self.truncates.items() if message in places}
        return Numbers(self.total, self.table, truncates)


class Numbering:
    """Numbers the events of runs; `versions` is the reader's list, `skipped` the operations that give no events.

    As in Debezium each logical message is a collection of its own: it is the first of its collection, and END lists
    every message.
    """

    def __init__(self, versions: Sequence[TableSchema], skipped: frozenset[str]) -> None:
        self._versions = versions
        self._weights = np.array([0 if _OPS.get(kind, "") in skipped else 1 for kind in range(256)], np.int64)
        self._key_change_weight = ("d" not in skipped) + ("c" not in skipped)

    def number(
        self,
        data: Bytes,
        offsets: Int64s,
        messages: Int64s,
        kinds: Bytes,
        version: Int32s,
        transaction: Int64s,
        truncated: dict[int, tuple[int, ...]],
        transactions: int,
        ends: Sequence[int],
        carried: Mapping[str, int],
    ) -> tuple[Numbers, dict[int, Counts], dict[str, int]]:
        """Number the changes `messages` of a run, and count the events of the transactions that end in it.

        `transaction[i]` is the place of change i's transaction in the run; `ends` are the places of the transactions
        that end in it. `carried` are the counts by table of the transaction that was open before the run (place 0).
        Return the numbers, the counts of the ended transactions by place, and the counts by table of the transaction
        that is still open.
        """
        weights = self._weights[kinds].copy()
        weights[self._key_changes(data, offsets, messages, kinds, version)] = self._key_change_weight
        rows = np.arange(len(messages))
        entry_row, entry_version = rows, version.astype(np.int64)
        if (kinds == _TRUNCATE).any():
            several = [(row, found) for row in rows for found in truncated.get(int(messages[row]), ())]
            plain = rows[kinds != _TRUNCATE]
            entry_row = np.concatenate([plain, np.array([row for row, _ in several], np.int64)])
            entry_version = np.concatenate([version[plain], np.array([found for _, found in several], np.int64)])
            order = np.argsort(entry_row, kind="stable")
            entry_row, entry_version = entry_row[order], entry_version[order]
        names = [str(table.id) for table in self._versions]
        known = {name: place for place, name in enumerate(dict.fromkeys(names))}
        of_version = np.array([known[name] for name in names] or [0], np.int64)
        table = np.where(entry_version < 0, len(known), of_version[np.maximum(entry_version, 0)])
        weight, place = weights[entry_row], transaction[entry_row]
        total = running(weight, place)
        total[place == 0] += sum(carried.values())
        by_table = running(weight, place * (len(known) + 1) + table)
        for name, count in carried.items():
            if name in known:
                by_table[(place == 0) & (table == known[name])] += count
        by_table[table == len(known)] = 1
        names = [*known, _MESSAGES]
        counts, still_open = self._count(place, table, weight, names, transactions, ends, carried)
        return self._spread(rows, kinds, messages, entry_row, total, by_table), counts, still_open

    def _key_changes(self, data: Bytes, offsets: Int64s, messages: Int64s, kinds: Bytes, version: Int32s) -> Int64s:
        """Return the rows of the updates that become a delete and a create."""
        found = [np.empty(0, np.int64)]
        for number in np.unique(version[kinds == _UPDATE]):
            table = self._versions[int(number)]
            if not table.key:
                continue
            rows = np.flatnonzero((kinds == _UPDATE) & (version == number))
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

    @staticmethod
    def _spread(
        rows: Int64s,
        kinds: Bytes,
        messages: Int64s,
        entry_row: Int64s,
        total: Int64s,
        by_table: Int64s,
    ) -> Numbers:
        numbers = Numbers(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64), {})
        numbers.total[entry_row[::-1]] = total[::-1]
        numbers.table[entry_row[::-1]] = by_table[::-1]
        for entry in np.flatnonzero(kinds[entry_row] == _TRUNCATE):
            message = int(messages[entry_row[entry]])
            found = (int(total[entry]), int(by_table[entry]))
            numbers.truncates[message] = (*numbers.truncates.get(message, ()), found)
        return numbers


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
