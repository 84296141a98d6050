"""Typed documents are variants whose fields keep the types that BSON has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import bson
import numpy as np
import pyarrow as pa
import pytest
from bson.dbref import DBRef
from bson.regex import Regex
from bson.timestamp import Timestamp
from pyspark.sql.types import VariantVal

from tailrace.connectors.mongodb.records import typed
from tailrace.connectors.mongodb.records.images import Values
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly
from tailrace.values.fragments import text_fragment

OID = bson.ObjectId("64b5f3d2c9e77a0001a1b2c3")
SOME = UUID("12345678-1234-5678-1234-567812345678")


def buffer(*documents: bytes | None) -> tuple[Bytes, Values]:
    """Return a buffer of documents and their places in it; None stands for no document."""
    data, places = b"", []
    for one in documents:
        places.append(-1 if one is None else len(data))
        data += one or b""
    kinds = np.full(len(documents), fields.DOCUMENT, np.uint8)
    return readonly(np.frombuffer(data + b"\0", np.uint8)), Values(np.array(places, np.int64), kinds)


def shown(variants: pa.Array) -> list[Any]:
    """Return what Spark makes of variants."""
    found = variants.to_pylist()
    return [None if one is None else VariantVal(one["value"], one["metadata"]).toPython() for one in found]


def document(**given: Any) -> Any:
    return shown(typed.documents(*buffer(bson.encode(given))))[0]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param(None, None, id="null"),
        pytest.param(True, True, id="a boolean"),
        pytest.param(7, 7, id="a whole number"),
        pytest.param(bson.Int64(1 << 40), 1 << 40, id="a long number"),
        pytest.param(1.5, 1.5, id="a double"),
        pytest.param(bson.Decimal128("12.30"), Decimal("12.30"), id="a decimal"),
        pytest.param("é", "é", id="a text"),
        pytest.param(b"\x00\x01", b"\x00\x01", id="bytes"),
        pytest.param(bson.Binary(b"abc", 5), b"abc", id="bytes of a subtype"),
        pytest.param(bson.Binary.from_uuid(SOME), str(SOME), id="a UUID"),
        pytest.param(bson.Binary(b"short", 4), b"short", id="a UUID of another length is bytes"),
        pytest.param(OID, str(OID), id="an ObjectId"),
        pytest.param(datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC), id="a date"),
        pytest.param(bson.DatetimeMS(1 << 60), {"ms": 1 << 60}, id="a date beyond the year 9999"),
        pytest.param(Timestamp(5, 6), {"i": 6, "t": 5}, id="a timestamp"),
        pytest.param(Regex("^a", re.IGNORECASE | re.MULTILINE), {"options": "im", "pattern": "^a"}, id="an expression"),
        pytest.param(bson.Code("x()"), "x()", id="code"),
        pytest.param(bson.Code("x()", {"y": OID}), {"code": "x()", "scope": {"y": str(OID)}}, id="code with a scope"),
        pytest.param(bson.MinKey(), "MinKey", id="the least key"),
        pytest.param(bson.MaxKey(), "MaxKey", id="the greatest key"),
        pytest.param(DBRef("c", OID), {"$ref": "c", "$id": str(OID)}, id="a reference"),
        pytest.param([1, [OID, {"a": bson.Int64(2)}]], [1, [str(OID), {"a": 2}]], id="lists in lists"),
    ],
)
def test_a_field_has_its_type(value: Any, wanted: Any) -> None:
    found = document(v=value)["v"]
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_document_that_is_missing_is_null() -> None:
    found = typed.documents(*buffer(bson.encode({"a": 1}), None, bson.encode({})))
    assert shown(found) == [{"a": 1}, None, {}]


def test_bytes_that_are_no_utf8_are_marked_and_do_not_end_the_query() -> None:
    odd = bson.encode({"a": "xyz"}).replace(b"xyz", b"x\xffz")
    assert shown(typed.documents(*buffer(odd))) == [{"a": "x\ufffdz"}]


def test_a_malformed_document_is_an_error_with_its_place() -> None:
    fine = bson.encode({"a": 1})
    broken = bytearray(fine)
    broken[4] = 0x7E  # no type of BSON
    with pytest.raises(DecodeError, match="malformed") as caught:
        typed.documents(*buffer(fine, bytes(broken)))
    assert str(len(fine)) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [(1, 1), ("x", "x"), (OID, str(OID)), ({"a": 1, "b": "é"}, {"a": 1, "b": "é"}), (1.5, 1.5)],
)
def test_a_key_is_an_object_with_the_id_alone(key: Any, wanted: Any) -> None:
    data, documents = buffer(bson.encode({"_id": key}), None)
    places, kinds = fields.locate(data, documents.places, ("_id",))
    assert shown(typed.keys(data, Values(places[0], kinds[0]))) == [{"id": wanted}, None]


def test_a_key_that_does_not_fit_is_an_error_with_its_place() -> None:
    data = readonly(np.frombuffer(b"\xff\xff\xff\x7f", np.uint8))
    with pytest.raises(DecodeError, match="A key does not follow the BSON format"):
        typed.keys(data, Values(np.array([0], np.int64), np.array([2], np.uint8)))


def test_the_description_of_an_update_has_its_changed_fields_with_their_types() -> None:
    data, changed = buffer(bson.encode({"price": bson.Decimal128("1.10"), "by": OID}), None, bson.encode({}))
    texts: Sequence[str] = (
        '{"removedFields": ["old"], "updatedFields": "{}", "truncatedArrays": null}',
        "null",
        '{"removedFields": null, "updatedFields": "{}", "truncatedArrays": null}',
    )
    found = shown(typed.updates(data, changed, text_fragment(pa.array(texts)), None))
    assert found == [
        {
            "removedFields": ["old"],
            "updatedFields": {"price": Decimal("1.10"), "by": str(OID)},
            "truncatedArrays": None,
        },
        None,
        {"removedFields": None, "updatedFields": {}, "truncatedArrays": None},
    ]


def test_fields_are_edited_before_they_are_read() -> None:
    """The filters of fields write documents anew; the typed document is the new one."""
    data, found = buffer(bson.encode({"secret": 1}), None)
    new, places = buffer(bson.encode({"open": 2}), None)
    assert shown(typed.documents(data, found, lambda *_: (new, places.places))) == [{"open": 2}, None]
