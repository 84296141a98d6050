"""Numbers of events within transactions, for `provide.transaction.metadata`. Planner.

Events are counted in the order of the log over all captured tables of a database. A task reads only one table, so the
planner computes the numbers from positions, operations and keys, and sends them with the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tailrace.columns.batch import Boundary, ChangeBatch, Counts, Int64s
from tailrace.columns.reduction import running
from tailrace.connectors.changetables.log.merging import order_of
from tailrace.connectors.changetables.log.reconcile import one_text
from tailrace.connectors.changetables.log.tasks import Part, TaskSource, change_batches
from tailrace.events import names
from tailrace.events.control_records import in_java_order

# The ordinals of a transaction's boundaries, before its first change and after its last.
_BEGIN, _END = -1, 0


def numbered(source: TaskSource, parts: Sequence[Part]) -> tuple[list[Part], list[Boundary]]:
    """Return the parts of one database's batch with the numbers of their changes, and the batch's boundaries in
    order."""
    orders: list[npt.NDArray[Any]] = []
    commits: list[Int64s] = []
    weights: list[Int64s] = []
    times: list[Int64s] = []
    for part in parts:
        order, commit, weight, at_us = _scanned(source, part)
        orders.append(order)
        commits.append(commit)
        weights.append(weight)
        times.append(at_us)
    sizes = [len(order) for order in orders]
    if not sum(sizes):
        return list(parts), []
    width = max(order.dtype.itemsize for order in orders if len(order))
    whole = np.concatenate([order.astype(f"S{width}") for order in orders])
    weight = np.concatenate(weights)
    commit_of = np.concatenate(commits)
    at = np.concatenate(times)
    of_part = np.repeat(np.arange(len(parts)), sizes)
    known = {part.table.id: number for number, part in enumerate(parts)}
    table = np.array([known[part.table.id] for part in parts])[of_part]
    place = np.argsort(whole, kind="stable")
    positions, transaction = np.unique(commit_of, return_inverse=True)
    total = running(weight[place], transaction[place])
    by_table = running(weight[place], transaction[place] * len(parts) + table[place])
    numbers = np.empty((2, len(whole)), np.int64)
    numbers[0, place], numbers[1, place] = total, by_table
    found = []
    low = 0
    for part, size in zip(parts, sizes, strict=True):
        mine = numbers[:, low : low + size]
        found.append(replace(part, total_order=mine[0].copy(), table_order=mine[1].copy()))
        low += size
    return found, _boundaries(source, parts, positions, transaction, table, weight, at)


def _scanned(source: TaskSource, part: Part) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Int64s, Int64s]:
    """Return, for each change of a part, its place in the log, its commit position, its number of events, and its
    time."""
    key = set(part.table.key)
    columns = part.table.columns
    if not source.skips_unchanged:
        columns = tuple(column for column in columns if column.name in key)
    batches = list(change_batches(source, [replace(part, table=replace(part.table, columns=columns))]))
    if not batches:
        nothing = np.zeros(0, np.int64)
        return np.zeros(0, "S1"), np.zeros(0, "S1"), nothing, nothing
    skipped = source.settings.skipped_operations
    weights = np.array([0 if chr(code) in skipped else 1 for code in range(256)], np.int64)
    twice = int("d" not in skipped) + int("c" not in skipped)
    orders = [order_of(batch) for batch in batches]
    commits = [one[1] for one in orders]
    found = [np.where(_key_changes(batch), twice, weights[batch.op]) for batch in batches]
    times = [batch.transactions.commit_us[batch.transaction] for batch in batches]
    return (
        np.concatenate([one[0] for one in orders]),
        np.concatenate(commits),
        np.concatenate(found),
        np.concatenate(times),
    )


def _key_changes(batch: ChangeBatch) -> npt.NDArray[np.bool_]:
    """Return a mask of the updates that change the key."""
    changed = batch.op == ord("u")
    if not changed.any() or not batch.table.key or batch.before is None or batch.after is None:
        return np.zeros(len(batch), np.bool_)
    places = [batch.table.index(name) for name in batch.table.key]
    old = one_text([batch.before.columns[place] for place in places])
    new = one_text([batch.after.columns[place] for place in places])
    differs = pc.fill_null(pc.not_equal(old, new), False).to_numpy(zero_copy_only=False)
    if batch.before.present is not None:
        differs = differs & batch.before.present
    result: npt.NDArray[np.bool_] = changed & differs
    return result


def _boundaries(
    source: TaskSource,
    parts: Sequence[Part],
    positions: npt.NDArray[Any],
    transaction: Int64s,
    table: Int64s,
    weight: Int64s,
    at_us: Int64s,
) -> list[Boundary]:
    from tailrace.events.captured_form import position_of
    from tailrace.values.lsns import lsn_text

    tables = [names.collection(source.settings, part.table.id) for part in parts]
    width = source.dialect.width
    counts: dict[int, dict[str, int]] = {}
    keys, inverse = np.unique(transaction * len(parts) + table, return_inverse=True)
    for key, count in zip(keys.tolist(), np.bincount(inverse, weight).astype(np.int64).tolist(), strict=True):
        if count:
            counts.setdefault(key // len(parts), {})[tables[key % len(parts)]] = count
    when = np.zeros(len(positions), np.int64)
    when[transaction] = at_us
    found = []
    for number in sorted(counts):
        commit = bytes(positions[number]).ljust(width, b"\0")
        one = counts[number]
        ended = Counts(sum(one.values()), tuple((name, one[name]) for name in in_java_order(one)))
        text, at = lsn_text(commit), int(when[number])
        found.append(Boundary(text, 0, position_of(commit), at, _BEGIN, None))
        found.append(Boundary(text, 0, position_of(commit, b"\xff" * width), at, _END, ended))
    return found
