"""The options of the MongoDB connector: generations, rules between them, and refusals with their reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bson import json_util

from tailrace.config import Config
from tailrace.connectors.mongodb.rules import replica_set
from tailrace.connectors.registry import from_entries, parse, table
from tailrace.errors import ConfigError

STRING = "mongodb://localhost:27017/?replicaSet=rs0"
OLD = {"mongodb.hosts": "rs0/localhost:27017", "mongodb.name": "fulfillment"}
NEW = {"mongodb.connection.string": STRING, "topic.prefix": "fulfillment"}


def faults(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse("mongodb", options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "form", "mode"),
    [
        (OLD, "1.1", "oplog"),
        (NEW, "3", "change_streams_update_full"),
        ({"mongodb.connection.string": STRING, "name": "a"}, "1.1", "oplog"),
        (OLD | {"event.format": "3"}, "3", "change_streams_update_full"),
        (NEW | {"event.format": "1.1"}, "1.1", "oplog"),
        (NEW | {"capture.mode": "CHANGE_STREAMS"}, "3", "change_streams"),
    ],
)
def test_the_generation_decides_the_format_and_what_is_read(options: dict[str, str], form: str, mode: str) -> None:
    read = parse("mongodb", options)
    assert (read.event_format, read["capture.mode"]) == (form, mode)
    assert parse("mongodb", read.texts).typed == read.typed


def test_names_of_1x_mean_those_of_today() -> None:
    read = parse(
        "mongodb",
        OLD
        | {
            "database.whitelist": "a,b",
            "collection.blacklist": r"a\.c",
            "field.blacklist": "a.c.d.e,*.c.f",
            "snapshot.mode": "never",
            "heartbeat.topics.prefix": "beat",
        },
    )
    assert read.logical_name == "fulfillment"
    assert read["database.include.list"] == ["a", "b"]
    assert read["collection.exclude.list"] == [r"a\.c"]
    assert read["field.exclude.list"] == ["a.c.d.e", "*.c.f"]
    assert read["snapshot.mode"] == "no_data"
    assert read["topic.heartbeat.prefix"] == "beat"
    assert any("database.whitelist is the older name" in notice for notice in read.notices)


def test_operations_that_are_skipped_differ_by_generation() -> None:
    assert parse("mongodb", OLD)["skipped.operations"] == frozenset()
    assert parse("mongodb", NEW)["skipped.operations"] == frozenset("t")
    assert parse("mongodb", OLD | {"skipped.operations": "u,d"})["skipped.operations"] == frozenset("ud")


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("rs0/a:1", ("rs0", "a:1")),
        ("rs0/a:1,b,[::1]:3", ("rs0", "a:1,b,[::1]:3")),
        ("a", ("", "a")),
    ],
)
def test_hosts_name_a_replica_set(hosts: str, found: tuple[str, str]) -> None:
    assert replica_set(parse("mongodb", OLD | {"mongodb.hosts": hosts})["mongodb.hosts"]) == found


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic.prefix": "a"}, "mongodb.connection.string is missing (mongodb.hosts in 1.x)"),
        ({"mongodb.hosts": "rs0/a:1"}, "topic.prefix is missing (mongodb.name in 1.x)"),
        (OLD | {"mongodb.hosts": "rs0/a:1;rs1/b:1"}, "names several replica sets"),
        (OLD | {"mongodb.hosts": "rs0/user@a"}, "must be name/host:port"),
        (OLD | {"mongodb.hosts": "rs0/a,b", "mongodb.members.auto.discover": "false"}, "needs one server"),
        (NEW | {"mongodb.connection.string": "http://x"}, "must begin with mongodb://"),
        (NEW | {"mongodb.password": "x"}, "without mongodb.user"),
        (NEW | {"mongodb.ssl.truststore.type": "JKS"}, "keytool"),
        (NEW | {"mongodb.ssl.truststore": "/x"}, "mongodb.ssl.truststore needs mongodb.ssl.enabled = true"),
        (NEW | {"mongodb.authentication.class": "a.B"}, "no Java plug-ins are loaded"),
        (NEW | {"connect.backoff.max.delay.ms": "5"}, "needs connect.max.attempts"),
        (NEW | {"capture.mode": "oplog"}, "capture.mode = oplog needs event.format = 1.1"),
        (OLD | {"capture.mode": "change_streams"}, "needs event.format = 3"),
        (OLD | {"cursor.pipeline": "[]"}, "cursor.pipeline needs a capture.mode that reads change streams"),
        (NEW | {"capture.mode": "change_streams", "capture.mode.full.update.type": "post_image"}, "with update_full"),
        (NEW | {"capture.target": "a"}, "capture.target needs capture.scope"),
        (NEW | {"capture.scope": "database"}, "capture.scope = database needs capture.target"),
        (NEW | {"capture.scope": "collection", "capture.target": "a"}, "must be database.collection"),
        (NEW | {"capture.scope": "database", "capture.target": "a.b"}, "must be a database"),
        (NEW | {"cursor.pipeline": "{}"}, "must be a JSON array of stages"),
        (NEW | {"cursor.pipeline": "[{'$match': 1}"}, "is not JSON"),
        (NEW | {"cursor.pipeline": "[{$match: f(1)}]"}, "calls f, which is not known here"),
        (NEW | {"cursor.pipeline.order": "user_only"}, "needs cursor.pipeline"),
        (NEW | {"cursor.oversize.handling.mode": "skip"}, "needs cursor.oversize.skip.threshold"),
        (NEW | {"cursor.oversize.skip.threshold": "9"}, "needs cursor.oversize.handling.mode = skip"),
        (
            NEW
            | {
                "cursor.oversize.handling.mode": "skip",
                "cursor.oversize.skip.threshold": "9",
                "cursor.pipeline": "[]",
                "cursor.pipeline.order": "user_only",
            },
            "is a stage that cursor.pipeline.order = user_only leaves out",
        ),
        (NEW | {"field.exclude.list": "a.b"}, "must list database.collection.field"),
        (NEW | {"field.renames": "a.b.c"}, "must list database.collection.field:name"),
        (NEW | {"field.renames": "a.b.c:d.e"}, "must list database.collection.field:name"),
        (NEW | {"database.include.list": "a", "database.exclude.list": "b"}, "exclude each other"),
        (NEW | {"collection.include.list": "a("}, "is not a regular expression"),
        (NEW | {"json.serialization.mode": "relaxed"}, "Debezium 3.6, which has no other"),
        (NEW | {"topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy"}, "would share one topic"),
        (NEW | {"snapshot.mode": "custom"}, "no Java plug-ins are loaded"),
        (NEW | {"snapshot.collection.filter.overrides": "a.b"}, "snapshot.collection.filter.overrides.a.b is missing"),
        (NEW | {"snapshot.collection.filter.overrides.a.b": "{}"}, "does not list it"),
        (NEW | {"signal.data.collection": "signals"}, "database.collection"),
        (OLD | {"signal.data.collection": "a.signals"}, "signal.data.collection needs event.format = 3"),
        (NEW | {"source.struct.version": "v1"}, "source.struct.version = v1 needs event.format = 1.1"),
        (NEW | {"mongodb.include.collection.list": "a"}, "mongodb.include.collection.list is not an option"),
        (NEW | {"mongodb.nmae": "a"}, "the nearest is mongodb.name"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], reason: str) -> None:
    assert reason in faults(options)


def test_names_need_not_be_expressions_where_they_are_taken_as_they_are() -> None:
    assert parse("mongodb", NEW | {"filters.match.mode": "literal", "collection.include.list": "a.b("})


def test_the_connection_string_is_never_shown() -> None:
    hidden = NEW | {"mongodb.connection.string": "mongodb://me:hunter2@x/", "mongodb.ssl.keystore.password": "hunter3"}
    assert "hunter" not in repr(parse("mongodb", hidden))
    assert "hunter" not in faults(hidden | {"mongodb.connection.string": "http://me:hunter2@x/"})


def test_every_option_of_both_generations_has_a_row() -> None:
    names = (Path(__file__).parent / "debezium-options-mongodb.txt").read_text().split()
    assert len(names) > 130
    rows = table("mongodb")
    known = {spelling.lower() for o in rows for spelling in (o.name, *o.aliases, *o.deprecated_names)}
    assert [name for name in names if name.lower() not in known and not any(o.matches(name) for o in rows)] == []


def test_defaults_pass_their_own_checks_and_may_be_given() -> None:
    for option in table("mongodb"):
        default = option.default
        if default is None or option.pattern:
            continue
        assert not option.choices or default in option.choices, option.name
        assert option.check is None or not option.check(default), option.name
        text = ",".join(sorted(default)) if isinstance(default, list | frozenset) else str(default)
        # Without options that depend on others.
        if text and not option.name.startswith(("connect.backoff", "topic.key", "mongodb.password.command")):
            parse("mongodb", NEW | {option.name: text.lower() if isinstance(default, bool) else text})


def test_files_name_the_connector_by_its_class() -> None:
    given = {"connector.class": "io.debezium.connector.mongodb.MongoDbConnector", **OLD}
    read: Config = from_entries(given).source
    assert read.connector == "mongodb"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("field.name.adjustment.mode", "avro"),
        ("event.converting.failure.handling.mode", "fail"),
        ("mongodb.poll.interval.ms", "5"),
        ("skip.messages.without.change", "true"),
    ],
)
def test_what_has_no_effect_is_told(name: str, value: str) -> None:
    assert any(notice.startswith(f"{name} has no effect") for notice in parse("mongodb", NEW | {name: value}).notices)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('[{"$match": {"a.b": {"$gt": 1.5}}}]', [{"$match": {"a.b": {"$gt": 1.5}}}]),
        ("[{$match: {op: 'it\\'s', b: true}}]", [{"$match": {"op": "it's", "b": True}}]),
        ("[{$match: {'say \"a\"': null}}]", [{"$match": {'say "a"': None}}]),
        (
            "[ { $match: { _id: ObjectId('5f0d1a2b3c4d5e6f708192a3'), n: NumberLong(7) } } ]",
            [{"$match": {"_id": {"$oid": "5f0d1a2b3c4d5e6f708192a3"}, "n": {"$numberLong": "7"}}}],
        ),
        (
            "[{$match: {a: new Date('2020-01-01'), b: ISODate('2020-01-01T01:00:00'), c: new Date(1577836800000)}}]",
            [{"$match": {"a": {"$date": "2020-01-01T00:00:00Z"}, "b": {"$date": "2020-01-01T01:00:00Z"},
                         "c": {"$date": {"$numberLong": "1577836800000"}}}}],
        ),
        (
            "[{$match: {a: /^x\\/y/si}}]",
            [{"$match": {"a": {"$regularExpression": {"pattern": "^x/y", "options": "is"}}}}],
        ),
    ],
)  # fmt: skip
def test_pipelines_may_be_written_as_in_the_shell(text: str, value: object) -> None:
    read = parse("mongodb", NEW | {"cursor.pipeline": text})
    assert json.loads(read["cursor.pipeline"]) == value
    assert json_util.loads(read["cursor.pipeline"])


def test_conditions_may_be_written_as_in_the_shell() -> None:
    names = "snapshot.collection.filter.overrides"
    read = parse("mongodb", NEW | {names: "a.b", f"{names}.a.b": "{n: {$gt: 5}}"})
    assert json.loads(read[f"{names}.a.b"]) == {"n": {"$gt": 5}}
