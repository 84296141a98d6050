"""field.exclude.list and field.renames on whole documents, compiled: one walk that copies the remaining fields. Worker.

The result must equal that of `field_filters`, which also handles the cases that this module cannot: rules that affect
one another, and documents in which a new name is taken. A document that has a name twice keeps both fields; the writers
of JSON take the last, as `field_filters` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import ARRAY, DOCUMENT, Bytes, Int64s, load, value_size
from tailrace.kernels.buffers import readonly
from tailrace.kernels.compiled import kernel

THROUGH, EXCLUDE, RENAME = range(3)
GIVE_UP = -1
# A level of the stack: the end of the input, the node, a flag for an array, the beginning of the output, the next field
# in the input, and the number of edges whose renames are done. For each edge follow the place of its field, and then a
# flag that its new name is taken.
_END, _NODE, _IS_ARRAY, _BEGIN, _NEXT, _DONE, _FIXED = range(7)


class DocumentPlaces(NamedTuple):
    """Documents in a new buffer, and their places in it; -1 for a value that is not a document."""

    data: Bytes
    places: Int64s


class RuleTrees(NamedTuple):
    """Rules as trees of names: the edges of node n are `firsts[n]` to `firsts[n + 1]`; the first nodes are whole
    documents.

    An edge has a name and the action on the field of this name; its target is the node for the field's contents, or -1.
    Renames of a node are in the order of their rules. `growth` is the largest factor by which a name can grow, `depth`
    the largest number of names in a path.
    """

    firsts: Int64s
    actions: Bytes
    targets: Int64s
    names: Bytes
    bounds: Int64s
    new: Bytes
    new_bounds: Int64s
    growth: int
    depth: int

    def stack(self) -> Int64s:
        """Return a stack for the documents and arrays that a walk can enter: at each node an array and a document in
        the array."""
        return np.empty((2 * self.depth, _FIXED + 2 * int(np.diff(self.firsts).max(initial=0))), np.int64)


@dataclass(slots=True)
class _Edge:
    action: int = THROUGH
    new: bytes = b""
    order: int = 0
    below: dict[bytes, _Edge] | None = None


Paths = Sequence[tuple[tuple[bytes, ...], bytes | None]]
"""Paths, each with the new last name, or None to exclude; exclusions come first."""


def table(trees: Sequence[Paths]) -> RuleTrees | None:
    """Return the table for several sets of rules; the document of set i is node i.

    Returns None if rules affect one another, for example if one renames a field that another rule names.
    """
    roots = [_tree(rules) for rules in trees]
    return None if None in roots else _laid_out([root for root in roots if root is not None])


def _tree(rules: Paths) -> dict[bytes, _Edge] | None:
    root: dict[bytes, _Edge] = {}
    for order, (path, new) in enumerate(rules):
        edges = root
        for name in path[:-1]:
            edge = edges.setdefault(name, _Edge())
            if edge.action == RENAME:
                return None
            edge.below = {} if edge.below is None else edge.below
            edges = edge.below
        edge = edges.setdefault(path[-1], _Edge())
        if new is None:
            edge.action = EXCLUDE
        elif edge.action == RENAME:
            return None
        elif edge.action == THROUGH:
            edge.action, edge.new, edge.order = RENAME, new, order
    return root


def _laid_out(nodes: list[dict[bytes, _Edge]]) -> RuleTrees | None:
    firsts, actions, targets, growth = [0], [], [], 1
    depths = [1] * len(nodes)
    names: list[bytes] = []
    news: list[bytes] = []
    for number, node in enumerate(nodes):
        given = [edge.new for edge in node.values() if edge.action == RENAME]
        if len(set(given)) < len(given) or set(given) & set(node):
            return None
        for name, edge in sorted(node.items(), key=lambda pair: pair[1].order):
            names.append(name)
            news.append(edge.new)
            actions.append(edge.action)
            # an element has a byte of type, its name, and a zero byte
            growth = max(growth, -(-(len(edge.new) + 2) // (len(name) + 2)))
            if edge.below is None or edge.action == EXCLUDE:
                targets.append(-1)
            else:
                targets.append(len(nodes))
                nodes.append(edge.below)
                depths.append(depths[number] + 1)
        firsts.append(len(names))
    return RuleTrees(
        np.array(firsts, np.int64),
        np.array(actions, np.uint8),
        np.array(targets, np.int64),
        *_joined(names),
        *_joined(news),
        growth,
        max(depths, default=1),
    )


def _joined(texts: list[bytes]) -> tuple[Bytes, Int64s]:
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), bounds


@kernel(leaf=True, inlined=True)
def equal(data: Bytes, at: int, length: int, names: Bytes, first: int, last: int) -> bool:
    if last - first != length:
        return False
    for byte in range(length):  # noqa: SIM110
        if data[at + byte] != names[first + byte]:
            return False
    return True


@kernel(leaf=True, inlined=True)
def copied(data: Bytes, first: int, last: int, out: Bytes, to: int) -> int:
    for place in range(first, last):
        out[to + place - first] = data[place]
    return to + last - first


@kernel(leaf=True, inlined=True)
def put_size(out: Bytes, begin: int, to: int) -> int:
    """End the document at `begin`: write its zero byte at `to`, and its size. Return the position after it."""
    out[to] = 0
    to += 1
    for byte in range(4):
        out[begin + byte] = ((to - begin) >> (8 * byte)) & 255
    return to


@kernel(leaf=True, inlined=True)
def _entered(data: Bytes, at: int, limit: int, node: int, is_array: bool, stack: Int64s, depth: int, to: int) -> int:
    """Push the document or array at `at`, which must end by `limit`. Return the place for its fields, or GIVE_UP."""
    if depth == len(stack) or at + 5 > limit:
        return GIVE_UP
    end = at + load(data, at) - 1
    if end >= limit or end < at + 4 or data[end] != 0:
        return GIVE_UP
    stack[depth, _END] = end
    stack[depth, _NODE] = node
    stack[depth, _IS_ARRAY] = is_array
    stack[depth, _BEGIN] = to
    stack[depth, _NEXT] = at + 4
    stack[depth, _DONE] = 0
    width = (stack.shape[1] - _FIXED) // 2
    for index in range(width):
        stack[depth, _FIXED + index] = -1
        stack[depth, _FIXED + width + index] = 0
    return to + 4


@kernel(leaf=True, inlined=True)
def _ruled(data: Bytes, place: int, length: int, rules: RuleTrees, stack: Int64s, level: int) -> tuple[bool, int]:
    """Return True if the field at `place` stays in its place, and the node for its contents, or -1.

    A renamed field is written later: the level stores its place.
    """
    width = (stack.shape[1] - _FIXED) // 2
    first, name = rules.firsts[stack[level, _NODE]], place + 1
    for edge in range(first, rules.firsts[stack[level, _NODE] + 1]):
        if equal(data, name, length, rules.names, rules.bounds[edge], rules.bounds[edge + 1]):
            if rules.actions[edge] == THROUGH:
                return True, int(rules.targets[edge])
            stack[level, _FIXED + edge - first] = place
            return False, -1
        if rules.actions[edge] == RENAME and equal(
            data, name, length, rules.new, rules.new_bounds[edge], rules.new_bounds[edge + 1]
        ):
            stack[level, _FIXED + width + edge - first] = 1
    return True, -1


@kernel(leaf=True, inlined=True)
def _field(data: Bytes, rules: RuleTrees, stack: Int64s, depth: int, out: Bytes, to: int) -> tuple[int, int]:
    """Copy the next field of the level, or enter it. Return the depth, and the position after the output or GIVE_UP."""
    level = depth - 1
    place, end = stack[level, _NEXT], stack[level, _END]
    kind = data[place]
    value = place + 1
    while value < end and data[value] != 0:
        value += 1
    length = value - place - 1
    value += 1
    size = value_size(data, kind, value, end) if value <= end else -1
    if size < 0:
        return depth, GIVE_UP
    stack[level, _NEXT] = value + size
    if stack[level, _IS_ARRAY] == 1:
        kept, child = True, int(stack[level, _NODE]) if kind == DOCUMENT else -1
    else:
        kept, child = _ruled(data, place, length, rules, stack, level)
    if kept and child >= 0 and kind in (DOCUMENT, ARRAY):
        to = copied(data, place, value, out, to)
        return depth + 1, _entered(data, value, end, child, kind == ARRAY, stack, depth, to)
    return depth, copied(data, place, value + size, out, to) if kept else to


@kernel(leaf=True, inlined=True)
def _renamed(data: Bytes, rules: RuleTrees, stack: Int64s, depth: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write the field of the level's next edge under its new name, if the edge renames it. Return the same as
    `_field`."""
    level = depth - 1
    index, end = stack[level, _DONE], stack[level, _END]
    stack[level, _DONE] = index + 1
    edge = rules.firsts[stack[level, _NODE]] + index
    moved = stack[level, _FIXED + index]
    if moved < 0 or rules.actions[edge] != RENAME:
        return depth, to
    if stack[level, _FIXED + (stack.shape[1] - _FIXED) // 2 + index] == 1:
        return depth, GIVE_UP
    kind = data[moved]
    value = moved + 2 + rules.bounds[edge + 1] - rules.bounds[edge]
    out[to] = kind
    to = copied(rules.new, rules.new_bounds[edge], rules.new_bounds[edge + 1], out, to + 1)
    out[to] = 0
    to += 1
    if rules.targets[edge] >= 0 and kind in (DOCUMENT, ARRAY):
        return depth + 1, _entered(data, value, end, rules.targets[edge], kind == ARRAY, stack, depth, to)
    return depth, copied(data, value, value + value_size(data, kind, value, end), out, to)


@kernel(leaf=True, inlined=True)
def edit_one(
    data: Bytes, at: int, limit: int, node: int, is_array: bool, rules: RuleTrees, stack: Int64s, out: Bytes, to: int
) -> int:  # fmt: skip
    """Copy the document or array at `at`, which must end by `limit`, to `to`. Return the end of the copy, or GIVE_UP.

    Each level of `stack` is an open document or array. (There is no recursion: numba cannot load a recursive function
    from its cache.)
    """
    depth = 1
    to = _entered(data, at, limit, node, is_array, stack, 0, to)
    while to >= 0 and depth > 0:
        level = depth - 1
        node = stack[level, _NODE]
        if stack[level, _NEXT] < stack[level, _END]:
            depth, to = _field(data, rules, stack, depth, out, to)
        elif stack[level, _IS_ARRAY] == 0 and rules.firsts[node] + stack[level, _DONE] < rules.firsts[node + 1]:
            depth, to = _renamed(data, rules, stack, depth, out, to)
        else:
            to = put_size(out, stack[level, _BEGIN], to)
            depth -= 1
    return to


@kernel
def _all_edited(
    data: Bytes, places: Int64s, kinds: Bytes, rules: RuleTrees, stack: Int64s, out: Bytes, found: Int64s
) -> int:  # fmt: skip
    to = 0
    for row in range(len(places)):
        if kinds[row] != DOCUMENT:
            found[row] = -1
            continue
        found[row] = to
        to = edit_one(data, places[row], len(data), 0, False, rules, stack, out, to)
        if to < 0:
            return GIVE_UP
    return to


def edited(data: Bytes, places: Int64s, kinds: Bytes, rules: RuleTrees) -> DocumentPlaces | None:
    """Apply the rules to the documents at `places`. Return None if `field_filters` must handle one of them."""
    which = np.where(kinds == DOCUMENT, places, -1)
    # the walk detects documents with a wrong length
    room = int(np.clip(fields.sizes_of(data, which), 0, len(data)).sum())
    out = np.empty(room * rules.growth + 1, np.uint8)
    found = np.empty(len(places), np.int64)
    size = _all_edited(data, places, kinds, rules, rules.stack(), out, found)
    return None if size < 0 else DocumentPlaces(readonly(out[: max(size, 1)]), found)
