"""field.exclude.list and field.renames on documents of dotted keys, compiled: `updatedFields`, `$set`. Worker.

The result for a key depends only on the names of all keys, so `field_filters` computes a plan once for each list of
names: the fields that stay, their order and names, and the rules for their contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.field_kernels import (
    GIVE_UP,
    DocumentPlaces,
    RuleTrees,
    copied,
    edit_one,
    put_size,
    table,
)
from tailrace.connectors.mongodb.values.fields import ARRAY, DOCUMENT, Bytes, Int64s, load, value_size
from tailrace.kernels.buffers import readonly
from tailrace.kernels.compiled import kernel

Rules = tuple[tuple[tuple[bytes, ...], bytes | None], ...]
Bools = npt.NDArray[np.bool_]
Plan = tuple[tuple[int, bytes, Rules], ...]
"""The fields that stay: for each its index in the document, its name, and the rules for its contents."""


@kernel
def _names(data: Bytes, places: Int64s, kinds: Bytes, out: Bytes, bounds: Int64s) -> int:
    """Write the names of every document's fields, each with a zero byte. Return the first malformed document, or -1."""
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
    """Return an index for each document into the distinct lists of names, and these lists; None for a malformed
    document."""
    which = np.where(kinds == DOCUMENT, places, -1)
    out = np.empty(int(np.clip(fields.sizes_of(data, which), 0, len(data)).sum()) + 1, np.uint8)
    bounds = np.zeros(len(places) + 1, np.int64)
    if _names(data, places, kinds, out, bounds) >= 0:
        return None
    codes, texts = fields.distinct(out, bounds[:-1], np.diff(bounds))
    return codes, [tuple(text.split(b"\0")[:-1]) for text in texts]


class _Steps(NamedTuple):
    """Plans for the kernel: the steps of plan n are `starts[n]` to `starts[n + 1]`.

    A step has the index of its field, the node of the rules for the field's contents, or -1, and the field's new name.
    `most` is the largest number of fields in a document.
    """

    starts: Int64s
    fields: Int64s
    nodes: Int64s
    names: Bytes
    bounds: Int64s
    most: int


def _steps(plans: Sequence[Plan], node: dict[Rules, int], most: int) -> _Steps:
    steps = [step for plan in plans for step in plan]
    names = [name for _, name, _ in steps]
    return _Steps(
        np.cumsum([0, *map(len, plans)]).astype(np.int64),
        np.array([field for field, _, _ in steps], np.int64),
        np.array([node[rules] if rules else -1 for _, _, rules in steps], np.int64),
        readonly(np.frombuffer(b"".join(names) + b"\0", np.uint8)),
        np.cumsum([0, *map(len, names)]).astype(np.int64),
        most,
    )


@kernel
def _carried_out(
    data: Bytes, places: Int64s, kinds: Bytes, codes: Int64s, steps: _Steps, rules: RuleTrees, stack: Int64s,
    out: Bytes, found: Int64s,
) -> int:  # fmt: skip
    """Write the documents. Return the end of the last one, or GIVE_UP."""
    types = np.empty(steps.most, np.uint8)
    values = np.empty(steps.most + 1, np.int64)
    sizes = np.empty(steps.most, np.int64)
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
        for number in range(steps.starts[codes[row]], steps.starts[codes[row] + 1]):
            field = steps.fields[number]
            kind = types[field]
            out[to] = kind
            to = copied(steps.names, steps.bounds[number], steps.bounds[number + 1], out, to + 1)
            out[to] = 0
            to += 1
            if steps.nodes[number] >= 0 and kind in (DOCUMENT, ARRAY):
                to = edit_one(data, values[field], end, steps.nodes[number], kind == ARRAY, rules, stack, out, to)
                if to < 0:
                    return GIVE_UP
            else:
                to = copied(data, values[field], values[field] + sizes[field], out, to)
        to = put_size(out, begin, to)
    return to


def carried_out(
    data: Bytes, places: Int64s, kinds: Bytes, codes: Int64s, plans: Sequence[Plan], listed: Sequence[Sequence[bytes]]
) -> DocumentPlaces | None:
    """Apply plans to the documents at `places`; plan n is for documents with the names `listed[n]`.

    Return None if `field_filters` must handle one of them. The place of a value that is not a document is -1.
    """
    below = list(dict.fromkeys(rules for plan in plans for _, _, rules in plan if rules))
    tables = table(below)
    if tables is None:
        return None
    more = [
        sum(max(0, len(name) - len(given[field])) for field, name, _ in plan)
        for plan, given in zip(plans, listed, strict=True)
    ]
    which = np.where(kinds == DOCUMENT, places, -1)
    room = int(fields.sizes_of(data, which).sum()) * tables.growth + int(np.array([*more, 0])[codes].sum())
    out = np.empty(room + 1, np.uint8)
    found = np.empty(len(places), np.int64)
    node = {rules: number for number, rules in enumerate(below)}
    steps = _steps(plans, node, max((len(given) for given in listed), default=0))
    size = _carried_out(data, places, kinds, codes, steps, tables, tables.stack(), out, found)
    return None if size < 0 else DocumentPlaces(readonly(out[: max(size, 1)]), found)


@kernel(leaf=True, inlined=True)
def _copied_document(documents: DocumentPlaces, row: int, out: Bytes, to: int) -> int:
    at = documents.places[row]
    return copied(documents.data, at, at + load(documents.data, at), out, to)


@kernel
def _spliced(
    data: Bytes, places: Int64s, kinds: Bytes, is_update: Bools, whole: DocumentPlaces, inside: Int64s,
    sets: DocumentPlaces, unsets: DocumentPlaces, out: Bytes, found: Int64s,
) -> int:  # fmt: skip
    """Write the documents. Return the end of the last one. `inside` has the places of `$set` and of `$unset`."""
    to = 0
    for row in range(len(places)):
        if kinds[row] != DOCUMENT:
            found[row] = -1
            continue
        found[row] = to
        if not is_update[row]:
            to = _copied_document(whole, row, out, to)
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
            if value == inside[0, row] and sets.places[row] >= 0:
                to = _copied_document(sets, row, out, to)
            elif value == inside[1, row] and unsets.places[row] >= 0:
                to = _copied_document(unsets, row, out, to)
            else:
                to = copied(data, value, value + size, out, to)
            place = value + size
        to = put_size(out, begin, to)
    return to


def spliced(
    data: Bytes, places: Int64s, kinds: Bytes, is_update: Bools, whole: DocumentPlaces, inside: Int64s,
    sets: DocumentPlaces,
    unsets: DocumentPlaces,
) -> DocumentPlaces:  # fmt: skip
    """Return the oplog's entries at `places`: updates get `sets` and `unsets` as their `$set` and `$unset`, which are
    at the places `inside`; other entries are taken from `whole`."""
    which = np.where(kinds == DOCUMENT, places, -1)
    room = int(fields.sizes_of(data, which).sum()) + sum(len(one.data) for one in (whole, sets, unsets))
    out = np.empty(room + 1, np.uint8)
    found = np.empty(len(places), np.int64)
    size = _spliced(data, places, kinds, is_update, whole, inside, sets, unsets, out, found)
    return DocumentPlaces(readonly(out[: max(size, 1)]), found)
