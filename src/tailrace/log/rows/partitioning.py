"""Division of a batch's rows into tasks of segments that keep the order of events. Planner.

`event.order=topic` keeps all rows of a topic in one task, in log order. `event.order=key` spreads a table over several
tasks by a hash of its key; each task has all changes of its keys in log order. A table with a key change or a truncate
in the batch stays whole, because these order rows of different keys against each other. Tables that share a topic share
a task, or with `key` several tasks. Each row then has its place in the log, by which the task orders the records of
several tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from tailrace.columns.batch import ChangeBatch, Int64s
from tailrace.columns.table import TableSchema
from tailrace.log.rows.row_log import RowLog
from tailrace.log.rows.segment import (
    PIECE,
    TRUNCATE,
    MixedSegment,
    Own,
    RowRun,
    Rows,
    Segment,
    Trans,
    gathered,
)

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
class _Taken(Generic[Own, Trans]):
    """Rows of one table version in an indexed run, in log order; the run's row i is row `base` + i of the batch."""

    run: RowRun[Own, Trans]
    rows: Int64s
    base: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_truncate(self) -> bool:
        return bool((self.run.op[self.rows] == TRUNCATE).any())


_Bucket = Sequence[tuple[int, Sequence[_Taken[Own, Trans]]]]
"""Rows by table version, which one task must process one after another."""


_Unit = Sequence[Segment[Own, Trans] | MixedSegment[Own, Trans]]
"""Segments that one task must process one after another."""


def tasks(
    log: RowLog[Own, Trans],
    rows: Sequence[Rows[RowRun[Own, Trans]]],
    versions: Sequence[TableSchema],
    topic: Callable[[TableSchema], str],
    by_key: bool,
    parallelism: int,
    most: int = 0,
    takes_last: Callable[[TableSchema], bool] = lambda _: False,
) -> list[list[Segment[Own, Trans] | MixedSegment[Own, Trans]]]:
    """Return the segments of a batch, grouped by task: at most `parallelism` groups.

    Messages of more than `most` bytes are without their bytes, unless `most` is 0. For a table for which `takes_last`
    returns True, changes may be left out that later changes of the same key make superfluous.
    """
    # a copy, because the reader's thread adds to the list meanwhile
    versions = tuple(versions)
    small = _small_topics(rows, versions, topic, most)
    picked = _by_version(rows, without=frozenset(version for members in small for version in members))
    superseded = _reduce(log, picked, versions, most, takes_last)
    mixed_rows = sum(small.values())
    total = mixed_rows + sum(len(part) for parts in picked.values() for part in parts)
    split = by_key and parallelism > 1 and total >= SMALL_BATCH_ROWS
    topics: dict[str, list[int]] = {}
    for version in picked:
        topics.setdefault(topic(versions[version]), []).append(version)
    buckets: list[_Bucket[Own, Trans]] = []
    for members in topics.values():
        buckets += (_buckets(log, members, picked, versions, parallelism) if split else None) or [
            [(version, picked[version]) for version in members]
        ]

    def unit(bucket: _Bucket[Own, Trans]) -> _Unit[Own, Trans]:
        found = _segments(versions, bucket)
        for segment, (version, _) in zip(found, bucket, strict=True):
            segment.superseded = superseded.pop(version, 0)
        return [segment.without_large(most) if most else segment for segment in found if len(segment)]

    if split and parallelism > 1 and sum(part.run.data.nbytes for part in rows) >= _BESIDE_BYTES:
        with ThreadPoolExecutor(min(parallelism, len(buckets))) as pool:
            units = list(pool.map(unit, buckets))
    else:
        units = [unit(bucket) for bucket in buckets]
    together = not split and (total < SMALL_BATCH_ROWS or parallelism == 1)
    count = 1 if together and len(small) < MANY_TOPICS else parallelism
    units.extend([_mixed(rows, versions, members)] for members in _shared_out(small, count))
    if together and count == 1:
        return [[segment for unit in units for segment in unit]] if units else []
    return _spread(units, parallelism)


def _small_topics(
    rows: Sequence[Rows[Any]], versions: Sequence[TableSchema], topic: Callable[[TableSchema], str], most: int
) -> dict[tuple[int, ...], int]:
    """Return the topics whose tables all have few changes: the table versions of each, with the number of its changes.

    Empty if there are too few to gain anything. Topics of a table with a truncate, or with a message of more than
    `most` bytes, are left out.
    """
    if len(versions) < MIXED_TABLES:
        return {}
    counts, sizes = np.zeros(len(versions), np.int64), np.zeros(len(versions), np.int64)
    barred: set[int] = set()
    for part in rows:
        run = part.run
        version, messages = run.version[part.first : part.last], run.rows[part.first : part.last]
        of_table = version >= 0
        size = (run.offsets[messages + 1] - run.offsets[messages])[of_table]
        counts += np.bincount(version[of_table], minlength=len(versions))
        sizes += np.bincount(version[of_table], size, len(versions)).astype(np.int64)
        barred.update(version[run.op[part.first : part.last] == TRUNCATE].tolist())
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


def _mixed(
    rows: Sequence[Rows[RowRun[Own, Trans]]], versions: Sequence[TableSchema], members: Sequence[int]
) -> MixedSegment[Own, Trans]:
    """Return the messages of the given table versions, in log order."""
    place = np.full(len(versions), -1, np.int32)
    place[list(members)] = np.arange(len(members))
    parts, table = [], []
    for part in rows:
        version = part.run.version[part.first : part.last]
        places = np.where(version >= 0, place[np.maximum(version, 0)], -1)
        mine = np.flatnonzero(places >= 0)
        if len(mine):
            parts.append((part.run, part.first + mine))
            table.append(places[mine].astype(np.int32))
    tables = tuple(versions[member] for member in members)
    return MixedSegment(tables, np.concatenate(table), *gathered(parts))


def _by_version(
    rows: Sequence[Rows[RowRun[Own, Trans]]], only: frozenset[int] | None = None, without: frozenset[int] = frozenset()
) -> dict[int, list[_Taken[Own, Trans]]]:
    """Return the rows of each table version, by run, in log order.

    `only` are the wanted versions; None: all versions but `without`.
    """
    picked: dict[int, list[_Taken[Own, Trans]]] = {}
    number = 0
    for part in rows:
        run = part.run
        base = number - part.first
        number += part.last - part.first
        taken = np.arange(part.first, part.last)
        version = run.version[part.first : part.last]
        present = set(np.flatnonzero(np.bincount(version[version >= 0])).tolist())
        for found in sorted((present if only is None else present & only) - without):
            picked.setdefault(found, []).append(_Taken(run, taken[version == found], base))
    return picked


def changes_of(
    log: RowLog[Own, Trans], rows: Sequence[Rows[RowRun[Own, Trans]]], versions: Sequence[TableSchema], oid: int
) -> list[ChangeBatch]:
    """Decode the changes of the table `oid` among the rows. Return batches, one table version after another."""
    picked = _by_version(rows, frozenset(place for place, table in enumerate(versions) if table.oid == oid))
    whole = [_segment(versions[version], parts) for version, parts in picked.items()]
    return [log.decode(piece) for segment in whole for _, piece in segment.pieces(PIECE)]


def _reduce(
    log: RowLog[Own, Trans],
    picked: dict[int, list[_Taken[Own, Trans]]],
    versions: Sequence[TableSchema],
    most: int,
    takes_last: Callable[[TableSchema], bool],
) -> dict[int, int]:
    """Drop from `picked` changes that later ones make superfluous; return their number by table version."""
    found = {}
    for version, parts in picked.items():
        table = versions[version]
        if not takes_last(table):
            continue
        kept = None
        if table.key and not any(part.has_truncate for part in parts):
            kept = log.last_changes([(part.run, part.rows) for part in parts], table, most)
        found[version] = 0
        if kept is not None:
            left = [replace(part, rows=part.rows[stays]) for part, stays in zip(parts, kept, strict=True)]
            found[version] = sum(map(len, parts)) - sum(map(len, left))
            picked[version] = [part for part in left if len(part)]
    return found


def _segments(versions: Sequence[TableSchema], taken: _Bucket[Own, Trans]) -> list[Segment[Own, Trans]]:
    """Return the segments of a topic, or of a part of its keys; with places if there are several segments."""
    found = [_segment(versions[version], parts) for version, parts in taken]
    if len(found) > 1:
        for segment, (_, parts) in zip(found, taken, strict=True):
            segment.place = np.concatenate([part.rows + part.base for part in parts])
    return found


def _segment(table: TableSchema, parts: Sequence[_Taken[Own, Trans]]) -> Segment[Own, Trans]:
    return Segment(table, *gathered([(part.run, part.rows) for part in parts]))


def _buckets(
    log: RowLog[Own, Trans],
    members: Sequence[int],
    picked: dict[int, list[_Taken[Own, Trans]]],
    versions: Sequence[TableSchema],
    count: int,
) -> list[_Bucket[Own, Trans]] | None:
    """Divide the rows of a topic by the hash of their key into `count` buckets, each with rows by table version.

    Return None if the rows have to stay together.
    """
    names = _hashed(log, [versions[version] for version in members])
    if not names:
        return None
    chosen: list[list[tuple[int, list[_Taken[Own, Trans]]]]] = [[] for _ in range(count)]
    for version in members:
        split: list[list[_Taken[Own, Trans]]] = [[] for _ in range(count)]
        for part in picked[version]:
            if part.has_truncate:
                return None
            hashes, moved = log.key_hashes(part.run, part.rows, versions[version], names)
            if moved.any():
                return None
            bucket = (hashes >> np.uint64(33)) % np.uint64(count)
            for number in range(count):
                mine = part.rows[bucket == number]
                if len(mine):
                    split[number].append(replace(part, rows=mine))
        for number in range(count):
            if split[number]:
                chosen[number].append((version, split[number]))
    return [*chosen]


def _hashed(log: RowLog[Own, Trans], tables: Sequence[TableSchema]) -> list[str]:
    """Return the key columns by whose values the rows of `tables` may be spread over tasks.

    These are the columns of which equal keys in events have equal values in the log (see `RowLog.key_kind`). Empty if
    there is no such column, or if the tables' keys differ.
    """
    (key, *others) = {table.key for table in tables}
    if others:
        return []
    return [
        name
        for name in key
        if len(found := {log.key_kind(table.columns[table.index(name)], table) for table in tables}) == 1
        and None not in found
    ]


def _spread(
    units: Sequence[_Unit[Own, Trans]], parallelism: int
) -> list[list[Segment[Own, Trans] | MixedSegment[Own, Trans]]]:
    """Divide the units among at most `parallelism` tasks, each time the largest to the least loaded."""
    groups: list[list[Segment[Own, Trans] | MixedSegment[Own, Trans]]] = [
        [] for _ in range(min(parallelism, len(units)))
    ]
    loads = [0] * len(groups)
    for unit in sorted(units, key=lambda unit: -_size(unit)):
        if unit:
            place = loads.index(min(loads))
            groups[place].extend(unit)
            loads[place] += _size(unit)
    return [group for group in groups if group]


def _size(unit: _Unit[Any, Any]) -> int:
    return sum(segment.data.nbytes for segment in unit)
