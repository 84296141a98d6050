"""Documents become blocks for tables, with the last changes of a key, and updates whose document is missing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns.blocks import Head, read
from tailrace.connectors.mongodb.documents.extended import ExtendedDocument
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.connectors.mongodb.records.segment import STREAM, Segment
from tailrace.connectors.mongodb.records.texts import unquoted
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConversionError
from tailrace.events.event_settings import EventSettings
from tests.unit.mongodb.changes import change, segment

SOURCE = {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"}
IMAGES = {"capture.mode": "change_streams_update_full", "capture.mode.full.update.type": "post_image"}


def rows(given: Segment, **options: str) -> list[tuple[Any, ...]]:
    """Return operation, key, whether there is a document, and ordinal of each row of the blocks."""
    config = parse("mongodb", {**SOURCE, "row.blocks": "last", **options})
    settings = MongoSettings.of(config, EventSettings.from_options(config, "run"), "r")
    found = []
    for batch in to_rows(given, settings):
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            head, table = Head.of(key), read(value)
            assert (head.schema, head.table, head.rows, head.snapshot) == ("inventory", "customers", len(table), "")
            found += [(row["op"], row["c0"], row["c1"] is not None, row["ordinal"]) for row in table.to_pylist()]
    return found


def document(key: Any, **fields: Any) -> ExtendedDocument:
    return ExtendedDocument(_id=key, **fields)


CHANGES = segment(
    [
        change("c", 1, after=document(1, v=1)),
        change("c", "x", after=document("x")),
        change("u", 1, after=document(1, v=2)),
        change("d", "x"),
        change("u", 2),
    ],
    "ccudu",
    STREAM,
)


def test_the_last_change_of_each_key_is_left() -> None:
    # The update's document was deleted before it could be looked up.
    assert rows(CHANGES) == [("u", "1", True, 2), ("d", '"x"', False, 3), ("d", "2", False, 4)]


def test_keys_are_what_their_json_says() -> None:
    said = ['{"$oid": "64"}', 'a"b', "a\\b", 'a\\"b', "é\n", "", '"', "\\", '\\"', "plain"]
    shown = pa.array([json.dumps(text, ensure_ascii=form) for text in said for form in (False, True)] + [None, "null"])
    assert unquoted(shown).to_pylist() == [text for text in said for _ in range(2)] + [None, None]
    assert unquoted(shown.slice(0, 4)).to_pylist() == [text for text in said[:2] for _ in range(2)]
    assert unquoted(shown.slice(0, 0)).to_pylist() == []


def test_every_change_is_there_where_documents_are_as_they_were() -> None:
    found = rows(segment([change("c", 1, after=document(1)), change("u", 1, after=document(1))], "cu", STREAM),
                 **IMAGES, **{"row.blocks": "every"})  # fmt: skip
    assert [row[0] for row in found] == ["c", "u"]


def test_an_update_without_the_document_after_it_ends_the_query() -> None:
    with pytest.raises(ConversionError, match="changeStreamPreAndPostImages"):
        rows(CHANGES, **IMAGES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capture.mode": "change_streams"}, "capture.mode = change_streams has no documents"),
        ({"capture.mode": "change_streams_with_pre_image"}, "has no documents"),
        ({"row.blocks": "every"}, "needs post_image"),
        (
            {"cursor.oversize.handling.mode": "skip", "cursor.oversize.skip.threshold": "9"},
            "cursor.oversize.handling.mode = skip would leave changes out",
        ),
    ],
)
def test_modes_without_documents_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        parse("mongodb", {**SOURCE, "row.blocks": "last", **options})
