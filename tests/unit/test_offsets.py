"""Offsets that no version has written are reported as a lost position, for every connector."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.errors import PositionLost

POSITION = {"commit": "0/1", "end": "0/2"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (PostgresOffset, {}),
        (PostgresOffset, {"log": None}),
        (PostgresOffset, {"log": {"commit": "x", "end": "0/2"}}),
        (PostgresOffset, {"log": {"commit": 5, "end": "0/2"}}),
        (PostgresOffset, {"log": POSITION, "visible": "1:2"}),
        (PostgresOffset, {"log": POSITION, "schemas": "z:AAAA"}),
        (PostgresOffset, {"log": POSITION, "schemas": "["}),
        (PostgresOffset, {"log": POSITION, "snapshot": {}}),
        (PostgresOffset, {"log": POSITION, "server": []}),
        (PostgresOffset, {"log": POSITION, "progress": {"positions": [1]}}),
        (MongoOffset, {}),
        (MongoOffset, {"log": {"time": [1], "number": 1}}),
        (MongoOffset, {"log": {"time": ["1", 2], "number": 1}}),
        (MongoOffset, {"log": {"time": [1, 2], "number": 1}, "transaction": {}}),
        (TablesOffset, {}),
        (TablesOffset, {"databases": {"d": {"commit": "xx", "eras": ""}}}),
        (TablesOffset, {"databases": {"d": {"commit": "00", "eras": "AAAA"}}}),
        (TablesOffset, {"databases": [], "snapshot": 5}),
    ],
)
def test_an_offset_that_is_not_understood_is_a_lost_position(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(PositionLost, match="not understood"):
        kind.from_json(fields)


@pytest.mark.parametrize("offset", [PostgresOffset(), MongoOffset(), TablesOffset()])
def test_an_offset_is_read_as_it_was_written(offset: Any) -> None:
    assert type(offset).from_json(offset.to_json()) == offset
