"""Snapshots: the collections to read, their division into chunks, and the task that reads a chunk. Planner and worker.

A chunk is a range of `_id` in the order of its index: `min` and `max` of the find command compare across types, which
`$gt` and `$lt` do not. A collection of one chunk is read in its natural order.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import Marker
from tailrace.config.expressions import compile_expression
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.records.segment import Segment, read_documents
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained_error, is_passing
from tailrace.connectors.mongodb.server.raw import CursorBatch, RawCursor, concern
from tailrace.connectors.mongodb.server.routers import for_cursors
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot.plan import Chunk, SnapshotPlan, planned
from tailrace.connectors.mongodb.values.shell_json import strict_json
from tailrace.events.control_records import in_java_order

if TYPE_CHECKING:
    import pyarrow as pa
    from bson.json_util import JSONOptions
    from pymongo import MongoClient

log = logging.getLogger("tailrace")

CHUNK_DOCUMENTS = 65_536
# Samples for each bound: with ten, the sizes of chunks differ by about a third.
_SAMPLES = 10
# Most levels of a query: servers accept about two hundred, and the query is nested in a command.
_DEEPEST = 150
_OVERRIDES = "snapshot.collection.filter.overrides"


def collections(client: MongoClient[Any], captured: CollectionFilter, old: bool) -> list[Namespace]:
    """Return the captured collections that exist, in the order of a snapshot.

    As in Debezium, databases come in the order of a Java HashSet, and collections as the server lists them; except in
    the format 1.1 (`old`) the collections are then sorted by name without database.
    """
    found: list[Namespace] = []
    for database in in_java_order(client.list_database_names()):
        of_signals = captured.signals is not None and captured.signals[0] == database
        if not of_signals and not captured.includes_database(database):
            continue
        for listed in client[database].list_collections():
            name = str(listed["name"])
            if listed.get("type", "collection") != "collection" or (name.startswith("system.") and not old):
                continue
            if captured.includes(database, name):
                found.append((database, name))
    return found if old else sorted(found, key=lambda one: one[1].encode("utf-16-be"))


def chosen(config: Mapping[str, Any], found: Sequence[Namespace], captured: CollectionFilter) -> list[Namespace]:
    """Return the captured collections that the initial snapshot reads, without the signal collection."""
    wanted = [compile_expression(text) for text in config["snapshot.include.collection.list"]]
    names = [one for one in found if one != captured.signals]
    return [one for one in names if not wanted or any(pattern.fullmatch(".".join(one)) for pattern in wanted)]


def filters(config: Mapping[str, Any]) -> tuple[tuple[Namespace, str], ...]:
    """Return the conditions of `snapshot.collection.filter.overrides`, by collection."""
    found = []
    for listed in config.get(_OVERRIDES) or ():
        database, _, name = listed.partition(".")
        found.append(((database, name), str(config[f"{_OVERRIDES}.{listed}"])))
    return tuple(sorted(found))


def plan(
    client: MongoClient[Any],
    names: Sequence[Namespace],
    conditions: tuple[tuple[Namespace, str], ...] = (),
    chunk_documents: int = CHUNK_DOCUMENTS,
    *,
    after: int = 0,
) -> SnapshotPlan:
    """Return the plan for the collections `names` in this order. Collections without a matching document are left out.

    `after` is the timestamp that a majority read must have reached, as for `raw.concern`.
    """
    by_name = dict(conditions)
    split: list[tuple[Namespace, list[str]]] = []
    for name in names:
        wanted: dict[str, Any] = {
            "find": name[1], "filter": condition(by_name.get(name, "")), "projection": {"_id": 1},
            "limit": 1, "singleBatch": True, **concern(after),
        }  # fmt: skip
        if not len(RawCursor(client, name[0], wanted).next().starts):
            continue
        count = client[name[0]][name[1]].estimated_document_count()
        split.append((name, bounds(client, name, -(-count // chunk_documents))))
    return planned(split, tuple(pair for pair in conditions if pair[0] in dict(split)))


def _options() -> JSONOptions:
    """Return the options to read extended JSON: dates beyond Python's years stay milliseconds."""
    from bson.codec_options import DatetimeConversion
    from bson.json_util import JSONOptions

    return JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def condition(text: str) -> dict[str, Any]:
    """Return a query from extended JSON or the shell's notation; an empty text matches all documents.

    Raises ValueError, without parts of the text in its message, if the text is not a query or cannot be sent to a
    server.
    """
    from bson import encode, json_util
    from bson.errors import BSONError

    if not text:
        return {}
    try:
        found = json_util.loads(strict_json(text), json_options=_options())
        if isinstance(found, dict):
            # JSON allows numbers beyond 64 bits and names with a zero byte, BSON does not
            encode(found)
    except (BSONError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, UnicodeError):
        # json_util raises these for {"$oid": 1} and the like
        raise ValueError("is not extended JSON") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    level: list[Any] = [found]
    for _ in range(_DEEPEST):
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
        level = [part for part in level if isinstance(part, dict | list)]
    if level:
        raise ValueError("nests too much")
    return found


def bounds(client: MongoClient[Any], name: Namespace, chunks: int) -> list[str]:
    """Return bounds that cut a collection into `chunks` of similar size; none if it cannot be sampled."""
    from pymongo.errors import OperationFailure

    if chunks < 2:
        return []
    stages = [{"$sample": {"size": _SAMPLES * chunks}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    command = {"aggregate": name[1], "pipeline": stages, "cursor": {}, "allowDiskUse": True}
    cursor = RawCursor(client, name[0], command)
    samples: list[str] = []
    try:
        while cursor.alive:
            answer = cursor.next()
            samples += [_bound(answer, start) for start in answer.starts.tolist()]
    except OperationFailure:
        return []
    found = [samples[place * len(samples) // chunks] for place in range(1, chunks)] if samples else []
    return list(dict.fromkeys(found))


def _bound(answer: CursorBatch, start: int) -> str:
    """Return the `_id` of a document in the form of plans."""
    size = int.from_bytes(answer.data[start : start + 4].tobytes(), "little")
    return encoded_id(answer.data[start : start + size].tobytes())


def encoded_id(document: bytes) -> str:
    """Return the value of a document `{_id: value}` in the form of plans: the document `{"": value}` in base64."""
    # the field's name is replaced in the bytes, so that the value is not converted
    body = document[4:5] + b"\0" + document[9:-1]
    return base64.b64encode((len(body) + 5).to_bytes(4, "little") + body + b"\0").decode()


def index_bound(text: str) -> Any:
    """Return a bound of a plan for `min` and `max` of the find command: `{_id: value}`."""
    from bson.raw_bson import RawBSONDocument

    body = base64.b64decode(text)
    inner = body[4:5] + b"_id\0" + body[6:-1]
    return RawBSONDocument((len(inner) + 5).to_bytes(4, "little") + inner + b"\0")


def find_command(chunk: Chunk, filter_: str, batch_size: int, after: int) -> dict[str, Any]:
    """Return the command that reads a chunk; `after` is as for `raw.concern`."""
    command: dict[str, Any] = {"find": chunk.namespace[1], "filter": condition(filter_), **concern(after)}
    if chunk.lower or chunk.upper:
        command["hint"] = {"_id": 1}
        if chunk.lower:
            command["min"] = index_bound(chunk.lower)
        if chunk.upper:
            command["max"] = index_bound(chunk.upper)
    if batch_size:
        command["batchSize"] = batch_size
    return command


def last_filled(client: MongoClient[Any], plan: SnapshotPlan, first: int, after: int) -> int:
    """Return the number of the last chunk, not before `first`, that holds a document now; the plan's last if none
    does."""
    for number in range(len(plan.chunks) - 1, first - 1, -1):
        chunk = plan.chunks[number]
        command = find_command(chunk, plan.filter(chunk.namespace), 0, after)
        command |= {"limit": 1, "singleBatch": True, "projection": {"_id": 1}}
        if len(RawCursor(client, chunk.namespace[0], command).next().starts):
            return number
    return len(plan.chunks) - 1


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A task that reads one chunk over a connection to `address` (holds the password). Worker.

    `filter` is a condition in extended JSON; `at` is the log position of the snapshot's start; `after` is the timestamp
    that a majority read must have reached, as for `raw.concern`. The chunk's `number` makes the numbers of its
    documents different from those in other chunks.

    The end of a snapshot is always marked: if the last chunk has become empty, the task repeats the last document of
    the `earlier` chunks, each with its condition. If a condition of a signal (`asked`) fails, the task logs this and
    leaves out the rest of the chunk: an error would stop the pipeline at each start. `read` raises ConnectionFailed and
    PrerequisiteError.
    """

    address: Address
    chunk: Chunk
    filter: str
    at: ChangePosition
    number: int
    batch_size: int
    settings: MongoSettings
    after: int
    earlier: tuple[tuple[Chunk, str], ...] = ()
    asked: bool = False

    def __repr__(self) -> str:
        return f"SnapshotTask({'.'.join(self.chunk.namespace)}, chunk {self.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        from pymongo.errors import PyMongoError

        from tailrace.connectors.mongodb.records.records import to_rows

        try:
            client = connect(self.address)
            try:
                cursors = for_cursors(client, self.address)
                try:
                    for segment in self._segments(cursors):
                        yield from to_rows(segment, self.settings)
                finally:
                    cursors.close()
            finally:
                client.close()
        except PyMongoError as error:
            raise explained_error(error) from None

    def _segments(self, client: MongoClient[Any]) -> Iterator[Segment]:
        """Yield a segment for each answer with documents. The last document of a snapshot is marked."""
        from pymongo.errors import OperationFailure

        command = find_command(self.chunk, self.filter, self.batch_size, self.after)
        cursor = RawCursor(client, self.chunk.namespace[0], command)
        first = self.number << 40
        waiting: Segment | None = None
        while cursor.alive:
            try:
                answer = cursor.next()
            except OperationFailure as error:
                if not self.asked or not self.filter or is_passing(error):
                    raise
                # the server's message may contain data that the condition computed
                log.warning(
                    "the condition of a signal for %s fails (code %s): the other documents are left out",
                    ".".join(self.chunk.namespace),
                    error.code,
                )
                break
            if not len(answer.starts):
                continue
            if waiting is not None:
                yield waiting
            waiting = self._read(self.chunk.namespace, answer, first)
            first += len(answer.starts)
        if waiting is None and self.chunk.last:
            waiting = self._latest_of_earlier(client, first)
        if waiting is not None:
            if self.chunk.last and waiting.markers is not None:
                waiting.markers[-1] = np.uint8(Marker.LAST)
            yield waiting

    def _read(self, namespace: Namespace, answer: CursorBatch, first: int) -> Segment:
        return read_documents(
            namespace,
            answer.data,
            answer.starts,
            self.at.time,
            first,
            hash_=self.at.hash,
            read_ns=0 if self.settings.legacy else time.time_ns(),
        )

    def _latest_of_earlier(self, client: MongoClient[Any], number: int) -> Segment | None:
        for chunk, filter_ in reversed(self.earlier):
            command = find_command(chunk, filter_, 0, self.after)
            command |= {"hint": {"_id": 1}, "sort": {"_id": -1}, "limit": 1, "singleBatch": True}
            answer = RawCursor(client, chunk.namespace[0], command).next()
            if len(answer.starts):
                return self._read(chunk.namespace, answer, number)
        return None
