"""The oplog of a simulated replica set: its entries, the majority's part of them, and change streams."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from bson import Int64, Timestamp, encode
from bson.raw_bson import RawBSONDocument

Namespace = tuple[str, str]
"""Database and collection."""
Document = dict[str, Any]
Key = tuple[int, int, int, int]
"""The place of an event in a change stream: timestamp; 0 for no event, 1 for a change, 2 for the end of the stream;
number among the events with the timestamp; number of the fragment."""
LETTERS = {"i": "insert", "u": "update", "r": "replace", "d": "delete"}
SECONDS = 1_700_000_000
"""The time at the simulation's start, in seconds since 1970."""
_WALL = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """An insert, update, replacement or delete (i, u, r, d) of a document, whose content is the change's `number`."""

    op: str
    namespace: Namespace
    id: int | str
    number: int
    document: Document | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A prepared transaction: it takes effect with the entry that commits it."""

    changes: tuple[Change, ...]
    at: int
    first: int


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """An entry of the oplog. It makes `changes` visible; reading them needs the entries from the timestamp `first` on.
    `session` is that of a transaction, 0 for none; `dropped` is the dropped collection or database."""

    at: int
    term: int
    raw: RawBSONDocument
    changes: tuple[Change, ...]
    first: int
    session: int = 0
    dropped: Namespace | None = None
    prepared: Prepared | None = None
    ended: Prepared | None = None


def stamp(at: int) -> Timestamp:
    return Timestamp(at >> 32, at & 0xFFFFFFFF)


def number_of(at: Timestamp) -> int:
    return int(at.time) << 32 | int(at.inc)


class Oplog:
    """The log and the documents that follow from it. `now` returns the time in seconds.

    The first `majority` entries can never be rolled back, and the primary knows this of the first `shown`. The first
    `oldest` entries were removed from the log. `old` servers have a hash in each entry.
    """

    def __init__(self, rng: Random, now: Callable[[], float], *, old: bool) -> None:
        self._rng = rng
        self._now = now
        self._old = old
        self.entries: list[Entry] = []
        self.oldest = self.majority = self.shown = 0
        self.term = 1
        self._term_start = 0
        self.written_at = now()
        # versions of each document: entry from which it holds, content, and true if its collection was dropped there
        self._versions: dict[Namespace, dict[int | str, list[tuple[int, Document | None, bool]]]] = {}
        self.prepared: list[Prepared] = []
        self.write({"op": "n", "ns": "", "o": {"msg": "initiating set"}})
        self.majority = self.shown = 1

    # --- writing ---

    def write(self, content: Mapping[str, Any], changes: Sequence[Change] = (), **more: Any) -> Entry:
        """Add an entry."""
        self.written_at = self._now()
        last = self.entries[-1].at if self.entries else 0
        at = max(last + 1, (SECONDS + int(self.written_at)) << 32 | 1)
        head: Document = {"ts": stamp(at), "t": Int64(self.term), "v": 2}
        if self._old:
            head["h"] = Int64(self._rng.getrandbits(62))
        raw = RawBSONDocument(encode(head | dict(content)))
        first = more.pop("first", at)
        entry = Entry(at, self.term, raw, tuple(changes), first, **more)
        place = len(self.entries)
        self.entries.append(entry)
        for change in changes:
            versions = self._versions.setdefault(change.namespace, {}).setdefault(change.id, [])
            document = None if change.op == "d" else change.document or {"_id": change.id, "n": change.number}
            versions.append((place, document, False))
        if entry.dropped is not None:
            for namespace, documents in self._versions.items():
                if namespace == entry.dropped or (namespace[0], "") == entry.dropped:
                    for versions in documents.values():
                        versions.append((place, None, True))
        if entry.ended is not None:
            self.prepared.remove(entry.ended)
        return entry

    def single(self, change: Change) -> Entry:
        return self.write(self._operation(change), [change])

    def transaction(self, changes: Sequence[Change], pieces: int, session: int, *, prepares: bool = False) -> None:
        """Write a transaction of several entries, the last of which makes it visible or prepares it."""
        cuts = sorted(self._rng.sample(range(1, len(changes)), min(pieces, len(changes)) - 1))
        bounds = [0, *cuts, len(changes)]
        previous: Entry | None = None
        first = 0
        for place in range(len(bounds) - 1):
            is_last = place == len(bounds) - 2
            operations = [self._operation(change) for change in changes[bounds[place] : bounds[place + 1]]]
            content: Document = {"applyOps": operations}
            more: Document = {}
            at = self.entries[-1].at + 1
            if not is_last:
                content["partialTxn"] = True
            elif prepares:
                content["prepare"] = True
            elif len(bounds) > 2:
                content["count"] = Int64(len(changes))
            link = {"ts": stamp(0), "t": Int64(-1)}
            if previous is not None:
                link = {"ts": stamp(previous.at), "t": Int64(previous.term)}
            if is_last and not prepares:
                more = {"first": first or at, "session": session}
            shown = changes if is_last and not prepares else ()
            previous = self.write(self._command(content, session, link), shown, **more)
            first = first or previous.at
        if prepares:
            assert previous is not None
            self._replace_last(Prepared(tuple(changes), previous.at, first))

    def _replace_last(self, prepared: Prepared) -> None:
        last = self.entries[-1]
        self.entries[-1] = Entry(last.at, last.term, last.raw, (), last.first, prepared=prepared)
        self.prepared.append(prepared)

    def end(self, prepared: Prepared, session: int, *, commits: bool) -> None:
        """Commit or abort a prepared transaction."""
        term = next(one.term for one in self.entries if one.prepared is prepared)
        link = {"ts": stamp(prepared.at), "t": Int64(term)}
        content = {"commitTransaction" if commits else "abortTransaction": 1}
        shown = prepared.changes if commits else ()
        command = self._command(content, session, link)
        self.write(command, shown, first=prepared.first, session=session, ended=prepared)

    def retryable(self, changes: Sequence[Change], session: int) -> None:
        """Write retryable statements of a session: they take effect one by one, each linked to the one before."""
        link = {"ts": stamp(0), "t": Int64(-1)}
        for change in changes:
            operation = self._operation(change)
            if self._old:
                content = operation | {"prevOpTime": link}
            else:
                content = self._command({"applyOps": [operation]}, session, link) | {"multiOpType": 1}
            entry = self.write(content, [change], session=session)
            link = {"ts": stamp(entry.at), "t": Int64(entry.term)}

    def drop(self, namespace: Namespace) -> None:
        """Drop a collection; with an empty name, the database."""
        database, name = namespace
        content = {"drop": name} if name else {"dropDatabase": 1}
        self.write({"op": "c", "ns": f"{database}.$cmd", "o": content}, dropped=namespace)

    def idle(self) -> None:
        """Write the entry of an idle primary."""
        self.write({"op": "n", "ns": "", "o": {"msg": "periodic noop"}})

    @staticmethod
    def _command(content: Document, session: int, link: Document) -> Document:
        return {"op": "c", "ns": "admin.$cmd", "o": content, "lsid": {"id": session}, "txnNumber": Int64(session),
                "prevOpTime": link}  # fmt: skip

    @staticmethod
    def _operation(change: Change) -> Document:
        found: Document = {"op": change.op, "ns": ".".join(change.namespace)}
        if change.op == "i":
            found["o"] = change.document or {"_id": change.id, "n": change.number}
        elif change.op == "u":
            found |= {"o": {"$v": 1, "$set": {"n": change.number}}, "o2": {"_id": change.id}}
        elif change.op == "r":
            found |= {"op": "u", "o": {"_id": change.id, "n": change.number}, "o2": {"_id": change.id}}
        else:
            found["o"] = {"_id": change.id}
        return found

    # --- replication and elections ---

    def replicate(self, upto: int) -> None:
        """Let a majority have `upto` entries. A primary counts earlier terms' entries only with one of its own term."""
        if upto > self._term_start:
            self.majority = self.shown = max(self.majority, upto)

    def elect(self, kept: int, shown: int) -> None:
        """Change to a new primary, which has the first `kept` entries and knows the first `shown` as the majority's."""
        del self.entries[kept:]
        for documents in self._versions.values():
            for versions in documents.values():
                while versions and versions[-1][0] >= kept:
                    versions.pop()
        ended = [one.ended for one in self.entries]
        self.prepared = [one.prepared for one in self.entries if one.prepared and one.prepared not in ended]
        self.shown = shown
        self.term += 1
        self._term_start = kept
        self.write({"op": "n", "ns": "", "o": {"msg": "new primary"}})

    def forget(self, upto: int) -> None:
        """Remove old entries up to `upto`, but only those that a majority has and no prepared transaction needs."""
        kept = min([self.shown - 1, *(self.place(one.first) for one in self.prepared)])
        self.oldest = max(self.oldest, min(upto, kept))

    # --- reading ---

    def place(self, at: int) -> int:
        """Return the place of the first entry at or after a timestamp."""
        return bisect_left(self.entries, at, key=lambda one: one.at)

    def is_gone(self, at: int) -> bool:
        """Return True if the entry with the timestamp `at`, or one that later entries need, is no longer in the log."""
        oldest = self.entries[self.oldest].at
        return oldest > at or any(one.first < oldest for one in self.entries[self.place(at) :])

    def documents(self, namespace: Namespace, upto: int) -> list[Document]:
        """Return the documents of a collection after the first `upto` entries, in the order of `_id`."""
        found = [self.version(namespace, id_, upto) for id_ in self._versions.get(namespace, {})]
        return sorted((one for one in found if one is not None), key=lambda one: str(one["_id"]).rjust(8))

    def version(self, namespace: Namespace, id_: int | str, upto: int) -> Document | None:
        """Return a document after the first `upto` entries; None if it does not exist."""
        versions = self._versions.get(namespace, {}).get(id_, [])
        return next((document for place, document, _ in reversed(versions) if place < upto), None)

    def versions(self, namespace: Namespace, id_: int | str, since: int, upto: int) -> list[Document | None]:
        """Return a document's version after the first `since` entries, and its later versions up to `upto` entries."""
        known = self._versions.get(namespace, {}).get(id_, [])
        later = [document for place, document, _ in known if since <= place < upto]
        return [self.version(namespace, id_, since), *later]

    def was_dropped(self, namespace: Namespace, id_: int | str, upto: int) -> bool:
        """Return True if, after the first `upto` entries, a document is gone because its collection was dropped."""
        versions = self._versions.get(namespace, {}).get(id_, [])
        return next((dropped for place, _, dropped in reversed(versions) if place < upto), False)

    def namespaces(self) -> list[Namespace]:
        return sorted(self._versions)


# --- change streams -------------------------------------------------------------------------------------------------


def token(key: Key) -> Document:
    at, kind, which, fragment = key
    return {"_data": f"82{at:016X}{kind:02X}{which:08X}{fragment:02X}"}


def key_of(document: Mapping[str, Any]) -> Key:
    text = document["_data"]
    return int(text[2:18], 16), int(text[18:20], 16), int(text[20:28], 16), int(text[28:30], 16)


def matches(condition: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Return True if an event matches a `$match` condition; supports only conditions that the planner writes."""
    namespace = event.get("ns", {})
    database, collection = namespace.get("db", ""), namespace.get("coll", "")
    values = {"operationType": event["operationType"], "ns.db": database, "ns.coll": collection}
    for name, wanted in condition.items():
        if name in ("$or", "$nor"):
            holds = any(matches(one, event) for one in wanted) == (name == "$or")
        elif name == "$and":
            holds = all(matches(one, event) for one in wanted)
        elif name == "$expr":
            holds = re.search(wanted["$regexMatch"]["regex"], f"{database}.{collection}") is not None
        elif not isinstance(wanted, Mapping):
            holds = values[name] == wanted
        elif "$in" in wanted:
            holds = values[name] in wanted["$in"]
        else:
            holds = re.search(wanted["$regex"], values[name]) is not None
        if not holds:
            return False
    return True


@dataclass(frozen=True, slots=True)
class View:
    """A change stream: its scope, its condition, and flags for document look-up and for splitting large events."""

    database: str
    collection: str
    condition: Mapping[str, Any]
    looks_up: bool
    splits: bool

    def events(self, log: Oplog, place: int) -> Iterator[tuple[Key, Document]]:
        """Yield the events of an entry with their places."""
        entry = log.entries[place]
        for which, change in enumerate(entry.changes):
            if self._covers(change.namespace):
                event = self._event(log, entry, change)
                if matches(self.condition, event):
                    yield from self._parts((entry.at, 1, which, 0), event, change)
        if entry.dropped is None or not self.database:
            return
        whole = entry.dropped == (self.database, "")
        if whole or (self.collection and entry.dropped == (self.database, self.collection)):
            key = (entry.at, 2, 0, 0)
            event = {"_id": token(key), "operationType": "invalidate", "clusterTime": stamp(entry.at)}
            if matches(self.condition, event):
                yield key, event

    def _covers(self, namespace: Namespace) -> bool:
        return self.database in ("", namespace[0]) and self.collection in ("", namespace[1])

    def _event(self, log: Oplog, entry: Entry, change: Change) -> Document:
        found: Document = {"operationType": LETTERS[change.op], "clusterTime": stamp(entry.at), "wallTime": _WALL,
                           "ns": {"db": change.namespace[0], "coll": change.namespace[1]},
                           "documentKey": {"_id": change.id}}  # fmt: skip
        if entry.session:
            found |= {"lsid": {"id": entry.session}, "txnNumber": Int64(entry.session)}
        if change.op in "ir":
            found["fullDocument"] = change.document or {"_id": change.id, "n": change.number}
        elif change.op == "u":
            found["updateDescription"] = {"updatedFields": {"n": change.number}, "removedFields": []}
            if self.looks_up:
                found["fullDocument"] = log.version(change.namespace, change.id, log.shown)
        return found

    def _parts(self, key: Key, event: Document, change: Change) -> Iterator[tuple[Key, Document]]:
        """Yield the event, or the fragments of a large one."""
        if not self.splits or change.number % 4:
            yield key, {"_id": token(key), **event}
            return
        names = list(event)
        parts = [names[:3], names[3:5], names[5:]] if len(names) > 5 else [names[:4], names[4:]]
        for number, part in enumerate(parts, 1):
            one = (*key[:3], number)
            split = {"fragment": number, "of": len(parts)}
            yield one, {"_id": token(one), "splitEvent": split, **{name: event[name] for name in part}}
