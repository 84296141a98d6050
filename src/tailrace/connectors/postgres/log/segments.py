"""Division of a batch's rows into segments that keep the order of events. Planner.

`event.order=topic` keeps all rows of a topic in one task, in log order. `event.order=key` spreads a table over several
tasks by a hash of its key; each task has all changes of its keys in log order. A table with a key change or a truncate
in the batch stays whole, because these order rows of different keys against each other. Tables that share a topic share
its task, or with `key` its tasks. Each row then has its place in the log, by which the task orders the records of
several tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from tailrace.columns.batch import Boundary, Bytes, ChangeBatch, Int32s, Int64s, Transactions
from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.postgres.log.indexed_run import BOUNDARY, MESSAGE, TRUNCATE, IndexedRun, Rows
from tailrace.connectors.postgres.protocol import lasting, scan
from tailrace.connectors.postgres.protocol.segment import PIECE, MessageSegment, MixedSegment, Segment

# Below this many rows, or below this many topics of small tables, another task costs more than it saves.
SMALL_BATCH_ROWS = 4096
MANY_TOPICS = 256
# The most rows and bytes of a small table in a batch, and the least number of small tables to convert together.
SMALL_TABLE_ROWS = 1024
SMALL_TABLE_BYTES = 256 << 10
MIXED_TABLES = 8
# From this many bytes of the log on, several threads copy them: the system takes long to clear fresh memory.
_BESIDE_BYTES = 16 << 20
# A table costs a task as much as this many rows.
_TABLE_ROWS = 16


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of one table version in an indexed run, in log order; the run's row i is row `base` + i of the batch."""

    stretch: IndexedRun
    rows: Int64s
    base: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_truncate(self) -> bool:
        return bool((self.stretch.op[self.rows] == TRUNCATE).any())


@dataclass(slots=True)
class _Unit:
    """Segments that one task must process one after another."""

    segments: Sequence[Segment | MixedSegment]

    @property
    def size(self) -> int:
        return sum(segment.data.nbytes for segment in self.segments)


def tasks(
    rows: Sequence[Rows],
    versions: Sequence[TableSchema],
    topic: Callable[[TableSchema], str],
    by_key: bool,
    parallelism: int,
    most: int = 0,
    takes_last: Callable[[TableSchema], bool] = lambda _: False,
) -> list[list[Segment | MixedSegment]]:
    """Return the segments of a batch, grouped by task: at most `parallelism` groups.

    Messages of more than `most` bytes are without their bytes, unless `most` is 0. For a table for which `takes_last`
    returns True, changes may be left out that later changes of the same key make superfluous.
    """
    # the reader adds to its list meanwhile
    versions = tuple(versions)
    small = _small_topics(rows, versions, topic, most)
    picked = _by_version(rows, without=frozenset(version for members in small for version in members))
    superseded = _reduce(picked, versions, most, takes_last)
    mixed_rows = sum(small.values())
    total = mixed_rows + sum(len(part) for parts in picked.values() for part in parts)
    split = by_key and parallelism > 1 and total >= SMALL_BATCH_ROWS
    topics: dict[str, list[int]] = {}
    for version in picked:
        topics.setdefault(topic(versions[version]), []).append(version)
    buckets: list[list[tuple[int, list[_Taken]]]] = []
    for members in topics.values():
        buckets += (_buckets(members, picked, versions, parallelism) if split else None) or [
            [(version, picked[version]) for version in members]
        ]

    def unit(bucket: Sequence[tuple[int, Sequence[_Taken]]]) -> _Unit:
        found = _segments(versions, bucket)
        for segment, (version, _) in zip(found, bucket, strict=True):
            segment.superseded = superseded.pop(version, 0)
        return _Unit([segment.without_large(most) if most else segment for segment in found if len(segment)])

    if split and parallelism > 1 and sum(part.stretch.data.nbytes for part in rows) >= _BESIDE_BYTES:
        with ThreadPoolExecutor(min(parallelism, len(buckets))) as pool:
            units = list(pool.map(unit, buckets))
    else:
        units = [unit(bucket) for bucket in buckets]
    together = not split and (total < SMALL_BATCH_ROWS or parallelism == 1)
    count = 1 if together and len(small) < MANY_TOPICS else parallelism
    units.extend(_Unit([_mixed(rows, versions, members)]) for members in _shared_out(small, count))
    if together and count == 1:
        return [[segment for unit in units for segment in unit.segments]] if units else []
    return _spread(units, parallelism)


def _small_topics(
    rows: Sequence[Rows], versions: Sequence[TableSchema], topic: Callable[[TableSchema], str], most: int
) -> dict[tuple[int, ...], int]:
    """Return the topics whose tables all have few changes: the table versions of each, with the number of its changes.

    Empty where there are not enough of them to gain anything. A table with a truncate is not among them, nor is one
    with a message of more than `most` bytes.
    """
    if len(versions) < MIXED_TABLES:
        return {}
    counts, sizes = np.zeros(len(versions), np.int64), np.zeros(len(versions), np.int64)
    barred: set[int] = set()
    for part in rows:
        stretch = part.stretch
        version, messages = stretch.version[part.first : part.last], stretch.rows[part.first : part.last]
        of_table = version >= 0
        size = (stretch.offsets[messages + 1] - stretch.offsets[messages])[of_table]
        counts += np.bincount(version[of_table], minlength=len(versions))
        sizes += np.bincount(version[of_table], size, len(versions)).astype(np.int64)
        barred.update(version[stretch.op[part.first : part.last] == TRUNCATE].tolist())
        if most:
            barred.update(version[of_table][size > most].tolist())
    is_small = (counts <= SMALL_TABLE_ROWS) & (sizes <= SMALL_TABLE_BYTES)
    is_small[list(barred)] = False
    if np.count_nonzero(is_small & (counts > 0)) < MIXED_TABLES:
        return {}
    topics: dict[str, list[int]] = {}
    for number in np.flatnonzero(counts).tolist():
        topics.setdefault(topic(versions[number]), []).append(number)
    for number in barred:
        topics.pop(topic(versions[number]), None)
    found = {tuple(members): int(counts[members].sum()) for members in topics.values() if is_small[members].all()}
    return found if len(found) >= MIXED_TABLES else {}


def _shared_out(topics: dict[tuple[int, ...], int], count: int) -> list[list[int]]:
    """Divide the table versions of the topics into at most `count` lists of about equal work."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for members in sorted(topics, key=lambda members: -topics[members]):
        place = loads.index(min(loads))
        shares[place].extend(members)
        loads[place] += topics[members] + _TABLE_ROWS * len(members)
    return [share for share in shares if share]


def _mixed(rows: Sequence[Rows], versions: Sequence[TableSchema], members: Sequence[int]) -> MixedSegment:
    """Return the messages of the given table versions, in log order."""
    place = np.full(len(versions), -1, np.int32)
    place[list(members)] = np.arange(len(members))
    parts, table = [], []
    for part in rows:
        version = part.stretch.version[part.first : part.last]
        places = np.where(version >= 0, place[np.maximum(version, 0)], -1)
        mine = np.flatnonzero(places >= 0)
        if len(mine):
            parts.append(_Taken(part.stretch, part.first + mine, 0))
            table.append(places[mine].astype(np.int32))
    data, offsets = _gathered(parts)
    transaction, transactions = _transactions(parts)
    numbers = [(part.stretch.numbers, part.rows) for part in parts]
    return MixedSegment(
        tables=tuple(versions[member] for member in members),
        table=np.concatenate(table),
        data=data,
        offsets=offsets,
        lsn=np.concatenate([part.stretch.lsn[part.rows] for part in parts]),
        transaction=transaction,
        ordinal=np.concatenate([part.stretch.ordinal[part.rows] for part in parts]),
        transactions=transactions,
        total_order=_joined([of.total[taken] for of, taken in numbers if of is not None]),
        table_order=_joined([of.table[taken] for of, taken in numbers if of is not None]),
    )


def _joined(parts: Sequence[Int64s]) -> Int64s | None:
    return np.concatenate(parts) if parts else None


def _by_version(
    rows: Sequence[Rows], only: frozenset[int] | None = None, without: frozenset[int] = frozenset()
) -> dict[int, list[_Taken]]:
    """Table version -> the rows of each stretch that belong to it, in log order.

    `only` are the wanted versions; None: all versions but `without`.
    """
    picked: dict[int, list[_Taken]] = {}
    number = 0
    for part in rows:
        stretch = part.stretch
        base = number - part.first
        number += part.last - part.first
        taken = np.arange(part.first, part.last)
        version = stretch.version[part.first : part.last]
        present = set(np.flatnonzero(np.bincount(version[version >= 0])).tolist())
        for found in sorted((present if only is None else present & only) - without):
            picked.setdefault(found, []).append(_Taken(stretch, taken[version == found], base))
    return picked


def changes_of(rows: Sequence[Rows], versions: Sequence[TableSchema], oid: int) -> list[ChangeBatch]:
    """Decode the changes of the table `oid` among the rows: the batches of each of its versions, one after another."""
    from tailrace.connectors.postgres.protocol.decoder import decode

    picked = _by_version(rows, frozenset(place for place, table in enumerate(versions) if table.oid == oid))
    whole = [_segment(versions, version, parts) for version, parts in picked.items()]
    return [decode(piece) for segment in whole for _, piece in segment.pieces(PIECE)]


def _reduce(
    picked: dict[int, list[_Taken]],
    versions: Sequence[TableSchema],
    most: int,
    takes_last: Callable[[TableSchema], bool],
) -> dict[int, int]:
    """Drop from `picked` changes that later ones make superfluous; return their number by table version."""
    found = {}
    for version, parts in picked.items():
        if takes_last(versions[version]):
            picked[version] = _standing(versions[version], parts, most)
            found[version] = sum(map(len, parts)) - sum(map(len, picked[version]))
    return found


def _standing(table: TableSchema, parts: list[_Taken], most: int) -> list[_Taken]:
    """The changes of a table version without those that later ones make superfluous."""
    if not table.key or any(part.has_truncate for part in parts):
        return parts
    indexes = np.array([table.index(name) for name in table.key], np.int32)
    messages = [(part.stretch.data, part.stretch.offsets, part.stretch.rows[part.rows]) for part in parts]
    found = lasting.standing(messages, indexes, len(table.columns), most)
    if found is None:
        return parts
    kept = (replace(part, rows=part.rows[stays]) for part, stays in zip(parts, found, strict=True))
    return [part for part in kept if len(part)]


def _segments(versions: Sequence[TableSchema], taken: Sequence[tuple[int, Sequence[_Taken]]]) -> list[Segment]:
    """Return the segments of a topic, or of a part of its keys; with places if there are several segments."""
    found = [_segment(versions, version, parts) for version, parts in taken]
    if len(found) > 1:
        for segment, (_, parts) in zip(found, taken, strict=True):
            segment.place = np.concatenate([part.rows + part.base for part in parts])
    return found


def _segment(versions: Sequence[TableSchema], version: int, parts: Sequence[_Taken]) -> Segment:
    """Return one segment of the given rows, all of table version `version`."""
    data, offsets = _gathered(parts)
    numbers, transactions = _transactions(parts)
    orders = [(part.stretch.numbers, part.rows) for part in parts]
    return Segment(
        table=versions[version],
        data=data,
        offsets=offsets,
        lsn=np.concatenate([part.stretch.lsn[part.rows] for part in parts]),
        transaction=numbers,
        ordinal=np.concatenate([part.stretch.ordinal[part.rows] for part in parts]),
        transactions=transactions,
        total_order=_joined([of.total[taken] for of, taken in orders if of is not None]),
        table_order=_joined([of.table[taken] for of, taken in orders if of is not None]),
    )


def _gathered(parts: Sequence[_Taken]) -> tuple[Bytes, Int64s]:
    """Copy the messages of the given rows together; return their bytes and offsets."""
    return scan.gather_all([(part.stretch.data, part.stretch.offsets, part.stretch.rows[part.rows]) for part in parts])


def messages(rows: Sequence[Rows], most: int = 0) -> MessageSegment | None:
    """Return the logical messages among the rows, None if there are none. They have one topic, and so one task.

    Messages of more than `most` bytes are without their bytes, unless `most` is 0.
    """
    found = [
        _Taken(part.stretch, part.first + np.flatnonzero(part.stretch.version[part.first : part.last] == MESSAGE), 0)
        for part in rows
    ]
    parts = [part for part in found if len(part)]
    if not parts:
        return None
    data, offsets = _gathered(parts)
    transaction, transactions = _transactions(parts)
    orders = [part.stretch.numbers.total[part.rows] for part in parts if part.stretch.numbers is not None]
    ordinal = np.concatenate([part.stretch.ordinal[part.rows] for part in parts])
    segment = MessageSegment(data, offsets, transaction, ordinal, transactions, _joined(orders))
    return segment.without_large(most) if most else segment


def boundaries(rows: Sequence[Rows]) -> list[Boundary]:
    """Return the begins and ends of transactions among the rows, in log order."""
    found = []
    for part in rows:
        stretch = part.stretch
        ends = dict(zip(stretch.end_commit.tolist(), stretch.end_end.tolist(), strict=True))
        for row in part.first + np.flatnonzero(stretch.version[part.first : part.last] == BOUNDARY):
            place = int(stretch.transaction[row])
            commit_lsn = int(stretch.transactions.commit_lsn[place])
            begins = stretch.op[row] == ord("B")
            found.append(
                Boundary(
                    xid=int(stretch.transactions.xid[place]),
                    lsn=int(stretch.lsn[row]) if begins else ends[commit_lsn],
                    commit_lsn=commit_lsn,
                    commit_us=int(stretch.transactions.commit_us[place]),
                    ordinal=int(stretch.ordinal[row]),
                    counts=None if begins else stretch.counts[place],
                )
            )
    return found


def _transactions(parts: Sequence[_Taken]) -> tuple[Int32s, Transactions]:
    """Return the number of each row's transaction, and the transactions of the rows."""
    numbers, pieces, base = [], [], 0
    for part in parts:
        # rows are in log order: those of a transaction follow one another
        of = part.stretch.transaction[part.rows]
        begins = np.diff(of, prepend=-1) != 0
        used = of[begins]
        pieces.append(part.stretch.transactions.part(used))
        numbers.append((np.cumsum(begins) + (base - 1)).astype(np.int32))
        base += len(used)
    if len(parts) == 1:
        return numbers[0], pieces[0]
    return np.concatenate(numbers), Transactions.joined(pieces)


def _buckets(
    members: Sequence[int],
    picked: dict[int, list[_Taken]],
    versions: Sequence[TableSchema],
    count: int,
) -> list[list[tuple[int, list[_Taken]]]] | None:
    """Divide the rows of a topic by the hash of their key into `count` buckets, each with rows by table version.

    Return None if the rows have to stay together.
    """
    hashed = _hashed([versions[version] for version in members])
    if not hashed:
        return None
    chosen: list[list[tuple[int, list[_Taken]]]] = [[] for _ in range(count)]
    for version in members:
        table = versions[version]
        indexes = np.array([table.index(name) for name in hashed], np.int32)
        split: list[list[_Taken]] = [[] for _ in range(count)]
        for part in picked[version]:
            stretch, taken = part.stretch, part.rows
            if part.has_truncate:
                return None
            hashes, moved = scan.key_hashes(
                stretch.data, stretch.offsets, stretch.rows[taken], indexes, len(table.columns)
            )
            if moved.any():
                return None
            bucket = (hashes >> np.uint64(33)) % np.uint64(count)
            for number in range(count):
                mine = taken[bucket == number]
                if len(mine):
                    split[number].append(replace(part, rows=mine))
        for number in range(count):
            if split[number]:
                chosen[number].append((version, split[number]))
    return chosen


def _hashed(tables: Sequence[TableSchema]) -> list[str]:
    """Return the key columns by whose text the rows of `tables` may be spread: equal keys of events have equal texts.

    Empty if there is no such column, or if the tables' keys differ.
    """
    (key, *others) = {table.key for table in tables}
    if others:
        return []
    return [
        name
        for name in key
        if len(found := {_kind_of_text(table.columns[table.index(name)], table) for table in tables}) == 1
        and None not in found
    ]


# Types in which two different texts are never one value in a key, with a group of types whose texts are alike.
_KINDS = {16: "bool", 17: "bytes", 20: "whole", 21: "whole", 23: "whole", 26: "whole"}
_KINDS |= dict.fromkeys((19, 25, 1042, 1043, 2950), "text")
_NUMERIC, _EXACT_DIGITS = 1700, 15


def _kind_of_text(column: Column, table: TableSchema) -> object:
    """Return the kind of a key column's texts; None if two different texts may be one value in keys of events."""
    of = column.element if column.kind == "domain" and column.element is not None else column
    if of.kind == "enum":
        return "text"
    if of.type_oid == _NUMERIC and of.modifier > 0 and (of.modifier - 4) >> 16 <= _EXACT_DIGITS:
        # each text has the same number of digits behind the point, and not too many for a double
        return _NUMERIC, of.modifier
    kind = _KINDS.get(of.type_oid)
    return None if kind == "text" and table.any_bytes else kind


def _spread(units: list[_Unit], parallelism: int) -> list[list[Segment | MixedSegment]]:
    """Divide the units among at most `parallelism` tasks, each time the largest to the least loaded."""
    groups: list[list[Segment | MixedSegment]] = [[] for _ in range(min(parallelism, len(units)))]
    loads = [0] * len(groups)
    for unit in sorted(units, key=lambda unit: -unit.size):
        if unit.segments:
            place = loads.index(min(loads))
            groups[place].extend(unit.segments)
            loads[place] += unit.size
    return [group for group in groups if group]
