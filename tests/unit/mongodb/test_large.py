"""Documents larger than event.max.change.bytes, as BSON or as an event, are quarantined or end the query."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.records.records import numbered_rows
from tailrace.connectors.mongodb.records.segment import read_documents
from tailrace.errors import ConversionError
from tests.unit.mongodb.test_placing import packed, settings

DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1}, {"_id": 2, "v": "x" * 9000}, {"_id": 3, "v": "\x01" * 4000}, {"_id": 4}, {"_id": 5},
]  # fmt: skip


def read(mode: str, most: str, marker: Marker = Marker.TRUE) -> tuple[list[dict[str, Any]], list[int]]:
    data, starts = packed(DOCUMENTS)
    given = settings(
        event_max_change_bytes=most, event_processing_failure_handling_mode=mode,
        key_converter_schemas_enable="false", value_converter_schemas_enable="false",
    )  # fmt: skip
    segment = read_documents(("d", "a"), data, starts, 1 << 40, 1, marker=marker)
    parts = list(numbered_rows(segment, given))
    return [row for part, _ in parts for row in part.to_pylist()], [int(n) for _, numbers in parts for n in numbers]


@pytest.mark.parametrize("marker", [Marker.TRUE, Marker.INCREMENTAL])
def test_a_large_document_is_put_aside_in_its_place(marker: Marker) -> None:
    rows, numbers = read("skip", "8000", marker)
    assert [row["op"] for row in rows] == ["r", "quarantine", "quarantine", "r", "r"]
    assert numbers == [0, 1, 2, 3, 4]
    for row in rows[1:3]:
        value = json.loads(row["value"])
        assert (value["table"], value["op"], value["message"]) == ("d.a", "r", "")
        assert value["reason"] == "the change is larger than event.max.change.bytes"
        assert row["snapshot"] == marker.name.lower()


def test_the_error_names_collection_size_position_and_remedy() -> None:
    with pytest.raises(ConversionError) as caught:
        read("fail", "8000")
    assert caught.value.message.startswith("A change of d.a has 90")
    for part in ("more than the 8000 that event.max.change.bytes allows, at 256:0, change 2 of", "spark.driver.memory"):
        assert part in str(caught.value)


def test_no_limit_delivers_all() -> None:
    assert [row["op"] for row in read("fail", "0")[0]] == ["r"] * 5
