"""Segments of changes from extended JSON, in all types of BSON, including those that no driver writes any more."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from bson import Decimal128

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue, read
from tailrace.connectors.mongodb.documents.normal import encoded
from tailrace.connectors.mongodb.records.segment import OPLOG, STREAM, Segment
from tailrace.kernels.buffers import readonly

NAMESPACE = ("inventory", "customers")


def bson(value: Any) -> tuple[int, bytes]:
    """Return type and bytes of a value in extended JSON."""
    if isinstance(value, ExtendedDocument):
        return 3, _document(value.items())
    if isinstance(value, list):
        return 4, _document((str(number), item) for number, item in enumerate(value))
    if not isinstance(value, TypedValue):
        return encoded(value)
    kind, inner = value.kind, value.value
    if kind == "decimal":
        return 19, Decimal128(inner).bid
    if kind in ("code", "symbol"):
        return (13 if kind == "code" else 14), encoded(inner)[1]
    if kind == "dbPointer":
        return 12, encoded(inner[0])[1] + bytes.fromhex(inner[1])
    if kind in ("undefined", "minKey", "maxKey"):
        return {"undefined": 6, "minKey": 255, "maxKey": 127}[kind], b""
    if kind == "scopedCode":
        body = encoded(inner[0])[1] + bson(inner[1])[1]
        return 15, struct.pack("<i", len(body) + 4) + body
    return encoded(value)


def _document(items: Iterable[tuple[str, Any]]) -> bytes:
    parts = [(name, bson(value)) for name, value in items]
    body = b"".join(bytes([kind]) + name.encode() + b"\0" + content for name, (kind, content) in parts)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def entry(op: str, key: Any, after: Any = None, patch: Any = None) -> bytes:
    """Return an entry of an oplog, of which an event shows `o` and `o2`."""
    identity = ExtendedDocument(_id=key)
    if op == "c":
        return (
            bson(ExtendedDocument(o=after))[1]
            if "_id" in after
            else bson(ExtendedDocument(o=ExtendedDocument(_id=key) | after))[1]
        )
    return bson(ExtendedDocument(o=identity if op == "d" else patch, o2=identity))[1]


def change(op: str, key: Any, **given: Any) -> bytes:
    """Return a change event with the given parts: `after`, `before`, `updated` and `removed`."""
    found = ExtendedDocument(documentKey=ExtendedDocument(_id=key), wallTime=TypedValue("date", 1558965515123))
    names = {"after": "fullDocument", "before": "fullDocumentBeforeChange"}
    for name, called in names.items():
        if given.get(name) is not None:
            found[called] = given[name]
    if given.get("updated") is not None:
        told = ExtendedDocument(updatedFields=given["updated"], removedFields=list(given.get("removed") or ()))
        found["updateDescription"] = ExtendedDocument(told, truncatedArrays=[])
    return bson(found)[1]


def segment(documents: Sequence[bytes], ops: str, kind: str) -> Segment:
    """Return a segment of such documents."""
    starts = np.cumsum([0, *map(len, documents)])[:-1].astype(np.int64)
    data = readonly(np.frombuffer(b"".join(documents) + b"\0", np.uint8))
    count = len(documents)
    time, number = np.full(count, 1558965515 << 32 | 6, np.int64), np.arange(count, dtype=np.int64)
    return Segment(NAMESPACE, kind, data, starts, time, number, np.frombuffer(ops.encode(), np.uint8))


def of_text(form: str, op: str, key: str | None, **texts: str | None) -> bytes:
    """Return the document of a change whose parts are given as texts of events."""
    parts = {name: None if text is None else read(text) for name, text in texts.items() if name != "removed"}
    if texts.get("removed"):
        parts["removed"] = texts["removed"]
    identity = None if key is None else read(key)
    return entry(op, identity, **parts) if form == "1.1" else change(op, identity, **parts)


KINDS = {"1.1": OPLOG, "3": STREAM}
