"""field.exclude.list and field.renames, applied to raw BSON. Whole documents are left to `field_kernels` if possible.
Worker.

Both options name fields by paths, `database.collection.field.nested`. Debezium applies the paths one after another,
exclusions first. Its rules, which this module follows:

- In a document a path leads through documents and through documents in arrays, but not through arrays in arrays. A
  renamed field moves to the end of its document.
- An oplog's `$set` and `$unset`, and the `updatedFields` of a change stream, name fields by dotted keys. If a key
  equals the path, only this key is affected. Otherwise the keys are searched in order: a key at or below the path is
  excluded or renamed; the first key above the path ends the search, and its value is treated like a document. One index
  of an array before or after a name is skipped.
- Names in `removedFields` are dropped if they equal the path or, for an exclusion, lie above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.field_kernels import DocumentPlaces, RuleTrees, edited, table
from tailrace.connectors.mongodb.values.field_plans import Plan, carried_out, names_of, spliced
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.connectors.mongodb.values.plain_json import value_size
from tailrace.errors import ConversionError, DecodeError
from tailrace.kernels.buffers import readonly

_MOST_PLANS = 4096


@dataclass(slots=True)
class Element:
    """A field: its name, its type, and its value as bytes. `inner` holds its elements once it has been parsed."""

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
    """Return the elements of a document. The last of equal names takes the place of the first. Raises DecodeError."""
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
class FieldRule:
    """An entry of the options: the path within the document, and the new last name, or None to exclude the field."""

    path: tuple[bytes, ...]
    new: bytes | None

    def occurs(self, content: bytes) -> bool:
        """Return True if the path may occur in these bytes."""
        return all(name in content for name in self.path)


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """The rules for one collection, in the order in which they are applied."""

    rules: tuple[FieldRule, ...]
    table: RuleTrees | None
    """The rules compiled for whole documents; None if they affect one another."""
    _names: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    _plans: dict[tuple[bytes, ...], Plan | None] = field(default_factory=dict, compare=False, repr=False)

    def documents(self, data: Bytes, places: Int64s, kinds: Bytes) -> DocumentPlaces:
        """Apply the rules to a column of whole documents."""
        found = None if self.table is None else edited(data, places, kinds, self.table)
        return filtered(data, places, kinds, self.document) if found is None else found

    def entries(self, data: Bytes, places: Int64s, kinds: Bytes) -> DocumentPlaces:
        """Apply the rules to a column of oplog entries."""
        which = np.where(kinds == fields.DOCUMENT, places, -1)
        inside, inner = fields.locate(data, which, ("$set", "$unset"))
        is_update = np.logical_or(inside[0] >= 0, inside[1] >= 0)
        whole = self.documents(data, places, np.where(is_update, 0, kinds).astype(np.uint8))
        sets, unsets = (self.changes(data, inside[row], inner[row]) for row in (0, 1))
        return spliced(data, places, kinds, is_update, whole, inside, sets, unsets)

    def changes(self, data: Bytes, places: Int64s, kinds: Bytes) -> DocumentPlaces:
        """Apply the rules to a column of `updatedFields`."""
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
        """Return the plan for documents with these dotted keys; None if it depends on their values."""
        if names not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[names] = _plan(names, self.rules)
        return self._plans[names]

    def document(self, content: bytes) -> bytes:
        """Apply the rules to a whole document.

        This and the following methods raise ConversionError if the new name of a renamed field is taken.
        """
        return self._applied(content, _to_document)

    def entry(self, content: bytes) -> bytes:
        """Apply the rules to an oplog entry: to its `$set` and `$unset` if it has any, else to a whole document."""
        return self._applied(content, _to_entry)

    def changed(self, content: bytes) -> bytes:
        """Apply the rules to `updatedFields`, values by dotted keys."""
        return self._applied(content, _to_keys)

    def name(self, name: str) -> str | None:
        """Return a name of `removedFields` or `truncatedArrays` after the rules; None if it is dropped."""
        if name not in self._names:
            self._names[name] = self._name(name)
        return self._names[name]

    def _name(self, name: str) -> str | None:
        for rule in self.rules:
            segments = _segments(name.encode())
            used = _match(segments, rule.path)
            remaining = len(segments) - used.segments
            ends = remaining == 0 or (remaining == 1 and segments[-1].isdigit())
            if used.nodes == len(rule.path) and ends:
                if rule.new is None:
                    return None
                segments[used.last] = rule.new
                name = b".".join(segments).decode()
            elif used.nodes and ends and rule.new is None:
                return None
        return name

    def _applied(self, content: bytes, apply: Callable[[list[Element], FieldRule], None]) -> bytes:
        elements: list[Element] | None = None
        for rule in self.rules:
            if elements is not None or rule.occurs(content):
                elements = parsed(content) if elements is None else elements
                apply(elements, rule)
        return content if elements is None else encoded(elements)


@dataclass(frozen=True, slots=True)
class _Match:
    """The common part of a key and a path: its number of names in the path, its number of segments in the key, and the
    place of the last name in the key."""

    nodes: int
    segments: int
    last: int


def _segments(key: bytes) -> list[bytes]:
    """Return the names of a dotted key, without empty names at the end, as Java's split does."""
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
    """Remove an element, or move it to the end with a new name."""
    if new is not None and _position(elements, new) >= 0:
        raise ConversionError(
            "A document already has a field with the new name that field.renames gives to another field.",
            "Choose a name in field.renames that no document has.",
        )
    element = elements.pop(place)
    if new is not None:
        elements.append(Element(new, element.kind, element.value, element.inner))


def _to_document(elements: list[Element], rule: FieldRule) -> None:
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


def _to_entry(elements: list[Element], rule: FieldRule) -> None:
    updates = [element for element in elements if element.name in (b"$set", b"$unset")]
    for update in updates:
        if update.kind == fields.DOCUMENT:
            _to_keys(update.elements(), rule)
    if not updates:
        _to_document(elements, rule)


def _plan(names: tuple[bytes, ...], rules: Sequence[FieldRule]) -> Plan | None:
    """Return the plan of the rules for fields with these names: the result of `_to_keys` on numbered fields."""
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


def _to_keys(elements: list[Element], rule: FieldRule, below: Callable[..., None] | None = None) -> None:
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
    """Return True if the whole key, apart from an index at its end, is a part of the path."""
    return used.segments == len(segments)


def field_filter(excluded: Sequence[str], renamed: Sequence[str], database: str, collection: str) -> FieldFilter | None:
    """Return the filter for a collection; None if no entry of the options applies to it.

    Entries are `database.collection.field…` and `database.collection.field…:name`. In the names of database and
    collection `*` stands for any characters; they match in any case.
    """
    rules = [_rule(entry, None, database, collection) for entry in excluded]
    for entry in renamed:
        path, _, name = entry.partition(":")
        rules.append(_rule(path, name.encode(), database, collection))
    chosen = tuple(rule for rule in rules if rule is not None)
    return FieldFilter(chosen, table([[(rule.path, rule.new) for rule in chosen]])) if chosen else None


def _rule(entry: str, new: bytes | None, database: str, collection: str) -> FieldRule | None:
    wanted_database, wanted_collection, *path = entry.split(".")
    for pattern, name in ((wanted_database, database), (wanted_collection, collection)):
        if not re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.IGNORECASE | re.DOTALL):
            return None
    return FieldRule(tuple(name.encode() for name in path), new)


def filtered(data: Bytes, places: Int64s, kinds: Bytes, apply: Callable[[bytes], bytes]) -> DocumentPlaces:
    """Apply a function to each of the documents at `places`."""
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
    return DocumentPlaces(readonly(np.frombuffer(b"".join(parts) or b"\0", np.uint8)), found)
