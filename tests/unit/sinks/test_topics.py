"""`topic.creation.*` defines groups of topics as in Kafka Connect."""

from __future__ import annotations

import logging

import pytest

from tailrace import sinks
from tailrace.columns.row import PLACES
from tailrace.config.transforms import KNOWN
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.pipeline import read_columns
from tailrace.sinks.topics import groups, named

OPTIONS = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
DEFAULT = {"default.replication.factor": "3", "default.partitions": "10"}


def config(creation: dict[str, str]) -> dict[str, str]:
    return OPTIONS | {f"topic.creation.{name}": text for name, text in creation.items()}


def test_groups_have_what_they_name_and_the_rest_of_the_default() -> None:
    own = {
        "groups": "logs, compacted",
        "logs.include": "p\\.logs\\..*,p[.]more",
        "logs.exclude": "p\\.logs\\.old-.*",
        "logs.partitions": "20",
        "logs.retention.ms": "7776000000",
        "compacted.include": "p\\..*",
        "compacted.replication.factor": "-1",
        "compacted.cleanup.policy": "compact,delete",
        "default.compression.type": "lz4",
    }
    found = groups(parse("postgres", config(DEFAULT | own)))
    logs, compacted, default = found
    assert [group.name for group in found] == ["logs", "compacted", "default"]
    assert (logs.partitions, logs.replication, logs.settings) == (20, 3, {"retention.ms": "7776000000"})
    assert (compacted.partitions, compacted.replication) == (10, -1)
    assert compacted.settings == {"cleanup.policy": "compact,delete"}
    assert (default.partitions, default.replication, default.settings) == (10, 3, {"compression.type": "lz4"})

    def group_of(topic: str) -> str:
        return next(group.name for group in found if group.has(topic))

    assert group_of("p.logs.a") == "logs"
    assert group_of("p.more") == "logs"
    assert group_of("p.logs.old-a") == "compacted"
    assert group_of("xp.logs.a") == "default"


def test_without_options_nothing_is_made() -> None:
    assert groups(parse("postgres", OPTIONS)) == ()
    assert [group.name for group in groups(parse("postgres", config(DEFAULT)))] == ["default"]


@pytest.mark.parametrize(
    ("creation", "words"),
    [
        ({"default.partitions": "1"}, r"topic\.creation\.default\.replication\.factor is missing"),
        ({"default.replication.factor": "1"}, r"topic\.creation\.default\.partitions is missing"),
        ({"groups": "a", "a.include": ".*"}, r"default\.\S+ is missing"),
        (DEFAULT | {"groups": "a"}, r"topic\.creation\.a\.include is missing"),
        (DEFAULT | {"a.include": ".*"}, r"topic\.creation\.a\.include belongs to no group"),
        (DEFAULT | {"default.partitions": "0"}, "must be at least 1, or -1"),
        (DEFAULT | {"default.replication.factor": "many"}, "must be at least 1, or -1"),
        (DEFAULT | {"default.include": ".*"}, r"default\.include and .* are not supported"),
        (DEFAULT | {"groups": "a", "a.include": "("}, r"topic\.creation\.a\.include holds an expression"),
    ],
)
def test_what_kafka_connect_refuses_is_refused(creation: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sinks.open("kafka", {"producer.bootstrap.servers": "h:1"}, parse("postgres", config(creation)))


def test_another_sink_says_that_it_makes_no_topics(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        sinks.open("noop", {}, parse("postgres", config(DEFAULT)))
        sinks.open("http", {"url": "http://h"}, parse("postgres", config(DEFAULT)))
    assert [record.getMessage() for record in caplog.records] == [
        "topic.creation.* has no effect: the sink noop makes no topics",
        "topic.creation.* has no effect: the sink http makes no topics",
    ]


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({}, ()),
        ({"table.field.event.timestamp": "at"}, ("timestamp",)),
        ({"table.fields.additional.placement": "shard:partition"}, ("partition",)),
    ],
)
def test_a_pipeline_asks_for_the_places_that_an_outbox_names(options: dict[str, str], places: tuple[str, ...]) -> None:
    router = KNOWN.load("io.debezium.transforms.outbox.EventRouter")(options)
    sink = sinks.open("kafka", {"producer.bootstrap.servers": "h:1"})
    assert tuple(name for name in read_columns(sink, [router]) if name in PLACES) == places


@pytest.mark.parametrize("name", ["a", "p.s.t", "A-b_c.9", "x" * 249, "...", "..a"])
def test_names_that_kafka_takes(name: str) -> None:
    assert named(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "data:x", "x" * 250, "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    fault = named(name)
    assert fault is not None
    assert repr(name) in fault.message
