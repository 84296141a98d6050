"""Commands on whole collections are logged once, with the remedy, from both kinds of log."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Timestamp

from tailrace.connectors.mongodb.log.commands import Commands
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter
from tailrace.connectors.registry import parse

AT = Timestamp(100, 1)


def told(caplog: pytest.LogCaptureFixture, event: dict[str, Any] | None = None, entry: Any = None) -> list[str]:
    """Return the messages for an event or an entry that comes twice, where `shop.a` and `shop.b` are captured."""
    config = parse(
        "mongodb",
        {"mongodb.connection.string": "mongodb://h/", "topic.prefix": "p", "collection.include.list": r"shop[.][ab]"},
    )
    commands = Commands(CollectionFilter(config))
    caplog.clear()
    for _ in range(2):
        if event is not None:
            commands.event(bson.encode({"clusterTime": AT, **event}))
        else:
            commands.entry(bson.encode({"ts": AT, "op": "c", "ns": "shop.$cmd", "o": entry}))
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("event", "entry", "said"),
    [
        ({"operationType": "drop", "ns": {"db": "shop", "coll": "a"}}, {"drop": "a"}, ["shop.a was dropped"]),
        ({"operationType": "drop", "ns": {"db": "shop", "coll": "z"}}, {"drop": "z"}, []),
        ({"operationType": "dropDatabase", "ns": {"db": "shop"}}, {"dropDatabase": 1}, ["the database shop"]),
        (
            {"operationType": "rename", "ns": {"db": "shop", "coll": "a"}, "to": {"db": "shop", "coll": "b"}},
            {"renameCollection": "shop.a", "to": "shop.b", "dropTarget": True},
            ["shop.a was renamed to shop.b: copies of it", "shop.a was renamed to shop.b: the log does not bring"],
        ),
        (
            {"operationType": "rename", "ns": {"db": "shop", "coll": "a"}, "to": {"db": "shop", "coll": "z"}},
            {"renameCollection": "shop.a", "to": "shop.z"},
            ["shop.a was renamed to shop.z: copies of it"],
        ),
        (
            {"operationType": "rename", "ns": {"db": "tmp", "coll": "x"}, "to": {"db": "shop", "coll": "a"}},
            {"renameCollection": "tmp.x", "to": "shop.a"},
            ["tmp.x was renamed to shop.a: the log does not bring"],
        ),
        ({"operationType": "invalidate"}, {"create": "a"}, []),
        (None, {"convertToCapped": "a", "size": 100}, ["shop.a was altered by convertToCapped"]),
    ],
)
def test_each_command_is_told_once(
    caplog: pytest.LogCaptureFixture, event: dict[str, Any] | None, entry: Any, said: list[str]
) -> None:
    found = [told(caplog, entry=entry)] + ([] if event is None else [told(caplog, event)])
    for sentences in found:
        assert len(sentences) == len(said)
        for sentence, beginning in zip(sentences, said, strict=True):
            assert sentence.startswith(beginning)
            assert "remedy:" in sentence
