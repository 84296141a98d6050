"""Documents handled by their shapes give the same records as the plain transform of single events."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.connectors.mongodb.documents.options import unwrap
from tailrace.connectors.mongodb.documents.state import extract_new_document_state
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.connectors.mongodb.records.segment import OPLOG, STREAM, Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import ConversionError, DecodeError
from tests.extent import examples
from tests.property.plain_unwrap import Schemas, Unwrapping
from tests.property.test_extended_json import _SCALARS
from tests.unit.mongodb.bson_bytes import array, document, scoped
from tests.unit.mongodb.changes import segment
from tests.unit.mongodb.test_placing import settings as mongodb_settings

Value = tuple[int, bytes]
_NAMES = st.sampled_from(["a", "b", "c", "é", "1x", "s p", "a.b", "$date", "$oid", "$ref", "$numberLong", "_id", "id"])
_COMMON = st.one_of(
    st.sampled_from([1, -1, 7]).map(lambda value: (fields.INT32, struct.pack("<i", value))),
    st.sampled_from([5, -(2**31), 2**31, -(2**40)]).map(lambda value: (fields.INT64, struct.pack("<q", value))),
    st.sampled_from([b"x", b"5", b"\x01y", "é\U0001f600".encode(), b"\xff"]).map(
        lambda text: (fields.STRING, struct.pack("<i", len(text) + 1) + text + b"\0")
    ),
    st.just((fields.NULL, b"")),
    st.just((fields.OBJECT_ID, bytes(range(12)))),
)
_LEAVES = st.one_of(_COMMON, _COMMON, _SCALARS.filter(lambda value: value[0] != fields.DB_POINTER))


def _documents(values: st.SearchStrategy[Value], most: int = 4) -> st.SearchStrategy[bytes]:
    return st.lists(st.tuples(_NAMES, values).map(lambda pair: (pair[0], *pair[1])), max_size=most).map(document)


_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just(fields.DOCUMENT), _documents(inner)),
        st.tuples(st.just(fields.ARRAY), st.lists(inner, max_size=3).map(array)),
        st.tuples(st.just(fields.SCOPED_CODE), st.builds(scoped, _NAMES, _documents(inner))),
    ),
    max_leaves=6,
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "array.encoding": st.sampled_from(["array", "document"]),
        "flatten.struct": st.sampled_from(["true", "false"]),
        "flatten.struct.delimiter": st.just("."),
        "add.fields": st.just("op,source.ord:place,source.snapshot"),
        "add.headers": st.just("op,source.collection"),
    },
)
_BY_FORM = {
    "1.1": st.fixed_dictionaries(
        {},
        optional={
            "delete.handling.mode": st.sampled_from(["drop", "rewrite", "none"]),
            "drop.tombstones": st.sampled_from(["true", "false"]),
            "operation.header": st.just("true"),
            "sanitize.field.names": st.just("true"),
        },
    ),
    "3": st.fixed_dictionaries(
        {},
        optional={
            "delete.tombstone.handling.mode": st.sampled_from(
                ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
            ),
            "delete.tombstone.handling.mode.rewrite-with-id": st.just("true"),
        },
    ),
}


@st.composite
def batches(draw: Callable[..., Any]) -> tuple[str, dict[str, str], Segment, MongoSettings]:
    """Draw a form, options, changes in that form, and the settings without the transform."""
    form = draw(st.sampled_from(["1.1", "3"]))
    options = draw(_OPTIONS) | draw(_BY_FORM[form])
    make = _entry if form == "1.1" else _change
    whole = st.lists(_documents(_VALUES), min_size=1, max_size=3)
    shared = draw(whole)
    changes = [make(draw, shared) for _ in range(draw(st.integers(1, 6)))]
    enabled = draw(st.booleans())
    given = {f"{part}_converter_schemas_enable": str(enabled).lower() for part in ("key", "value", "header")}
    given |= {"event_format": "1.1", "capture_mode": "oplog"} if form == "1.1" else {}
    kind = OPLOG if form == "1.1" else STREAM
    found = segment([body for _, body in changes], "".join(op for op, _ in changes), kind)
    return form, options, found, mongodb_settings(**given)


def _change(draw: Callable[..., Any], shared: list[bytes]) -> tuple[str, bytes]:
    """Draw a change event of a stream."""
    op = draw(st.sampled_from("ccuud"))
    parts = [("documentKey", fields.DOCUMENT, document([("_id", *draw(_VALUES))]))]
    if op == "c" or draw(st.booleans()):
        parts.append(("fullDocument", fields.DOCUMENT, draw(st.sampled_from(shared))))
    if op == "d" and draw(st.booleans()):
        parts.append(("fullDocumentBeforeChange", fields.DOCUMENT, draw(st.sampled_from(shared))))
    if op == "d":
        parts = [part for part in parts if part[0] != "fullDocument"]
    if op == "u" and draw(st.booleans()):
        updated = ("updatedFields", fields.DOCUMENT, draw(st.sampled_from(shared)))
        parts.append(("updateDescription", fields.DOCUMENT, document([updated, ("removedFields", 4, array([]))])))
    return op, document(parts)


def _entry(draw: Callable[..., Any], shared: list[bytes]) -> tuple[str, bytes]:
    """Draw an entry of an oplog."""
    op = draw(st.sampled_from("ccuud"))
    identity = ("_id", *draw(_LEAVES.filter(lambda value: value[0] not in (fields.REGEX, fields.TIMESTAMP))))
    of = draw(st.sampled_from(shared))
    if op == "c":
        return op, document([("o", fields.DOCUMENT, _with(identity, of))])
    if op == "d":
        return op, document([("o", fields.DOCUMENT, document([identity]))])
    patch = [("$v", fields.INT32, b"\1\0\0\0"), ("$set", fields.DOCUMENT, of)]
    if draw(st.booleans()):
        patch.append(("$unset", fields.DOCUMENT, document([("u.v", fields.BOOLEAN, b"\1")])))
    whole = draw(st.booleans())
    body = _with(identity, of) if whole else document(patch)
    return op, document([("o", fields.DOCUMENT, body), ("o2", fields.DOCUMENT, document([identity]))])


def _with(identity: tuple[str, int, bytes], of: bytes) -> bytes:
    """Return a document with `_id` before its other fields."""
    first = document([identity])
    body = first[4:-1] + of[4:-1]
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _rows(found: Segment, chosen: MongoSettings) -> list[dict[str, Any]] | str:
    try:
        return [row for part in to_rows(found, chosen) for row in part.to_pylist()]
    except (ConversionError, DecodeError):
        return "error"


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches())
def test_records_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, batch: tuple[str, dict[str, str], Segment, MongoSettings]
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_558_965_516_000_000_000)
    form, options, found, chosen = batch
    transform = extract_new_document_state(options).in_form(form)
    plain, faults = unwrap(options, form)
    assert plain is not None, faults
    schemas = chosen.events.value_schemas_enable
    wanted: Any = "error"
    try:
        made = Unwrapping(plain, Schemas(schemas, schemas, schemas))(list(to_rows(found, chosen)))
        wanted = [row for part in made for row in part.to_pylist()]
    except (ConversionError, DecodeError):
        pass
    got = _rows(found, replace(chosen, events=replace(chosen.events, transforms=(transform,))))
    assert got == wanted
