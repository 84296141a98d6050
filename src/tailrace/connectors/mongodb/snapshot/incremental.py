"""Incremental snapshots: documents read in windows between two watermarks, beside the change stream. Planner.

A window is: the opening watermark is written into the signal collection, the next documents are read in the order of
`_id`, the closing watermark is written, and the batch ends with the closing watermark's own event. A document whose key
has an event between the two is left out: the log wins. So a document that is given is what the last event before it
left, and no later event of its key is older (Debezium documentation, "Incremental snapshots"; "DBLog", 2019).
Without a signal collection the server's operation times take the place of the watermarks.

The progress is part of every offset. An offset whose batch had a window says where the snapshot stood before it: a
planner that starts anew reads that window again, and a replayed batch has its changes and no documents.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.log.chunk import Namespace, Rows
from tailrace.connectors.mongodb.log.position import WHOLE, Position
from tailrace.connectors.mongodb.records.images import images
from tailrace.connectors.mongodb.records.segment import Segment, read_documents, segments, selected
from tailrace.connectors.mongodb.server.faults import is_passing
from tailrace.connectors.mongodb.server.raw import Answer, RawCursor, concern
from tailrace.connectors.mongodb.snapshot.chunks import condition, encoded_id, index_bound
from tailrace.connectors.mongodb.values import fields
from tailrace.runtime import Runtime
from tailrace.snapshot.channels import Channels
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, Notification, Notifications
from tailrace.snapshot.obedience import Obedience
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import WINDOW_CLOSE, WINDOW_OPEN, Signal

if TYPE_CHECKING:
    from pymongo import MongoClient

    from tailrace.connectors.mongodb.log.reader import LogReader

log = logging.getLogger("tailrace")

# How long a closing watermark may take until it is in the stream; then the window is void. Where shards have nothing to
# write, a stream goes on once in 10 s.
WINDOW_SECONDS = 30.0
# An automatic window holds up to so many chunks, and is read within about so many seconds.
MOST_CHUNKS = 64
WINDOW_PACE = 0.25
# Documents of a window have numbers behind those of changes.
_NUMBERS = 1 << 40


@dataclass(slots=True)
class Window:
    """One window: the state `before` and `after` it, its documents, and the places of its watermarks in the log."""

    before: IncrementalSnapshot
    after: IncrementalSnapshot | None
    documents: list[tuple[Namespace, Answer, fields.Int64s]]
    notifications: list[Notification]
    opened: str
    closed: str
    low: int
    high: int
    number: int
    from_: Position = field(default_factory=Position)
    upto: Position = field(default_factory=Position)
    end: dict[str, Any] = field(default_factory=dict)


class Incremental:
    """Signals and the incremental snapshot of one query.

    `captured` lists the collections that may be read; `kind` is that of the log's documents, as `segment` names it;
    `present` gives the timestamp of the server's newest operation, and `sees_majority` whether a collection can be read
    as a majority has it. What a call plans takes its place in `planned` alone, so that one that fails may come again.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        signals: Namespace | None,
        connect: Callable[[], MongoClient[Any]],
        captured: Callable[[], Sequence[Namespace]],
        is_captured: Callable[[str, str], bool],
        *,
        kind: str,
        present: Callable[[MongoClient[Any]], int],
        sees_majority: Callable[[Namespace], bool],
        runtime: Runtime,
    ) -> None:
        self._runtime = runtime
        self._connect = connect
        self._is_captured = is_captured
        self._kind = kind
        self._present = present
        self._sees_majority = sees_majority
        self._chunk_size = config["incremental.snapshot.chunk.size"]
        self._fixed = config["incremental.snapshot.window.chunks"]
        self._chunks = 1
        self._deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        enabled = config["signal.enabled.channels"]
        self._signals = signals if "source" in enabled else None
        self._skipped = [ord(letter) for letter in config["skipped.operations"]]
        self._watermarks = None if config["read.only"] else signals
        self._channels = Channels.of(config)
        self._notifications = Notifications(config["topic.prefix"])
        self._refuses = refusal(config)
        self._obedience = Obedience(captured, self._notifications, self._refuses)
        # the window of the batch that is being planned, and that of the last one that was
        self._next: Window | None = None
        self._open: Window | None = None
        # the end of the last batch whose documents were handed out
        self._served: dict[str, Any] | None = None
        self._state: IncrementalSnapshot | None = None

    # --- the course of a batch -----------------------------------------------------------------------------------

    def begin(self, progress: Progress, start: dict[str, Any]) -> Progress:
        """Where the next batch begins: `progress` is that of the last one, which ended at the offset `start`.

        Its notices and its window are past.
        """
        state = progress.state
        if progress.before is not None and start != self._served:
            # nobody knows whether Spark has delivered the last window's documents or only replayed the batch
            state = progress.before
        self._next = None
        return replace(progress, state=state, before=None, notices=())

    def open(self, progress: Progress, reader: LogReader, start: Position) -> Position | None:
        """Read the next window; the position of its end. None when no snapshot runs, or it did not come in time."""
        if progress.state is None or progress.state.paused:
            return None
        from pymongo.errors import PyMongoError

        began = self._runtime.monotonic()
        try:
            window = self._read(progress)
        except PyMongoError as error:
            if not is_passing(error):
                raise
            # the reader of the log counts how often the server may be away
            log.warning("a window of incremental snapshot %s is void (%s)", progress.state.id, type(error).__name__)
            return None
        found = self._places(window, reader, start)
        if not found:
            log.warning("a window of incremental snapshot %s is void: the log is behind", progress.state.id)
            return None
        took = self._runtime.monotonic() - began
        if not self._fixed:
            self._chunks = max(1, min(MOST_CHUNKS, self._chunks * 2 if took < WINDOW_PACE else self._chunks // 2))
        self._next = window
        return window.upto

    def finish(self, progress: Progress, rows: Sequence[Rows], names: Sequence[Namespace]) -> Progress:
        """The progress after the batch of `rows`: its window read, its signals and those of the channels obeyed."""
        notes: list[Notification] = []
        before = None
        if self._next is not None:
            notes += self._next.notifications
            before = self._next.before
            progress = replace(progress, state=self._next.after, windows=progress.windows + 1)
        arrived = [(signal, str(position)) for signal, position in self._logged(rows, names)]
        received, positions = self._channels.poll(dict(progress.positions))
        progress = replace(progress, positions=tuple(sorted(positions.items())))
        for signal, position in [*arrived, *((signal, signal.id) for signal in received)]:
            progress, before, told = self._obedience.obey(signal, position, progress, before)
            notes += told
        now = time.time_ns() // 1_000_000
        return replace(progress, before=before, notices=tuple((note, now) for note in notes))

    def planned(self, end: dict[str, Any], progress: Progress) -> None:
        """The batch ends at the offset `end`, which holds `progress`."""
        if self._next is not None:
            self._next.end = end
        self._open, self._next, self._state = self._next, None, progress.state

    def reads(self, end: dict[str, Any], rows: Sequence[Rows], names: Sequence[Namespace]) -> list[Segment]:
        """The documents of the batch that ends at `end`; none for a batch that another planner has planned."""
        window = self._open
        if window is None or window.end != end:
            return []
        found: list[Segment] = []
        first = _NUMBERS * (window.number + 1)
        for namespace, answer, starts in window.documents:
            segment = read_documents(namespace, answer.data, starts, window.high, first, marker=Marker.INCREMENTAL)
            first += len(segment)
            changed = _changed(rows, names, namespace, window.from_, window.upto, self._skipped, self._kind)
            if changed:
                keys = _keys(segment)
                segment = selected(segment, np.flatnonzero([key not in changed for key in keys]))
            if len(segment):
                found.append(segment)
        self._served = end
        return found

    def status(self) -> dict[str, Any] | None:
        """How far the running snapshot is, in the form that `tailrace.status` describes; None when none runs."""
        if self._state is None:
            return None
        return {
            "table": str(self._state.current),
            "rows": self._state.cursor.rows,
            "waiting": len(self._state.collections) - 1,
            "paused": self._state.paused,
        }

    def close(self) -> None:
        self._channels.close()

    # --- windows -------------------------------------------------------------------------------------------------

    def _read(self, progress: Progress) -> Window:
        """Write the opening watermark, read the next documents, write the closing watermark."""
        assert progress.state is not None
        name = str(uuid.uuid4())
        opened, closed = f"{name}-open", f"{name}-close"
        low = self._mark(opened, WINDOW_OPEN)
        state: IncrementalSnapshot | None = progress.state
        documents: list[tuple[Namespace, Answer, fields.Int64s]] = []
        notes: list[Notification] = []
        while state is not None:
            found, state, told = self._next_documents(state, low)
            notes += told
            documents += found
            if found:
                break
        high = self._mark(closed, WINDOW_CLOSE, opened)
        return Window(progress.state, state, documents, notes, opened, closed, low, high, progress.windows)

    def _next_documents(
        self, state: IncrementalSnapshot, low: int
    ) -> tuple[list[tuple[Namespace, Answer, fields.Int64s]], IncrementalSnapshot | None, list[Notification]]:
        """The next documents of the first collection, as they were at `low` or later, and what is after them.

        A collection that has none left makes room for the next one.
        """
        from pymongo.errors import OperationFailure

        collection = state.current
        namespace = (collection.schema, collection.table)
        cursor = state.cursor
        if not self._is_captured(*namespace):
            return [], state.next_table(), [self._notifications.scanned(state, "UNKNOWN_SCHEMA")]
        if collection.filter and self._refuses(collection.filter):
            # asked for before the option was set
            log.warning("signal %s: %s is left out: %s", state.id, collection, self._refuses(collection.filter))
            return [], state.next_table(), [self._notifications.scanned(state, "SQL_EXCEPTION")]
        if collection.surrogate:
            log.warning("signal %s: MongoDB's documents have no surrogate key; %s is read by _id", state.id, collection)
        try:
            after = low if self._sees_majority(namespace) else 0
            if cursor.maximum is None:
                maximum = self._maximum(collection, after)
                if maximum is None:
                    return [], state.next_table(), [self._notifications.scanned(state, "EMPTY")]
                cursor = replace(cursor, maximum=(maximum,))
            found = self._documents(collection, cursor, after)
        except (OperationFailure, ValueError) as error:
            if is_passing(error):
                raise
            log.warning("%s cannot be read for the incremental snapshot (%s)", collection, type(error).__name__)
            return [], state.next_table(), [self._notifications.scanned(state, "SQL_EXCEPTION")]
        count = sum(len(starts) for _, starts in found)
        if not count:
            done = state.moved(cursor)
            return [], state.next_table(), [self._notifications.scanned(done, "SUCCEEDED")]
        answer, starts = found[-1]
        last = _id(answer, int(starts[-1]))
        moved = state.moved(Cursor((last,), cursor.maximum, cursor.rows + count))
        return [(namespace, *part) for part in found], moved, [self._notifications.progress(moved)]

    def _maximum(self, collection: Collection, after: int) -> str | None:
        """The greatest `_id`, as a plan has it; None for an empty collection."""
        command = {
            "find": collection.table, "filter": condition(collection.filter or ""), "sort": {"_id": -1}, "limit": 1,
            "projection": {"_id": 1}, "singleBatch": True, **concern(after),
        }  # fmt: skip
        answer = RawCursor(self._connect(), collection.schema, command).next()
        return _id(answer, int(answer.starts[0])) if len(answer.starts) else None

    def _documents(self, collection: Collection, cursor: Cursor, after: int) -> list[tuple[Answer, fields.Int64s]]:
        """The next documents behind the cursor, in the order of the index over `_id`, which compares across types."""
        assert cursor.maximum is not None
        wanted = self._chunk_size * (self._fixed or self._chunks)
        maximum = index_bound(cursor.maximum[0])
        upto: dict[str, Any] = {"$expr": {"$lte": ["$_id", {"$literal": maximum["_id"]}]}}
        filter_ = condition(collection.filter or "")
        command: dict[str, Any] = {
            "find": collection.table,
            "filter": {"$and": [filter_, upto]} if filter_ else upto,
            "hint": {"_id": 1},
            "sort": {"_id": 1},
            "limit": wanted,
            **concern(after),
        }
        if cursor.last is not None:
            command["min"] = index_bound(cursor.last[0])
            command["limit"] = wanted + 1
        raw = RawCursor(self._connect(), collection.schema, command)
        found: list[tuple[Answer, fields.Int64s]] = []
        left = wanted
        while raw.alive and left > 0:
            answer = raw.next()
            starts = answer.starts
            if cursor.last is not None and len(starts) and not found and left == wanted:
                # the bound itself was read before, unless it is gone
                starts = starts[1:] if _id(answer, int(starts[0])) == cursor.last[0] else starts
            starts = starts[:left]
            left -= len(starts)
            if len(starts):
                found.append((answer, starts))
        raw.close()
        return found

    def _mark(self, name: str, kind: str, opened: str = "") -> int:
        """Write a watermark; the server's operation time behind it, as a BSON timestamp in 64 bits."""
        client = self._connect()
        if self._watermarks is None:
            return self._present(client)
        database, collection = self._watermarks
        target = client[database][collection]
        with client.start_session(causal_consistency=True) as session:
            if kind == WINDOW_CLOSE and self._deletes:
                target.delete_one({"_id": opened}, session=session)
            else:
                target.insert_one({"_id": name, "type": kind, "payload": ""}, session=session)
            at = session.operation_time
        return self._present(client) if at is None else at.time << 32 | at.inc

    def _places(self, window: Window, reader: LogReader, start: Position) -> bool:
        """Find where the watermarks are in the log, as soon as it has been read so far."""
        reader.demand(Position(window.high, WHOLE))
        until = self._runtime.monotonic() + WINDOW_SECONDS
        while self._runtime.monotonic() < until:
            # nothing but a watermark has its timestamp
            marked = self._watermarks is not None and reader.reached.time >= window.high
            if marked or reader.has_read(window.high):
                upto = Position(window.high, WHOLE)
                end = reader.plan(start, 1 << 62, 1 << 62, upto)
                window.from_ = Position(window.low, WHOLE)
                # a batch without any change still has its window
                window.upto = end if end != start else start
                return True
            reader.wait(0.05)
        return False

    # --- signals -------------------------------------------------------------------------------------------------

    def _logged(self, rows: Sequence[Rows], names: Sequence[Namespace]) -> list[tuple[Signal, Position]]:
        """The documents that were inserted into the signal collection, in log order."""
        if self._signals is None or self._signals not in names:
            return []
        number = list(names).index(self._signals)
        found: list[tuple[Signal, Position]] = []
        for part in rows:
            own = np.flatnonzero((part.namespace == number) & (part.op == ord("c")))
            for row in own.tolist():
                signal = _signal(part, row)
                if signal is not None:
                    found.append((signal, Position(int(part.time[row]), int(part.number[row]))))
        return found


def _signal(rows: Rows, row: int) -> Signal | None:
    from bson import decode, json_util

    place = int(rows.at[row])
    try:
        document = decode(rows.data[place : place + int(fields.load(rows.data, place))].tobytes())
        content = document.get("fullDocument") or {}
        data = content.get("data", content.get("payload"))
        text = data if isinstance(data, str) or data is None else json_util.dumps(data)
        return Signal(str(content.get("_id", "")), str(content.get("type", "")), text)
    except Exception as error:
        # whoever may write a signal chooses its bytes, and it stays in the log
        log.warning("a document of the signal collection is no signal and is ignored (%s)", type(error).__name__)
        return None


def _id(answer: Answer, start: int) -> str:
    """The `_id` of the document at `start` as a plan has it."""
    places, kinds = fields.locate(answer.data, np.array([start], np.int64), ("_id",))
    place, kind = int(places[0, 0]), int(kinds[0, 0])
    size = int(fields.value_size(answer.data, kind, place, len(answer.data)))
    body = bytes((kind,)) + b"_id\0" + answer.data[place : place + size].tobytes()
    return encoded_id((len(body) + 5).to_bytes(4, "little") + body + b"\0")


def _keys(segment: Segment) -> list[bytes]:
    """The keys of a segment's events as bytes: the type and value of `_id`."""
    key = images(segment).key
    found = []
    for place, kind in zip(key.places.tolist(), key.kinds.tolist(), strict=True):
        size = int(fields.value_size(segment.data, kind, place, len(segment.data))) if place >= 0 else 0
        found.append(bytes((kind,)) + segment.data[place : place + size].tobytes())
    return found


def _changed(
    rows: Sequence[Rows],
    names: Sequence[Namespace],
    namespace: Namespace,
    low: Position,
    high: Position,
    skipped: Sequence[int],
    kind: str,
) -> set[bytes]:
    """The keys of a collection that have an event in `(low, high]`; `skipped` operations give none."""
    if namespace not in names:
        return set()
    number = list(names).index(namespace)
    found: set[bytes] = set()
    for part in rows:
        within = part.part(slice(part.first_after(low), part.first_after(high)))
        own = within.part(np.flatnonzero((within.namespace == number) & ~np.isin(within.op, skipped)))
        for several in segments([own], names, kind).values() if len(own) else ():
            for segment in several:
                found.update(_keys(segment))
    return found
