"""MongoDB's windows: documents read between two watermarks, while changes are streamed. Planner.

Tasks cannot share a snapshot, so the planner itself reads the documents of a window, in the order of `_id`. The batch
ends with the event of the closing watermark. A document whose key has an event between the two watermarks is left out.
Without a signal collection the server's operation times replace the watermarks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Namespace
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.records.images import images
from tailrace.connectors.mongodb.records.segment import Segment, read_documents, segments, selected
from tailrace.connectors.mongodb.server.faults import is_passing
from tailrace.connectors.mongodb.server.raw import CursorBatch, RawCursor, concern
from tailrace.connectors.mongodb.snapshot.chunks import condition, encoded_id, index_bound
from tailrace.connectors.mongodb.values import fields
from tailrace.process.runtime import Runtime
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, UnusableTable
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource, WindowVoid

if TYPE_CHECKING:
    from pymongo import MongoClient

    from tailrace.connectors.mongodb.log.feed import MongoFeed
    from tailrace.log.reader import LogReader

log = logging.getLogger("tailrace")

# The window is void if its closing watermark is not in the stream after this time, in s. The stream of a cluster with
# idle shards advances only every 10 s.
WINDOW_SECONDS = 30.0
# Most chunks of an automatic window, and the seconds that reading it should take.
MOST_CHUNKS = 64
WINDOW_PACE = 0.25
# Documents of a window have greater numbers than changes.
_NUMBERS = 1 << 40


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The log in which a window opens, its feed, and the start of the batch."""

    log: LogReader[Any, ChangePosition, Any, ChangeArrays]
    feed: MongoFeed
    start: ChangePosition


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch, and the names of their collections."""

    rows: Sequence[ChangeArrays]
    names: Sequence[Namespace]


@dataclass(frozen=True, slots=True)
class ClosingPlace:
    """The timestamp of the closing watermark, and the position at which the batch ends."""

    time: int
    position: ChangePosition


Documents = tuple[Namespace, CursorBatch, fields.Int64s]
"""Some documents of one collection, in the order of their `_id`, and their places in the answer."""
DocumentsWindow = Window[int, Documents, ClosingPlace]
Incremental = Windows[LogPlace, int, Documents, ClosingPlace, Changes, Segment]


class MongoWindows(WindowSource[LogPlace, int, Documents, ClosingPlace, Changes, Segment]):
    """Implements WindowSource. The view of a window is the timestamp of its opening watermark: documents are read as of
    this time or later.

    `list_captured` returns the collections that may be read, `is_captured` returns True for each of them. `signals_in`
    is the signal collection, `kind` the kind of the log's segments. `present` returns the timestamp of the server's
    newest operation, and `sees_majority` True if the server has majority reads of a collection.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        signals_in: Namespace | None,
        connect: Callable[[], MongoClient[Any]],
        list_captured: Callable[[], Sequence[Namespace]],
        is_captured: Callable[[str, str], bool],
        *,
        kind: str,
        present: Callable[[MongoClient[Any]], int],
        sees_majority: Callable[[Namespace], bool],
        runtime: Runtime,
    ) -> None:
        self._signals_in = signals_in
        self._connect = connect
        self._list_captured = list_captured
        self._is_captured = is_captured
        self._kind = kind
        self._present = present
        self._sees_majority = sees_majority
        self._runtime = runtime
        self.writes = signals_in is not None and not config["read.only"]
        self.pace = ReadingPace(config["incremental.snapshot.window.chunks"], 1, MOST_CHUNKS, WINDOW_PACE, WINDOW_PACE)
        self.refuses = refusal(config)
        self._chunk_size: int = config["incremental.snapshot.chunk.size"]
        self._skipped = [ord(letter) for letter in config["skipped.operations"]]

    # --- the course of a window ----------------------------------------------------------------------------------

    def mark(self, watermark: Watermark | None) -> int:
        """Write a watermark, and return the server's operation time after it, as a BSON timestamp in 64 bits."""
        with _void_where_away():
            client = self._connect()
            if watermark is None:
                return self._present(client)
            assert self._signals_in is not None
            target = client[self._signals_in[0]][self._signals_in[1]]
            with client.start_session(causal_consistency=True) as session:
                if watermark.is_deletion:
                    target.delete_one({"_id": watermark.id}, session=session)
                else:
                    target.insert_one({"_id": watermark.id, "type": watermark.kind, "payload": ""}, session=session)
                at = session.operation_time
            return self._present(client) if at is None else at.time << 32 | at.inc

    @contextmanager
    def view(self, at: LogPlace, opened_at: int) -> Iterator[int]:
        with _void_where_away():
            yield opened_at

    def locate(self, at: LogPlace, closing: Watermark | None, closed_at: int) -> ClosingPlace:
        """Return the end of the window once the log has been read up to the closing watermark. Raises WindowVoid after
        WINDOW_SECONDS."""
        opened, upto = at.log, ChangePosition(closed_at, WHOLE)
        opened.spool.require(upto)
        until = self._runtime.monotonic() + WINDOW_SECONDS
        while self._runtime.monotonic() < until:
            # no other entry has the timestamp of a watermark
            marked = closing is not None and at.feed.reached_position.time >= closed_at
            if marked or opened.has_read(upto):
                # the end of a batch without changes is its start
                return ClosingPlace(closed_at, opened.plan_upto(at.start, upto))
            opened.wait_for_next(0.05)
        log.warning("a window of an incremental snapshot is void: the log is behind")
        raise WindowVoid

    # --- the log -------------------------------------------------------------------------------------------------

    def signals(self, changes: Changes) -> list[tuple[Signal, str]]:
        """Return the signals that were inserted into the signal collection, each with its position."""
        if self._signals_in is None or self._signals_in not in changes.names:
            return []
        number = list(changes.names).index(self._signals_in)
        found: list[tuple[Signal, str]] = []
        for part in changes.rows:
            own = np.flatnonzero((part.namespace == number) & (part.op == ord("c")))
            for row in own.tolist():
                signal = _signal(part, row)
                if signal is not None:
                    found.append((signal, str(ChangePosition(int(part.time[row]), int(part.number[row])))))
        return found

    def captured(self, changes: Changes) -> Sequence[tuple[str, str]]:
        return self._list_captured()

    def reads(self, window: DocumentsWindow, changes: Changes) -> Sequence[Segment]:
        found: list[Segment] = []
        first = _NUMBERS * (window.number + 1)
        low, time = ChangePosition(window.view, WHOLE), window.upto.time
        for namespace, answer, starts in window.chunks:
            segment = read_documents(namespace, answer.data, starts, time, first, marker=Marker.INCREMENTAL)
            first += len(segment)
            changed = _changed(changes, namespace, low, window.upto.position, self._skipped, self._kind)
            if changed:
                keys = _keys(segment)
                segment = selected(segment, np.flatnonzero([key not in changed for key in keys]))
            if len(segment):
                found.append(segment)
        return found

    # --- documents -----------------------------------------------------------------------------------------------

    def next_chunks(self, view: int, state: IncrementalSnapshot, count: int) -> FoundChunks[Documents]:
        from pymongo.errors import OperationFailure

        collection, cursor = state.current, state.cursor
        namespace = (collection.schema, collection.table)
        if not self._is_captured(*namespace):
            raise UnusableTable("UNKNOWN_SCHEMA")
        if collection.surrogate:
            log.warning("signal %s: MongoDB's documents have no surrogate key; %s is read by _id", state.id, collection)
        try:
            after = view if self._sees_majority(namespace) else 0
            if cursor.maximum is None:
                maximum = self._maximum(collection, after)
                cursor = replace(cursor, maximum=() if maximum is None else (maximum,))
            found = self._documents(collection, cursor, after, self._chunk_size * count)
        except (OperationFailure, ValueError) as error:
            if is_passing(error):
                raise
            log.warning("%s cannot be read for the incremental snapshot (%s)", collection, type(error).__name__)
            raise UnusableTable("SQL_EXCEPTION") from None
        if not found:
            return FoundChunks([], cursor)
        answer, starts = found[-1]
        rows = cursor.rows + sum(len(starts) for _, starts in found)
        moved = Cursor((_id(answer, int(starts[-1])),), cursor.maximum, rows)
        return FoundChunks([(namespace, *part) for part in found], moved, count)

    def _maximum(self, collection: Collection, after: int) -> str | None:
        """Return the greatest `_id`, in the form of plans; None for an empty collection."""
        command = {
            "find": collection.table, "filter": condition(collection.filter or ""), "sort": {"_id": -1}, "limit": 1,
            "projection": {"_id": 1}, "singleBatch": True, **concern(after),
        }  # fmt: skip
        answer = RawCursor(self._connect(), collection.schema, command).next()
        return _id(answer, int(answer.starts[0])) if len(answer.starts) else None

    def _documents(
        self, collection: Collection, cursor: Cursor, after: int, wanted: int
    ) -> list[tuple[CursorBatch, fields.Int64s]]:
        """Return the next documents after the cursor, in the order of the index over `_id`, which compares across
        types."""
        if not cursor.maximum:
            return []
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
        found: list[tuple[CursorBatch, fields.Int64s]] = []
        left = wanted
        while raw.alive and left > 0:
            answer = raw.next()
            starts = answer.starts
            if cursor.last is not None and len(starts) and not found and left == wanted:
                # `min` is inclusive: the document at the bound, unless deleted, was read before
                starts = starts[1:] if _id(answer, int(starts[0])) == cursor.last[0] else starts
            starts = starts[:left]
            left -= len(starts)
            if len(starts):
                found.append((answer, starts))
        raw.close()
        return found


@contextmanager
def _void_where_away() -> Iterator[None]:
    """Raise WindowVoid instead of the error of an unreachable server. The reader of the log counts such failures."""
    from pymongo.errors import PyMongoError

    try:
        yield
    except PyMongoError as error:
        if not is_passing(error):
            raise
        log.warning("a window of an incremental snapshot is void (%s)", type(error).__name__)
        raise WindowVoid from None


def _signal(rows: ChangeArrays, row: int) -> Signal | None:
    from bson import decode, json_util
    from bson.codec_options import CodecOptions, DatetimeConversion

    place = int(rows.at[row])
    try:
        # a signal may have further fields, with dates beyond Python's years
        options: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
        document = decode(rows.data[place : place + int(fields.load(rows.data, place))].tobytes(), options)
        content = document.get("fullDocument") or {}
        data = content.get("data", content.get("payload"))
        text = data if isinstance(data, str) or data is None else json_util.dumps(data)
        return Signal(str(content.get("_id", "")), str(content.get("type", "")), text)
    except Exception as error:
        # the sender of a signal chooses its bytes, and the log keeps them: an error would end every later run
        log.warning("a document of the signal collection is not a signal and is ignored (%s)", type(error).__name__)
        return None


def _id(answer: CursorBatch, start: int) -> str:
    """Return the `_id` of the document at `start` in the form of plans."""
    places, kinds = fields.locate(answer.data, np.array([start], np.int64), ("_id",))
    place, kind = int(places[0, 0]), int(kinds[0, 0])
    size = int(fields.value_size(answer.data, kind, place, len(answer.data)))
    body = bytes((kind,)) + b"_id\0" + answer.data[place : place + size].tobytes()
    return encoded_id((len(body) + 5).to_bytes(4, "little") + body + b"\0")


def _keys(segment: Segment) -> list[bytes]:
    """Return the keys of a segment's events as bytes: the type and value of `_id`."""
    key = images(segment).key
    found = []
    for place, kind in zip(key.places.tolist(), key.kinds.tolist(), strict=True):
        size = int(fields.value_size(segment.data, kind, place, len(segment.data))) if place >= 0 else 0
        found.append(bytes((kind,)) + segment.data[place : place + size].tobytes())
    return found


def _changed(
    changes: Changes, namespace: Namespace, low: ChangePosition, high: ChangePosition, skipped: Sequence[int], kind: str
) -> set[bytes]:
    """Return the keys of a collection with an event in `(low, high]`. Operations in `skipped` have no events."""
    if namespace not in changes.names:
        return set()
    number = list(changes.names).index(namespace)
    found: set[bytes] = set()
    for part in changes.rows:
        within = part.part(slice(part.first_after(low), part.first_after(high)))
        own = within.part(np.flatnonzero((within.namespace == number) & ~np.isin(within.op, skipped)))
        for several in segments([own], changes.names, kind).values() if len(own) else ():
            for segment in several:
                found.update(_keys(segment))
    return found
