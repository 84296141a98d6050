"""field.exclude.list and field.renames on documents of dotted keys, compiled: `updatedFields`, `$set`. Worker.

What becomes of a key follows from the names of all keys alone, so `field_filters` decides it once for each list of
names that occurs, and makes a plan: which fields stay, in which order and by which names, and which rules hold within.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.field_kernels import GIVE_UP, copied, edit_one, table
from tailrace.connectors.mongodb.values.fields import ARRAY, DOCUMENT, Bytes, Int64s, load, value_size
from tailrace.serde.memory import readonly

Rules = tuple[tuple[tuple[bytes, ...], bytes | None], ...]
Bools = npt.NDArray[np.bool_]
Plan = tuple[tuple[int, bytes, Rules], ...]
"""The fields that stay: each one's place among the document's, its name, and the rules for what is in it."""


@njit(cache=True, nogil=True)
def _names(data: Any, places: Any, kinds: Any, out: Any, bounds: Any) -> Any:
    """Write the names of every document's fields, each with a zero byte; the first malformed document, or -1."""
    to = 0
    for row in range(len(places)):
        bounds[row] = to
        if kinds[row] != DOCUMENT:
            continue
        at = places[row]
        end = at + load(data, at) - 1
        if end >= len(data) or end < at + 4 or data[end] != 0:
            return row
        place = at + 4
        while place < end:
            kind = data[place]
            value = place + 1
            while value < end and data[value] != 0:
                out[to] = data[value]
                to += 1
                value += 1
            out[to] = 0
            to += 1
            value += 1
            size = value_size(data, kind, value, end) if value <= end else -1
            if size < 0:
                return row
            place = value + size
    bounds[len(places)] = to
    return -1


def names_of(data: Bytes, places: Int64s, kinds: Bytes) -> tuple[Int64s, list[tuple[bytes, ...]]] | None:
    """Which of the distinct lists of names each document has, and these; None where a document is malformed."""
    which = np.where(kinds == DOCUMENT, places, -1)
    out = np.empty(int(np.clip(fields.sizes_of(data, which), 0, len(data)).sum()) + 1, np.uint8)
    bounds = np.zeros(len(places) + 1, np.int64)
    if _names(data, places, kinds, out, bounds) >= 0:
        return None
    codes, texts = fields.distinct(out, bounds[:-1], np.diff(bounds))
    return codes, [tuple(text.split(b"\0")[:-1]) for text in texts]


@njit(cache=True, nogil=True)
def _carried_out(
    data: Any, places: Any, kinds: Any, codes: Any, starts: Any, chosen: Any, nodes: Any, own: Any, own_bounds: Any,
    room: Any, firsts: Any, actions: Any, targets: Any, names: Any, bounds: Any, new: Any, new_bounds: Any, stack: Any,
    out: Any, found: Any,
) -> Any:  # fmt: skip
    """Make the documents; the end of the last one, or GIVE_UP. `room` is the largest number of fields."""
    types = np.empty(room, np.uint8)
    values = np.empty(room + 1, np.int64)
    sizes = np.empty(room, np.int64)
    to = 0
    for row in range(len(places)):
        if kinds[row] != DOCUMENT:
            found[row] = -1
            continue
        found[row] = to
        at = places[row]
        end = at + load(data, at) - 1
        place = at + 4
        count = 0
        while place < end:
            types[count] = data[place]
            value = place + 1
            while data[value] != 0:
                value += 1
            value += 1
            values[count] = value
            sizes[count] = value_size(data, types[count], value, end)
            place = value + sizes[count]
            count += 1
        begin = to
        to += 4
        for number in range(starts[codes[row]], starts[codes[row] + 1]):
            field = chosen[number]
            kind = types[field]
            out[to] = kind
            to = copied(own, own_bounds[number], own_bounds[number + 1], out, to + 1)
            out[to] = 0
            to += 1
            if nodes[number] >= 0 and kind in (DOCUMENT, ARRAY):
                to = edit_one(
                    data, values[field], end, nodes[number], kind == ARRAY, firsts, actions, targets, names, bounds,
                    new, new_bounds, stack, out, to,
                )  # fmt: skip
                if to < 0:
                    return GIVE_UP
            else:
                to = copied(data, values[field], values[field] + sizes[field], out, to)
        out[to] = 0
        to += 1
        for byte in range(4):
            out[begin + byte] = ((to - begin) >> (8 * byte)) & 255
    return to


def carried_out(
    data: Bytes, places: Int64s, kinds: Bytes, codes: Int64s, plans: Sequence[Plan], listed: Sequence[Sequence[bytes]]
) -> tuple[Bytes, Int64s] | None:
    """The documents at `places`, made by the plans of their `listed` names; -1 for values that are none.

    None when one of them is for `field_filters` to decide.
    """
    below = list(dict.fromkeys(rules for plan in plans for _, _, rules in plan if rules))
    tables = table(below)
    if tables is None:
        return None
    node = {rules: number for number, rules in enumerate(below)}
    steps = [step for plan in plans for step in plan]
    own = [name for _, name, _ in steps]
    more = [
        sum(max(0, len(name) - len(given[field])) for field, name, _ in plan)
        for plan, given in zip(plans, listed, strict=True)
    ]
    which = np.where(kinds == DOCUMENT, places, -1)
    room = int(fields.sizes_of(data, which).sum()) * tables.growth + int(np.array([*more, 0])[codes].sum())
    out = np.empty(room + 1, np.uint8)
    found = np.empty(len(places), np.int64)
    size = _carried_out(
        data,
        places,
        kinds,
        codes,
        np.cumsum([0, *map(len, plans)]).astype(np.int64),
        np.array([field for field, _, _ in steps], np.int64),
        np.array([node[rules] if rules else -1 for _, _, rules in steps], np.int64),
        readonly(np.frombuffer(b"".join(own) + b"\0", np.uint8)),
        np.cumsum([0, *map(len, own)]).astype(np.int64),
        max((len(given) for given in listed), default=0),
        tables.firsts, tables.actions, tables.targets, tables.names, tables.bounds, tables.new, tables.new_bounds,
        tables.stack(),
        out,
        found,
    )  # fmt: skip
    return None if size < 0 else (readonly(out[: max(size, 1)]), found)


@njit(cache=True, nogil=True)
def _spliced(
    data: Any, places: Any, kinds: Any, is_update: Any, whole: Any, whole_at: Any, sets: Any, set_data: Any,
    set_at: Any, unsets: Any, unset_data: Any, unset_at: Any, out: Any, found: Any,
) -> Any:  # fmt: skip
    to = 0
    for row in range(len(places)):
        if kinds[row] != DOCUMENT:
            found[row] = -1
            continue
        found[row] = to
        if not is_update[row]:
            to = copied(whole, whole_at[row], whole_at[row] + load(whole, whole_at[row]), out, to)
            continue
        at = places[row]
        end = at + load(data, at) - 1
        begin = to
        to += 4
        place = at + 4
        while place < end:
            kind = data[place]
            value = place + 1
            while data[value] != 0:
                value += 1
            value += 1
            size = value_size(data, kind, value, end)
            to = copied(data, place, value, out, to)
            if value == sets[row] and set_at[row] >= 0:
                to = copied(set_data, set_at[row], set_at[row] + load(set_data, set_at[row]), out, to)
            elif value == unsets[row] and unset_at[row] >= 0:
                to = copied(unset_data, unset_at[row], unset_at[row] + load(unset_data, unset_at[row]), out, to)
            else:
                to = copied(data, value, value + size, out, to)
            place = value + size
        out[to] = 0
        to += 1
        for byte in range(4):
            out[begin + byte] = ((to - begin) >> (8 * byte)) & 255
    return to


Column = tuple[Bytes, Int64s]
"""Documents in a buffer of their own, and their places there."""


def spliced(
    data: Bytes, places: Int64s, kinds: Bytes, is_update: Bools, whole: Column, inside: Int64s, parts: Sequence[Column]
) -> Column:
    """The oplog's entries at `places`: those that are updates with the `parts` for what is `inside`, `$set` and
    `$unset`, in its place, the others as `whole` has them; -1 for values that are no documents."""
    which = np.where(kinds == DOCUMENT, places, -1)
    room = int(fields.sizes_of(data, which).sum()) + sum(len(one[0]) for one in (whole, *parts))
    out = np.empty(room + 1, np.uint8)
    found = np.empty(len(places), np.int64)
    size = _spliced(
        data, places, kinds, is_update, *whole, inside[0], *parts[0], inside[1], *parts[1], out, found
    )  # fmt: skip
    return readonly(out[: max(size, 1)]), found
