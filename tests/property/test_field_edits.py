"""field.exclude.list and field.renames, compiled, equal the plain way on the JSON of events."""

from __future__ import annotations

from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.field_filters import FieldFilter, field_filter, filtered
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.errors import ConversionError, DecodeError

NAMES = st.sampled_from(["a", "b", "c", "d", "0"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(".".join)
SCALARS = st.sampled_from([1, "text", None, True, 2.5, b"\0\1"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(NAMES, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5)
KEYED = st.dictionaries(PATHS, VALUES, max_size=5)
ENTRIES = (
    st.fixed_dictionaries({"$set": KEYED | SCALARS}, optional={"$unset": KEYED, "$v": SCALARS, "a": VALUES})
    | st.fixed_dictionaries({"$unset": KEYED})
    | DOCUMENTS
)
METHODS = {"document": DOCUMENTS, "changed": KEYED, "entry": ENTRIES}
COLUMNS = {"document": "documents", "changed": "changes", "entry": "entries"}


def filters() -> st.SearchStrategy[FieldFilter | None]:
    excluded = st.lists(PATHS.map("db.c.{}".format), max_size=3)
    renamed = st.lists(st.tuples(PATHS, st.sampled_from(["x", "longer", "b", "d"])), max_size=2)
    return st.tuples(excluded, renamed).map(
        lambda both: field_filter(both[0], [f"db.c.{path}:{new}" for path, new in both[1]], "db", "c")
    )


def texts(data: Any, places: Any) -> list[str | None]:
    content = data.tobytes()
    return [
        None if place < 0 else plain_text(content, fields.DOCUMENT, place, forms.STRICT) for place in places.tolist()
    ]


@pytest.mark.parametrize("method", list(METHODS))
@settings(deadline=None)
@given(chosen=filters(), rows=st.data())
def test_a_column_equals_its_documents_one_by_one(method: str, chosen: FieldFilter | None, rows: st.DataObject) -> None:
    if chosen is None:
        return
    documents = rows.draw(st.lists(st.none() | METHODS[method], max_size=4))
    encoded = [b"\0" if document is None else bson.encode(document) for document in documents]
    places = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    kinds = np.array([0 if document is None else fields.DOCUMENT for document in documents], np.uint8)
    data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    data.flags.writeable = False
    try:
        wanted = texts(*filtered(data, places, kinds, getattr(chosen, method)))
    except ConversionError:
        with pytest.raises(ConversionError):
            getattr(chosen, COLUMNS[method])(data, places, kinds)
        return
    assert texts(*getattr(chosen, COLUMNS[method])(data, places, kinds)) == wanted


@pytest.mark.parametrize("method", list(METHODS))
@settings(deadline=None)
@given(
    content=st.binary(min_size=1, max_size=60) | DOCUMENTS.map(bson.encode),
    cut=st.integers(0, 60),
    byte=st.integers(0, 255),
)
def test_bytes_that_are_no_document_are_found_out(method: str, content: bytes, cut: int, byte: int) -> None:
    chosen = field_filter(["db.c.a.b", "db.c.b"], ["db.c.c:x"], "db", "c")
    assert chosen is not None
    broken = bytearray(content)
    broken[min(cut, len(broken) - 1)] = byte
    data = np.frombuffer(bytes(broken), np.uint8)
    try:
        fields.locate(data, np.zeros(1, np.int64), ("a",))
    except DecodeError:
        # Bytes that are not a document do not reach this step.
        return
    try:
        made, found = getattr(chosen, COLUMNS[method])(
            data, np.zeros(1, np.int64), np.array([fields.DOCUMENT], np.uint8)
        )
    except (ConversionError, DecodeError):
        return
    assert found[0] == 0
    assert int(fields.load(made, 0)) <= len(made)


def test_most_rules_are_compiled() -> None:
    """Otherwise the property above would compare the plain way with itself."""
    chosen = field_filter(["db.c.a.b", "db.c.b", "db.c.d.a"], ["db.c.d:x", "db.c.e.f:g"], "db", "c")
    assert chosen is not None
    assert chosen.table is not None
    other = field_filter([], ["db.c.a:b", "db.c.b:c"], "db", "c")
    assert other is not None
    assert other.table is None
