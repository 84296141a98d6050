"""Fuzz target: answers of MongoDB, from an oplog or a change stream by their first byte, and their documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import bson
import numpy as np
from bson.timestamp import Timestamp

from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.oplog import OplogFeed
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.connectors.mongodb.records.segment import OPLOG, STREAM, segments
from tailrace.connectors.mongodb.server import raw
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.extended_json import json_texts
from tailrace.connectors.mongodb.values.field_filters import FieldFilter, encoded, field_filter, filtered, parsed
from tailrace.connectors.mongodb.values.fields import Bytes
from tailrace.connectors.mongodb.values.plain_json import items, plain_text
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, ConversionError, DecodeError, TailraceError
from tailrace.events.event_settings import EventSettings
from tests.fuzz.guarded import Guarded
from tests.fuzz.machine import Difference, Target
from tests.unit.mongodb.bson_bytes import array, binary, document, scoped, text

_GUARDED = Guarded()
_NAMES = ("ts", "op", "ns", "o", "_id", "a")
_WORDS = (
    b"ts\0", b"op\0", b"ns\0", b"o\0", b"o2\0", b"_id\0", b"applyOps\0", b"partialTxn\0", b"prevOpTime\0", b"cursor\0",
    b"firstBatch\0", b"operationType\0", b"clusterTime\0", b"splitEvent\0", b"updateDescription\0", b"lsid\0",
    b"\x05\0\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x02a\0\x01\0\0\0\0", b"\x0ba\0x\0i\0",
    b"\x03", b"\x04", b"\x0f", b"\x13", b"\x05a\0\x04\0\0\0\x02\0\0\0\0", b"\x02\0\0\0", b"\x01\0\0\0", b"\xed\xa0\x80",
)  # fmt: skip


class _Nobody:
    """A server that cannot be reached."""

    def __getattr__(self, _: str) -> Any:
        raise ConnectionFailed("nobody answers")


def _config(**options: str) -> Any:
    return parse("mongodb", {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"} | options)


@lru_cache
def _settings() -> tuple[MongoSettings, ...]:
    found = []
    for options in (
        {},
        {"event.format": "1.1"},
        {"field.exclude.list": "db.c.a,db.c.d.e", "field.renames": "db.c.b:x"},
    ):
        config = _config(**options)
        found.append(MongoSettings.of(config, EventSettings.from_options(config, "run"), "r"))
    return tuple(found)


@lru_cache
def _filters() -> tuple[FieldFilter, ...]:
    made = (
        field_filter(["db.c.a", "db.c.d.e"], ["db.c.b:x"], "db", "c"),
        field_filter([], ["db.c.a:longer"], "db", "c"),
    )
    return tuple(one for one in made if one is not None)


def _text(data: bytes, kind: int, place: int, form: forms.JsonForm) -> str | None:
    try:
        return plain_text(data, kind, place, form)
    except TailraceError:
        return None


def _compiled(data: Bytes, kinds: Sequence[int], places: Sequence[int], form: forms.JsonForm) -> list[str] | None:
    try:
        found = json_texts(data, np.array(places, np.int64), np.array(kinds, np.uint8), form, False)
    except TailraceError:
        return None
    bounds = found.offsets.tolist()
    return [found.data[low:high].tobytes().decode() for low, high in pairwise(bounds)]


def _texts(content: bytes) -> object:
    """Return the document in every form, and its top level."""
    data = _GUARDED.copy(content)
    told: list[object] = []
    for form in forms.FORMS:
        wanted = _text(content, fields.DOCUMENT, 0, form)
        found = _compiled(data, [fields.DOCUMENT], [0], form)
        if found != (None if wanted is None else [wanted]):
            raise Difference(f"text {form.name}\n{content!r}\n{found!r}\nplainly {wanted!r}")
        if wanted is not None:
            json.loads(wanted)
        told.append(wanted is None)
    try:
        known = {name: (kind, place) for name, kind, place in items(content, 0)}
    except DecodeError:
        known = None
    try:
        places, kinds = fields.locate(data, np.zeros(1, np.int64), _NAMES)
    except DecodeError:
        if known is not None:
            raise Difference(f"locate\n{content!r}") from None
        places, kinds = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.uint8)
    for number, name in enumerate(_NAMES if len(places) and known is not None else ()):
        wanted_kind, wanted_place = (known or {}).get(name, (fields.ABSENT, -1))
        if (kinds[number, 0], places[number, 0]) != (wanted_kind, wanted_place):
            raise Difference(f"locate {name}\n{content!r}")
    if known is not None:
        _edits(content, data)
    return tuple(told)


def _is_single(content: bytes) -> bool:
    """Return True if no name and no index of an array is repeated, at any level."""
    elements = parsed(content)
    return encoded(elements) == content and all(
        _is_single(element.value) for element in elements if element.kind in (fields.DOCUMENT, fields.ARRAY)
    )


def _edits(content: bytes, data: Bytes) -> None:
    """Compare the compiled and the plain removal and renaming of fields."""
    try:
        if not _is_single(content):
            # If an array's index is repeated, the plain way keeps the last value.
            return
    except (ConversionError, DecodeError):
        return
    places, kinds = np.zeros(1, np.int64), np.array([fields.DOCUMENT], np.uint8)
    for chosen in _filters():
        found: list[object] = []
        for edit in (chosen.documents, lambda *given, chosen=chosen: filtered(*given, chosen.document)):
            try:
                edited, at = edit(data, places, kinds)
                found.append(_text(edited.tobytes(), fields.DOCUMENT, int(at[0]), forms.STRICT))
            except (ConversionError, DecodeError):
                found.append(None)
        if found[0] != found[1] and None not in found:
            raise Difference(f"edited\n{content!r}\n{found[0]!r}\nplainly {found[1]!r}")


def _run(data: bytes) -> object:
    if not data:
        return None
    content = data[1:]
    if data[0] % 3 == 2:
        return _texts(content)
    answer, _, _ = raw.read_answer(_GUARDED.copy(content))
    namespaces = Namespaces(CollectionFilter(_config()))
    nobody: Any = _Nobody()
    feed: Any
    if data[0] % 3 == 0:
        if not len(answer.starts):
            # The feed makes no chunk of an answer without entries.
            return "empty"
        feed = OplogFeed(nobody, namespaces)
        feed._reached = ChangePosition()
        kind = OPLOG
    else:
        feed = ChangeStreamFeed(nobody, namespaces, StreamSettings())
        kind = STREAM
        feed._prove(answer)
    found: list[object] = []
    for run in feed._read(answer) if data[0] % 3 == 0 else (feed._run(answer),):
        if run is None:
            return "nothing"
        # The planner's queries about it.
        for row in range(len(run.rows)):
            run.position(row)
        ChangePosition.from_json(run.reached.to_json())
        for parts in segments([run.rows], namespaces.names, kind).values():
            for segment in parts:
                for settings in _settings():
                    for rows in to_rows(segment, settings):
                        rows.validate(full=True)
                        for value in rows.column("value").to_pylist():
                            if value is not None:
                                json.loads(value)
                        found.append(tuple(rows.column("op").to_pylist()))
    return tuple(found[:6])


_ID = ("_id", fields.INT32, (7).to_bytes(4, "little"))


def _documents() -> list[bytes]:
    scalars = [
        ("f", fields.DOUBLE, bytes(6) + b"\xf0\x3f"), ("s", fields.STRING, text('é"\\\n')),
        ("b", fields.BINARY, binary(b"\x01" * 16, 4)), ("c", fields.BINARY, binary(b"xyz", 2)),
        ("u", fields.UNDEFINED, b""), ("i", fields.OBJECT_ID, bytes(range(12))), ("t", fields.BOOLEAN, b"\x01"),
        ("w", fields.DATE, (1_700_000_000_123).to_bytes(8, "little")), ("n", fields.NULL, b""),
        ("r", fields.REGEX, b"^a\0im\0"), ("p", fields.DB_POINTER, text("db.c") + bytes(12)),
        ("j", fields.CODE, text("f()")), ("y", fields.SYMBOL, text("sym")),
        ("k", fields.SCOPED_CODE, scoped("f()", document([_ID]))), ("q", fields.TIMESTAMP, bytes(range(8))),
        ("l", fields.INT64, (-1).to_bytes(8, "little", signed=True)), ("m", fields.MIN_KEY, b""),
        ("x", fields.MAX_KEY, b""),
        ("z", fields.DECIMAL, bytes(14) + b"\x40\x30"),
    ]  # fmt: skip
    inner = document([_ID, ("e", fields.STRING, text("in"))])
    nested = document([_ID, ("a", fields.DOCUMENT, inner), ("d", fields.ARRAY, array([(fields.DOCUMENT, inner)] * 2))])
    return [document([_ID, *scalars]), *(document([_ID, one]) for one in scalars), nested, document([_ID, _ID])]


def _answer(batch: list[Any], *, stream: bool = False) -> bytes:
    token = {"_data": "8265000000000000012B0229296E04"}
    cursor: dict[str, Any] = {"firstBatch": batch, "id": bson.Int64(7), "ns": "local.oplog.rs"}
    if stream:
        cursor["postBatchResumeToken"] = token
    return bson.encode({"cursor": cursor, "ok": 1.0, "operationTime": Timestamp(1_700_000_001, 3)})


def _entry(op: str, more: dict[str, Any], number: int = 1, ns: str = "db.c") -> dict[str, Any]:
    return {"ts": Timestamp(1_700_000_000, number), "t": bson.Int64(1), "op": op, "ns": ns, "o": more}


def _event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    at = Timestamp(1_700_000_000, number)
    ns = {"db": "db", "coll": "c"}
    return {
        "_id": {"_data": f"82{at.time:08X}{at.inc:08X}2B"},
        "operationType": kind,
        "clusterTime": at,
        "ns": ns,
    } | more


def _seeds() -> list[bytes]:
    row = {"_id": 1, "a": {"e": 1}, "b": "x", "d": [{"e": 2}]}
    operations = [
        {"op": "i", "ns": "db.c", "o": row},
        {"op": "u", "ns": "db.c", "o": {"$set": {"b": 2}}, "o2": {"_id": 1}},
    ]
    nested = {"applyOps": [*operations, {"op": "c", "ns": "db.$cmd", "o": {"applyOps": operations}}]}
    entries = [
        _entry("i", row, 1),
        _entry("u", {"$v": 2, "diff": {"u": {"b": "y"}}}, 2) | {"o2": {"_id": 1}},
        _entry("d", {"_id": 1}, 3),
        _entry("n", {"msg": "periodic noop"}, 4, ""),
        _entry("c", nested, 5, "admin.$cmd"),
        _entry("c", {"commitTransaction": 1}, 6, "admin.$cmd")
        | {"prevOpTime": {"ts": Timestamp(5, 1), "t": bson.Int64(1)}},
        _entry("i", row, 7) | {"h": bson.Int64(12345), "fromMigrate": True},
    ]
    update = {
        "updatedFields": {"b": 2},
        "removedFields": ["a", "d.0"],
        "truncatedArrays": [{"field": "d", "newSize": 1}],
    }
    session = {"id": bson.Binary(bytes(16), 4), "uid": bson.Binary(bytes(32))}
    events = [
        _event("insert", 1, fullDocument=row, documentKey={"_id": 1}),
        _event("update", 2, updateDescription=update, documentKey={"_id": 1}, lsid=session, txnNumber=bson.Int64(4)),
        _event("delete", 3, documentKey={"_id": 1}, fullDocumentBeforeChange=row),
        _event("drop", 4),
    ]
    split = [
        _event("update", 5, splitEvent={"fragment": 1, "of": 2}, documentKey={"_id": 1}),
        {"_id": {"_data": "82650000000000000129"}, "splitEvent": {"fragment": 2, "of": 2}, "fullDocument": row},
    ]
    return [
        b"\x00" + _answer(entries),
        *(b"\x00" + _answer([one]) for one in entries),
        b"\x01" + _answer(events, stream=True),
        *(b"\x01" + _answer([one], stream=True) for one in events),
        b"\x01" + _answer(split),
        b"\x01" + _answer([], stream=True),
        *(b"\x02" + one for one in _documents()),
        b"\x02" + bson.encode(row),
    ]


MONGODB = Target("mongodb", _run, _seeds, _WORDS)
