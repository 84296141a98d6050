"""Answers of a broken or malicious server are DecodeErrors, whatever is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import bson
import numpy as np
import pytest
from bson.timestamp import Timestamp

from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings, token_time
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.oplog import OplogFeed
from tailrace.connectors.mongodb.records.images import Values
from tailrace.connectors.mongodb.records.texts import update_descriptions
from tailrace.connectors.mongodb.server import raw
from tailrace.connectors.mongodb.values import extended_json, fields
from tailrace.connectors.mongodb.values import extended_json as kernels
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.connectors.registry import parse
from tailrace.errors import DecodeError
from tests.fuzz.guarded import Guarded
from tests.unit.mongodb.bson_bytes import document, text

GUARDED = Guarded()
AT = Timestamp(1_700_000_000, 1)
ENTRY = {"ts": AT, "op": "i", "ns": "d.c", "o": {"_id": 1}}
EVENT = {"_id": {"_data": "82"}, "operationType": "insert", "clusterTime": AT, "ns": {"db": "d", "coll": "c"}}


def answer(*batch: Any, **cursor: Any) -> bytes:
    return bson.encode({"cursor": {"firstBatch": list(batch), "id": bson.Int64(1), "ns": "d.c"} | cursor})


def namespaces() -> Namespaces:
    given = {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"}
    return Namespaces(CollectionFilter(parse("mongodb", given)))


def oplog(content: bytes) -> None:
    feed: Any = OplogFeed(None, namespaces())  # type: ignore[arg-type]
    list(feed._read(raw.read_answer(GUARDED.copy(content))[0]))


def stream(content: bytes) -> None:
    feed: Any = ChangeStreamFeed(None, namespaces(), StreamSettings())  # type: ignore[arg-type]
    feed._run(raw.read_answer(GUARDED.copy(content))[0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05",
        bson.encode({"ok": 1}),
        bson.encode({"cursor": 5}),
        bson.encode({"cursor": {}}),
        bson.encode({"cursor": {"firstBatch": [], "ns": "d.c"}}),
        bson.encode({"cursor": {"firstBatch": [], "id": "seven", "ns": "d.c"}}),
        answer(5),
        answer("text"),
        answer(firstBatch={"a": 1}),
        answer(ENTRY)[:-3],
    ],
)
def test_an_answer_without_a_batch_of_documents_is_a_decode_error(content: bytes) -> None:
    with pytest.raises(DecodeError):
        raw.read_answer(GUARDED.copy(content))


def test_a_namespace_that_is_not_utf_8_is_read_all_the_same() -> None:
    content = answer(ns="local.zz").replace(b"zz", b"\xff\xfe")
    assert raw.read_answer(GUARDED.copy(content))[2] == "local.\ufffd\ufffd"


@pytest.mark.parametrize(
    "entry",
    [{"op": "i"}, {**ENTRY, "ts": 5}, {**ENTRY, "ts": "x"}, {**ENTRY, "op": 5}, {"ts": AT}, {**ENTRY, "op": None}],
)
def test_an_entry_of_the_oplog_without_time_or_operation_is_a_decode_error(entry: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        oplog(answer(entry))


@pytest.mark.parametrize(
    "event",
    [
        {**EVENT, "_id": 5},
        {name: value for name, value in EVENT.items() if name != "_id"},
        {**EVENT, "ns": {}},
        {**EVENT, "ns": {"db": 5}},
        {**EVENT, "ns": "d.c"},
        {**EVENT, "clusterTime": 5},
        {**EVENT, "operationType": 5},
        {**EVENT, "splitEvent": 5},
    ],
)
def test_a_change_event_without_what_it_needs_is_a_decode_error(event: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        stream(answer(event))


@pytest.mark.parametrize("token", [b"", b"\x05\0\0\0", b"\x05\0\0\0\x01", bson.encode({"_data": "8"})[:-1]])
def test_a_token_that_is_no_document_is_a_decode_error(token: bytes) -> None:
    with pytest.raises(DecodeError):
        token_time(token)


@pytest.mark.parametrize("place", [-1, 0, 1, 2, 3])
def test_nothing_behind_an_answer_is_read(place: int) -> None:
    """The buffer ends at the end of mapped memory, so that a read beyond it crashes."""
    with pytest.raises(DecodeError):
        fields.elements(GUARDED.copy(b"\x04\0\0\0"), place)


@pytest.mark.parametrize(
    "update",
    [
        {"removedFields": [5]},
        {"removedFields": [None]},
        {"truncatedArrays": [5]},
        {"truncatedArrays": [{}]},
        {"truncatedArrays": [{"field": 5, "newSize": 1}]},
    ],
)
def test_an_update_description_of_other_things_is_a_decode_error(update: dict[str, Any]) -> None:
    data = GUARDED.copy(bson.encode({"updatedFields": {}} | update))
    places, kinds = fields.locate(data, np.zeros(1, np.int64), ("updatedFields", "removedFields", "truncatedArrays"))
    with pytest.raises(DecodeError):
        update_descriptions(data, *(Values(places[row], kinds[row]) for row in range(3)))


@pytest.mark.parametrize("kind", [fields.STRING, fields.CODE, fields.SYMBOL, fields.DB_POINTER])
def test_a_text_without_its_zero_byte_is_found_where_it_stands(kind: int) -> None:
    damaged = document([("a", kind, bytes(4) + bytes(12))])
    with pytest.raises(DecodeError):
        fields.locate(GUARDED.copy(damaged), np.zeros(1, np.int64), ("a",))


def colliding(count: int, secret: int) -> list[str]:
    """Return names that all fall into a few neighbouring slots of the table of names, for a known secret."""
    numbers = np.arange(count * 320)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    mixed = np.full(len(numbers), secret, np.uint32)
    for place in range(5):
        mixed = (mixed ^ digits[numbers >> 4 * (4 - place) & 15]) * np.uint32(16_777_619)
    slots = (mixed ^ mixed >> np.uint32(15)) & np.uint32(kernels.SLOTS - 1)
    return [f"{number:05x}" for number in numbers[slots < 64][:count].tolist()]


def test_names_that_meet_in_few_slots_are_left_to_the_plain_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can choose such names without the secret; if they occur all the same, the search for a slot ends."""
    serials, names = extended_json._seen()
    secret = int(serials[kernels.SLOTS + 1])
    content = document((name, fields.STRING, text("x")) for name in colliding(900, secret))
    data = GUARDED.copy(content)
    plain: list[int] = []

    def watched(*given: Any) -> str:
        plain.append(1)
        return plain_text(*given)

    monkeypatch.setattr(extended_json, "plain_text", watched)
    found = extended_json.json_texts(data, np.zeros(1), np.array([fields.DOCUMENT]), forms.STRICT, False)
    assert json.loads(found.data.tobytes()) == dict.fromkeys(colliding(900, secret), "x")
    assert plain
    # With another secret they are names like others.
    plain.clear()
    serials[kernels.SLOTS + 1] = secret ^ 0x5BD1_E995
    try:
        again = extended_json.json_texts(data, np.zeros(1), np.array([fields.DOCUMENT]), forms.STRICT, False)
    finally:
        serials[kernels.SLOTS + 1] = secret
    assert again.data.tobytes() == found.data.tobytes()
    assert not plain
    assert len(names) == kernels.SLOTS
