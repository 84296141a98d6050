"""field.exclude.list and field.renames, applied to raw BSON; whole documents by `field_kernels` where it can. Worker.

Both name fields by paths, `database.collection.field.nested`, and Debezium applies the paths one after another, those
that exclude first. What it does, and what is done here:

- In a document a path goes through documents and through the documents in an array, not through arrays in arrays. A
  renamed field goes to the end of its document.
- An oplog's `$set` and `$unset`, and the `updatedFields` of a change stream, name fields by dotted keys. If there is a
  key that is the path itself, it alone counts. Otherwise the keys are gone through in order: one that lies at or below
  the path is excluded or renamed; the first one above it ends the search, and its value is treated like a document.
  An index of an array before or behind a name is passed over, one at a time.
- The names in `removedFields` are dropped when they are the path or, where it excludes, lie above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tailrace.buffers import readonly
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.field_kernels import Documents, Table, edited, table
from tailrace.connectors.mongodb.values.field_plans import Plan, carried_out, names_of, spliced
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.connectors.mongodb.values.plain_json import value_size
from tailrace.errors import ConversionError, DecodeError

_MOST_PLANS = 4096


@dataclass(slots=True)
class Element:
    """A field: its name and type, and its value as bytes; `inner` once it is taken apart."""

    name: bytes
    kind: int
    value: bytes
    inner: list[Element] | None = None

    def elements(self) -> list[Element]:
        if self.inner is None:
            self.inner = parsed(self.value)
        return self.inner

    def encoded(self) -> bytes:
        value = self.value if self.inner is None else encoded(self.inner)
        return bytes((self.kind,)) + self.name + b"\0" + value


def parsed(document: bytes) -> list[Element]:
    """The elements of a document, the last of each name at the place of the first. Raises DecodeError."""
    found: dict[bytes, Element] = {}
    end = value_size(document, fields.DOCUMENT, 0) - 1
    at = 4
    while at < end:
        stop = document.find(b"\0", at + 1, end)
        if stop < 0:
            raise DecodeError("A field of the log has no end of its name.", at)
        size = value_size(document[:end], document[at], stop + 1)
        name = document[at + 1 : stop]
        found[name] = Element(name, document[at], document[stop + 1 : stop + 1 + size])
        at = stop + 1 + size
    return list(found.values())


def encoded(elements: Sequence[Element]) -> bytes:
    body = b"".join(element.encoded() for element in elements)
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the options: the path within the document, and the new last name, None to exclude the field."""

    path: tuple[bytes, ...]
    new: bytes | None

    def occurs(self, content: bytes) -> bool:
        """Whether the path may be in these bytes."""
        return all(name in content for name in self.path)


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """The rules for one collection, in the order in which they are applied."""

    rules: tuple[Rule, ...]
    table: Table | None
    """The rules compiled for whole documents; None where they influence one another."""
    _names: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    _plans: dict[tuple[bytes, ...], Plan | None] = field(default_factory=dict, compare=False, repr=False)

    def documents(self, data: Bytes, places: Int64s, kinds: Bytes) -> Documents:
        """A column of whole documents after the rules."""
        found = None if self.table is None else edited(data, places, kinds, self.table)
        return filtered(data, places, kinds, self.document) if found is None else found

    def entries(self, data: Bytes, places: Int64s, kinds: Bytes) -> Documents:
        """The same for what oplog entries hold."""
        which = np.where(kinds == fields.DOCUMENT, places, -1)
        inside, inner = fields.locate(data, which, ("$set", "$unset"))
        is_update = np.logical_or(inside[0] >= 0, inside[1] >= 0)
        whole = self.documents(data, places, np.where(is_update, 0, kinds).astype(np.uint8))
        sets, unsets = (self.changes(data, inside[row], inner[row]) for row in (0, 1))
        return spliced(data, places, kinds, is_update, whole, inside, sets, unsets)

    def changes(self, data: Bytes, places: Int64s, kinds: Bytes) -> Documents:
        """The same for `updatedFields`."""
        named = names_of(data, places, kinds)
        if named is not None:
            codes, listed = named
            plans = [self._planned(names) for names in listed]
            known = [plan for plan in plans if plan is not None]
            found = carried_out(data, places, kinds, codes, known, listed) if len(known) == len(plans) else None
            if found is not None:
                return found
        return filtered(data, places, kinds, self.changed)

    def _planned(self, names: tuple[bytes, ...]) -> Plan | None:
        """What becomes of the fields of a document of dotted keys; None where a document has to be looked at."""
        if names not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[names] = _plan(names, self.rules)
        return self._plans[names]

    def document(self, content: bytes) -> bytes:
        """A whole document. All of these raise ConversionError when a renamed field's new name is taken."""
        return self._applied(content, _to_document)

    def entry(self, content: bytes) -> bytes:
        """What an oplog entry holds: `$set` and `$unset` where it has them, else a whole document."""
        return self._applied(content, _to_entry)

    def changed(self, content: bytes) -> bytes:
        """`updatedFields`: values by dotted keys."""
        return self._applied(content, _to_keys)

    def name(self, name: str) -> str | None:
        """A name in `removedFields` or `truncatedArrays`; None when it is dropped."""
        if name not in self._names:
            self._names[name] = self._name(name)
        return self._names[name]

    def _name(self, name: str) -> str | None:
        for rule in self.rules:
            segments = _segments(name.encode())
            used = _match(segments, rule.path)
            behind = len(segments) - used.segments
            ends = behind == 0 or (behind == 1 and segments[-1].isdigit())
            if used.nodes == len(rule.path) and ends:
                if rule.new is None:
                    return None
                segments[used.last] = rule.new
                name = b".".join(segments).decode()
            elif used.nodes and ends and rule.new is None:
                return None
        return name

    def _applied(self, content: bytes, apply: Callable[[list[Element], Rule], None]) -> bytes:
        elements: list[Element] | None = None
        for rule in self.rules:
            if elements is not None or rule.occurs(content):
                elements = parsed(content) if elements is None else elements
                apply(elements, rule)
        return content if elements is None else encoded(elements)


@dataclass(frozen=True, slots=True)
class _Match:
    """How far a key and a path go together: names of the path, segments of the key, the place of the last name."""

    nodes: int
    segments: int
    last: int


def _segments(key: bytes) -> list[bytes]:
    """The names of a dotted key; Java's split leaves out empty ones at the end."""
    found = key.split(b".")
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found


def _match(segments: Sequence[bytes], path: Sequence[bytes]) -> _Match:
    at, last = 0, -1
    for number, name in enumerate(path):
        start = at
        if at < len(segments) and segments[at].isdigit():
            at += 1
        if at == len(segments) or segments[at] != name or name.isdigit():
            return _Match(number, at if at == len(segments) else start, last)
        last = at
        at += 1
    return _Match(len(path), at, last)


def _position(elements: list[Element], name: bytes) -> int:
    return next((place for place, element in enumerate(elements) if element.name == name), -1)


def _drop(elements: list[Element], place: int, new: bytes | None) -> None:
    """Take an element out, or give it its new name at the end."""
    if new is not None and _position(elements, new) >= 0:
        raise ConversionError(
            "A document has a field already by the name that field.renames gives to another one.",
            "Choose a name in field.renames that no document has.",
        )
    element = elements.pop(place)
    if new is not None:
        elements.append(Element(new, element.kind, element.value, element.inner))


def _to_document(elements: list[Element], rule: Rule) -> None:
    _follow(elements, rule.path, rule.new)


def _follow(elements: list[Element], path: Sequence[bytes], new: bytes | None) -> None:
    place = _position(elements, path[0])
    if place < 0:
        return
    if len(path) == 1:
        _drop(elements, place, new)
    else:
        _below(elements[place], path[1:], new)


def _below(element: Element, path: Sequence[bytes], new: bytes | None) -> None:
    """Follow the path into a value: a document, or the documents in an array."""
    if element.kind == fields.DOCUMENT:
        _follow(element.elements(), path, new)
    elif element.kind == fields.ARRAY:
        for item in element.elements():
            if item.kind == fields.DOCUMENT:
                _follow(item.elements(), path, new)


def _to_entry(elements: list[Element], rule: Rule) -> None:
    updates = [element for element in elements if element.name in (b"$set", b"$unset")]
    for update in updates:
        if update.kind == fields.DOCUMENT:
            _to_keys(update.elements(), rule)
    if not updates:
        _to_document(elements, rule)


def _plan(names: tuple[bytes, ...], rules: Sequence[Rule]) -> Plan | None:
    """The plan that the rules make for fields of these names: what `_to_keys` does, with numbers for values."""
    if len(set(names)) < len(names):
        return None
    elements = [Element(name, fields.DOCUMENT, number.to_bytes(4, "little")) for number, name in enumerate(names)]
    within: dict[bytes, list[tuple[tuple[bytes, ...], bytes | None]]] = {}

    def below(element: Element, path: Sequence[bytes], new: bytes | None) -> None:
        within.setdefault(element.value, []).append((tuple(path), new))

    try:
        for rule in rules:
            _to_keys(elements, rule, below)
    except ConversionError:
        return None
    return tuple(
        (int.from_bytes(element.value, "little"), element.name, tuple(within.get(element.value, ())))
        for element in elements
    )


def _to_keys(elements: list[Element], rule: Rule, below: Callable[..., None] | None = None) -> None:
    exact = _position(elements, b".".join(rule.path))
    if exact >= 0:
        _drop(elements, exact, None if rule.new is None else b".".join((*rule.path[:-1], rule.new)))
        return
    found: list[tuple[bytes, bytes | None]] = []
    for element in elements:
        segments = _segments(element.name)
        used = _match(segments, rule.path)
        if used.nodes == len(rule.path):
            new = None
            if rule.new is not None:
                segments[used.last] = rule.new
                new = b".".join(segments)
            found.append((element.name, new))
        elif used.nodes and _is_above(segments, used):
            (below or _below)(element, rule.path[used.nodes :], rule.new)
            break
    for name, new in found:
        _drop(elements, _position(elements, name), new)


def _is_above(segments: Sequence[bytes], used: _Match) -> bool:
    """Whether the whole key, but for an index at its end, is a part of the path."""
    return used.segments == len(segments)


def field_filter(excluded: Sequence[str], renamed: Sequence[str], database: str, collection: str) -> FieldFilter | None:
    """The filter for a collection, None when no entry of the options is about it.

    Entries are `database.collection.field…` and `database.collection.field…:name`; in the names of database and
    collection `*` stands for any characters, and case does not matter.
    """
    rules = [_rule(entry, None, database, collection) for entry in excluded]
    for entry in renamed:
        path, _, name = entry.partition(":")
        rules.append(_rule(path, name.encode(), database, collection))
    chosen = tuple(rule for rule in rules if rule is not None)
    return FieldFilter(chosen, table([[(rule.path, rule.new) for rule in chosen]])) if chosen else None


def _rule(entry: str, new: bytes | None, database: str, collection: str) -> Rule | None:
    wanted_database, wanted_collection, *path = entry.split(".")
    for pattern, name in ((wanted_database, database), (wanted_collection, collection)):
        if not re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.IGNORECASE | re.DOTALL):
            return None
    return Rule(tuple(name.encode() for name in path), new)


def filtered(data: Bytes, places: Int64s, kinds: Bytes, apply: Callable[[bytes], bytes]) -> Documents:
    """The documents at `places`, each given to `apply`."""
    content = data.tobytes()
    parts: list[bytes] = []
    found = np.full(len(places), -1, np.int64)
    at = 0
    for row in np.flatnonzero(kinds == fields.DOCUMENT).tolist():
        place = int(places[row])
        size = value_size(content, fields.DOCUMENT, place)
        part = apply(content[place : place + size])
        found[row] = at
        at += len(part)
        parts.append(part)
    return Documents(readonly(np.frombuffer(b"".join(parts) or b"\0", np.uint8)), found)
