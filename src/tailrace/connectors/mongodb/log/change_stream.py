"""ChangeStreamFeed: a change stream of a replica set or a sharded cluster. Planner, the reader's thread.

An event is `{_id: token, operationType, clusterTime, ns: {db, coll}, documentKey, fullDocument, …}` (MongoDB Manual,
"Change Events"). One stream serves all collections; it is opened on the deployment, a database or a collection.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.connectors.mongodb.log.commands import Commands
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, IndexedRun, Namespace, encoded, numbered
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces, split
from tailrace.connectors.mongodb.log.position import ChangePosition, Read
from tailrace.connectors.mongodb.log.server_filter import stage
from tailrace.connectors.mongodb.server.raw import BATCH, CursorBatch, RawCursor
from tailrace.connectors.mongodb.server.routers import is_sharded
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly

if TYPE_CHECKING:
    from pymongo import MongoClient

_EVENT = ("_id", "operationType", "clusterTime", "ns", "splitEvent")
_OPS = {b"insert": ord("c"), b"update": ord("u"), b"replace": ord("u"), b"delete": ord("d")}
_DOCUMENTS = ("$fullDocument", "$fullDocumentBeforeChange")
_TIMESTAMP_KEY = 0x82


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The options of a change stream.

    `database` and `collection` are empty for a stream on all of them. `full_document` and `before` are the server's
    options fullDocument and fullDocumentBeforeChange, empty if the document is not requested. `pipeline` holds the
    stages after `$changeStream`; `split` lets the server split events of more than 16 MB. `start_time` is the start of
    a stream without token, as a BSON timestamp in 64 bits; 0 for now.
    """

    database: str = ""
    collection: str = ""
    full_document: str = ""
    before: str = ""
    pipeline: tuple[Mapping[str, Any], ...] = ()
    split: bool = False
    start_time: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any], captured: CollectionFilter) -> StreamSettings:
        """Return the settings of a checked configuration. The server filters out collections that `captured`
        excludes."""
        scope = config["capture.scope"]
        database, collection = split(config["capture.target"] or "") if scope != "deployment" else ("", "")
        mode = config["capture.mode"]
        full = ""
        if "update_full" in mode:
            full = "whenAvailable" if config["capture.mode.full.update.type"] == "post_image" else "updateLookup"
        handling = config["cursor.oversize.handling.mode"]
        own = [stage(captured, config["skipped.operations"], scoped=bool(database))]
        if handling == "skip":
            own += [_smaller(name, config["cursor.oversize.skip.threshold"]) for name in _DOCUMENTS]
        given = user_stages(config["cursor.pipeline"])
        order = config["cursor.pipeline.order"]
        stages = {"internal_first": [*own, *given], "user_first": [*given, *own], "user_only": given}[order]
        at = config["capture.start.op.time"]
        return cls(
            database,
            collection,
            full,
            "whenAvailable" if mode.endswith("pre_image") else "",
            tuple(stages),
            handling == "split",
            at if at and at > 0 else 0,
        )


def _smaller(document: str, most: int) -> Mapping[str, Any]:
    """Return the stage that drops events whose `document` has more than `most` bytes."""
    size = {"$cond": [{"$eq": [{"$type": document}, "object"]}, {"$bsonSize": document}, 0]}
    return {"$match": {"$expr": {"$lte": [size, most]}}}


def user_stages(text: str | None) -> list[Mapping[str, Any]]:
    """Return the stages of `cursor.pipeline`, an array in extended JSON. Raises ValueError."""
    if not text or not text.strip():
        return []
    from bson import json_util

    stages = json_util.loads(text)
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("is not an array of stages")
    return stages


class ChangeStreamFeed:
    """Captured changes after a position, run by run. Raises PyMongo's errors and DecodeError.

    `commands` warns of commands on whole collections.
    """

    def __init__(
        self,
        connect: Callable[[], MongoClient[Any]],
        namespaces: Namespaces,
        settings: StreamSettings,
        *,
        batch_size: int = BATCH,
        await_ms: int | None = None,
        commands: Commands | None = None,
    ) -> None:
        self._commands = commands
        self._connect = connect
        self._namespaces = namespaces
        self._settings = settings
        self._batch_size = batch_size
        self._await_ms = await_ms
        self._client: MongoClient[Any] | None = None
        self._cursor: RawCursor | None = None
        self._reached = ChangePosition()
        self._counted = (0, 0)
        # the fragments of a split event that have arrived, until the last one comes
        self._fragments: list[bytes] = []
        self.caught_up_at = 0
        """The cluster time up to which the server's answers prove that it has sent every change; 0 before the first."""
        self.answered_at = 0
        """The server's operation time in its latest answer, which may be ahead of what it has sent; 0 before."""

    def open(self, position: ChangePosition) -> None:
        """Prepare to read the changes after `position`."""
        from bson.raw_bson import RawBSONDocument
        from bson.timestamp import Timestamp

        self.close()
        self._reached = position
        self._counted = position.key
        self._fragments = []
        self.answered_at = 0
        settings = self._settings
        stream: dict[str, Any] = {}
        if not settings.database:
            stream["allChangesForCluster"] = True
        if settings.full_document:
            stream["fullDocument"] = settings.full_document
        if settings.before:
            stream["fullDocumentBeforeChange"] = settings.before
        if position.token:
            # unlike resumeAfter, startAfter also resumes after a collection was dropped or renamed
            stream["startAfter"] = RawBSONDocument(base64.b64decode(position.token))
        elif at := position.time or settings.start_time:
            stream["startAtOperationTime"] = Timestamp(at >> 32, at & 0xFFFFFFFF)
        pipeline: list[Mapping[str, Any]] = [{"$changeStream": stream}, *settings.pipeline]
        if settings.split:
            pipeline.append({"$changeStreamSplitLargeEvent": {}})
        command = {
            "aggregate": settings.collection or 1,
            "pipeline": pipeline,
            "cursor": {"batchSize": self._batch_size} if self._batch_size else {},
        }
        self._client = self._connect()
        self._cursor = RawCursor(self._client, settings.database or "admin", command, await_ms=self._await_ms)

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def read(self) -> IndexedRun | None:
        """Return the next run, which may hold no captured change; None if the stream has not moved."""
        assert self._cursor is not None
        answer = self._cursor.next()
        cursor_ended = not self._cursor.alive
        found = self._run(answer)
        self._prove(answer)
        if cursor_ended:
            # a stream on a database or a collection ends when its database or collection is dropped or renamed
            self.open(self._reached)
        return found

    def _prove(self, answer: CursorBatch) -> None:
        """Update `caught_up_at` after an answer.

        An empty answer proves that the server has searched the log up to the time in its token. This does not hold for
        several shards: another shard may still send a change of that time. If a token shows no time, the operation time
        of the previous answer is used. The operation time of this answer may be ahead of the majority.
        """
        earlier, self.answered_at = self.answered_at, answer.at
        if len(answer.starts) or self._fragments or answer.token is None:
            return
        if self._client is None or is_sharded(self._client):
            return
        time = token_time(answer.token)
        self.caught_up_at = max(self.caught_up_at, earlier if time is None else time)

    def _run(self, answer: CursorBatch) -> IndexedRun | None:
        data, starts = answer.data, answer.starts
        places, kinds = fields.locate(data, starts, _EVENT)
        if (places[4] >= 0).any():
            data, starts = self._whole(data, starts, places, kinds)
            places, kinds = fields.locate(data, starts, _EVENT)
        op = self._ops(data, places[1], kinds[1])
        changes = np.flatnonzero(op)
        if self._commands is not None and len(changes) < len(op):
            for start in starts[op == 0].tolist():
                self._commands.event(data[start : start + int(fields.load(data, start))].tobytes())
        if (kinds[0] != fields.DOCUMENT).any():
            raise DecodeError("A change event has no _id.")
        if (kinds[2][changes] != fields.TIMESTAMP).any() or (kinds[3][changes] != fields.DOCUMENT).any():
            raise DecodeError("A change event has no clusterTime or no ns.")
        time = fields.int64s(data, places[2][changes], kinds[2][changes])
        number = numbered(time, *self._counted)
        counted = (int(time[-1]), int(number[-1])) if len(number) else self._counted
        namespace = self._numbers(data, places[3][changes])
        tokens = places[0][changes]
        rows = ChangeArrays(data, starts[changes], time, number, op[changes], namespace)
        reached = self._behind(answer, data, places[0], counted)
        # a later change may have the same timestamp as a token
        self._counted = counted if reached.key == self._reached.key else reached.key
        if reached == self._reached:
            return None
        self._reached = reached
        captured = np.flatnonzero(rows.namespace >= 0)
        return IndexedRun.of(rows.part(captured), Read(reached), tokens[captured], len(answer.data))

    def _behind(self, answer: CursorBatch, data: Bytes, ids: Int64s, counted: tuple[int, int]) -> ChangePosition:
        """Return the position after the answer, from the token of the batch or else of the last event.

        `counted` holds the time and the number of the last change that was sent.
        """
        token = answer.token
        if self._fragments:
            # a position cannot be within a split event
            token = None
            if not len(ids):
                return self._reached
        if token is None and len(ids):
            token = base64.b64decode(encoded(data, int(ids[-1])))
        if token is None:
            return self._reached
        time, number = counted if counted[0] else self._reached.key
        known = token_time(token)
        if known is not None and known > time:
            time, number = known, 0
        return ChangePosition(time, number, base64.b64encode(token).decode())

    @staticmethod
    def _ops(data: Bytes, places: Int64s, kinds: Bytes) -> Bytes:
        if (kinds != fields.STRING).any():
            raise DecodeError("A change event has no operationType.")
        codes, texts = fields.distinct(data, places + 4, fields.sizes_of(data, places) - 1)
        of = np.array([_OPS.get(text, 0) for text in texts] or [0], np.uint8)
        return np.asarray(of[codes], np.uint8)

    def _numbers(self, data: Bytes, places: Int64s) -> Any:
        codes, documents = fields.distinct(data, places, fields.sizes_of(data, places))
        number = [self._namespaces.number(_namespace(document)) for document in documents]
        return np.array(number or [-1], np.int32)[codes]

    def _whole(self, data: Bytes, starts: Int64s, places: Int64s, kinds: Bytes) -> tuple[Bytes, Int64s]:
        """Return the events, with split events joined. The fragments of an incomplete event are kept for the next
        answer."""
        documents: list[bytes] = []
        for row, start in enumerate(starts.tolist()):
            document = data[start : start + int(fields.load(data, start))].tobytes()
            if places[4, row] < 0:
                documents.append(document)
                continue
            if kinds[4, row] != fields.DOCUMENT:
                raise DecodeError("A change event has a splitEvent that is not a document.", start)
            inside, inner = fields.locate(data, places[4, row : row + 1], ("fragment", "of"))
            fragment, of = (int(fields.int64s(data, inside[which], inner[which])[0]) for which in (0, 1))
            if fragment == 1:
                self._fragments = []
            self._fragments.append(document)
            if fragment == of:
                documents.append(_joined(self._fragments))
                self._fragments = []
        bounds = np.cumsum([0, *map(len, documents)]).astype(np.int64)
        return readonly(np.frombuffer(b"".join(documents) or b"\0", np.uint8)), bounds[:-1]


def _namespace(document: bytes) -> Namespace:
    """Return the database and collection of an event's `ns`."""
    data = np.frombuffer(document, np.uint8)
    places, kinds = fields.locate(data, np.zeros(1, np.int64), ("db", "coll"))
    if kinds[0, 0] != fields.STRING:
        raise DecodeError("A change event has an ns without a database.")
    collection = fields.text(data, int(places[1, 0])) if kinds[1, 0] == fields.STRING else ""
    return fields.text(data, int(places[0, 0])), collection


def _joined(fragments: Sequence[bytes]) -> bytes:
    """Return one event from its fragments.

    Fragments have only `splitEvent` and `_id` in common: the former is dropped, of the latter the last is kept.
    """
    body = b"".join(_without_split(fragment, last=fragment is fragments[-1]) for fragment in fragments)
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


def _without_split(document: bytes, *, last: bool) -> bytes:
    data = np.frombuffer(document, np.uint8)
    places, kinds = fields.elements(data, 0)
    kept, begin = [], 4
    for place, kind in zip(places.tolist(), kinds.tolist(), strict=True):
        end = place + int(fields.value_size(data, kind, place, len(data)))
        name = document[begin + 1 : place - 1]
        if name != b"splitEvent" and (last or name != b"_id"):
            kept.append(document[begin:end])
        begin = end
    return b"".join(kept)


def token_time(token: bytes) -> int | None:
    """Return the cluster time in a resume token, as a BSON timestamp in 64 bits; None if the token has another form.

    A mongod's token is `{_data: hexadecimal}`. The text is a key string that begins with the cluster time: the byte for
    a timestamp and eight bytes, the highest first. Raises DecodeError for a token that is not a document.
    """
    data = np.frombuffer(token, np.uint8)
    places, kinds = fields.locate(data, np.zeros(1, np.int64), ("_data",))
    text = fields.text(data, int(places[0, 0])) if kinds[0, 0] == fields.STRING else ""
    if len(text) < 18:
        return None
    try:
        head = bytes.fromhex(text[:18])
    except ValueError:
        return None
    return int.from_bytes(head[1:], "big") if head[0] == _TIMESTAMP_KEY else None
