"""TimescaleDb shows chunks as their hypertables, by the planner's information. Recordings are the
cases hypertables*."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from tailrace.columns import TableId
from tailrace.columns.logical import STRING
from tailrace.connectors.postgres.descriptor import CONNECTOR
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.records.hypertables import Hypertable, Hypertables
from tailrace.records.layout import Constant, Header, Member, RecordLayout, Struct
from tailrace.transforms.routers.predicates import Conditional, topic_name_matches
from tailrace.transforms.routers.timescale import TimescaleDb, timescale_db

LOGIN = {
    "database.hostname": "time.example",
    "database.user": "reader",
    "database.password": "hidden!",
    "database.dbname": "metrics",
}
KNOWN = Hypertables(
    {
        ("_timescaledb_internal", "one"): Hypertable("public", "conditions"),
        ("_timescaledb_internal", "two"): Hypertable("_timescaledb_internal", "kept", "public", "hourly"),
        ("elsewhere", "three"): Hypertable("public", "conditions"),
    }
)


def table(schema: str, name: str) -> TableId:
    return TableId("golden", schema, name)


def event(schema: str, name: str, *headers: str) -> RecordLayout:
    source = Struct((Member("schema", Constant(schema, STRING)), Member("table", Constant(name, STRING))))
    value = Struct((Member("source", source),), "p.Envelope")
    return RecordLayout("c", "own", None, value, tuple(Header(one, Constant("", STRING)) for one in headers))


def of(record: RecordLayout) -> tuple[object, ...]:
    """Return topic, source block and headers of a record."""
    assert isinstance(record.value, Struct)
    source = record.value.part("source")
    assert isinstance(source, Struct)
    shown = [member.node.value for member in source.members if isinstance(member.node, Constant)]
    values = {one.name: one.node.value for one in record.headers if isinstance(one.node, Constant)}
    return record.topic, shown, {name.removeprefix("__debezium_timescaledb_"): text for name, text in values.items()}


def test_events_of_a_chunk_are_those_of_its_hypertable_or_view() -> None:
    made = timescale_db(LOGIN).knowing(KNOWN)
    schema = "_timescaledb_internal"
    headers = {"chunk_table": "one", "chunk_schema": schema}
    assert of(made.rewrite(event(schema, "one"))) == (
        "timescaledb.public.conditions", ["public", "conditions"], headers
    )  # fmt: skip
    topic, shown, found = of(made.rewrite(event(schema, "two")))
    assert (topic, shown) == ("timescaledb.public.hourly", ["public", "hourly"])
    assert found == {
        "chunk_table": "two", "chunk_schema": schema, "hypertable_table": "kept", "hypertable_schema": schema
    }  # fmt: skip
    for other in (event("elsewhere", "three"), event(schema, "no_chunk"), replace(event(schema, "one"), value=None)):
        assert made.rewrite(other) is other
        assert made.shared(other) == (other, True)
    other_options = timescale_db({**LOGIN, "schema.list": " a , elsewhere", "target.topic.prefix": "t"})
    assert of(other_options.knowing(KNOWN).rewrite(event("elsewhere", "three")))[0] == "t.public.conditions"


def test_the_second_event_of_a_key_change_shows_the_hypertable_and_keeps_its_topic() -> None:
    made = timescale_db(LOGIN).knowing(KNOWN)
    found = of(made.rewrite(event("_timescaledb_internal", "one", "__debezium.oldkey")))
    assert found == ("own", ["public", "conditions"], {"__debezium.oldkey": ""})


def test_chunks_of_one_hypertable_share_the_topic_by_which_tasks_are_cut() -> None:
    options = {f"transforms.t.{name}": text for name, text in LOGIN.items()} | {
        "database.hostname": "h", "database.user": "u", "database.password": "p", "database.dbname": "golden",
        "topic.prefix": "p", "transforms": "t", "transforms.t.type": "TimescaleDb",
        "transforms.t.predicate": "some", "predicates": "some",
        "predicates.some.type": "TopicNameMatches", "predicates.some.pattern": ".*(one|two|plain)",
    }  # fmt: skip
    kind = "io.debezium.connector.v2.postgresql.transforms.timescaledb.TimescaleDb"
    settings = EventSettings.from_options(parse("postgres", {**options, "transforms.t.type": kind}), "run")
    (conditional,) = settings.transforms
    assert isinstance(conditional, Conditional)
    known = pickle.loads(pickle.dumps(replace(settings, transforms=(conditional.knowing(KNOWN),))))
    found = {name: names.topic(known, table("_timescaledb_internal", name)) for name in ("one", "two", "plain")}
    assert found == {
        "one": "timescaledb.public.conditions",
        "two": "timescaledb.public.hourly",
        "plain": "p._timescaledb_internal.plain",
    }
    assert hash(known) == hash(pickle.loads(pickle.dumps(known)))
    assert names.topic(known, table("elsewhere", "three")) == "p.elsewhere.three"


def test_a_predicate_of_topics_decides_about_a_table_too() -> None:
    made = timescale_db(LOGIN).knowing(KNOWN)
    never = Conditional(made, topic_name_matches({"pattern": "another"}), False)
    assert never.routes("own", table("_timescaledb_internal", "one")) == ("own",)
    assert Conditional(made, never.predicate, True).routes("own", table("_timescaledb_internal", "one")) != ("own",)


def test_the_password_is_shown_nowhere_and_is_not_given_to_tasks() -> None:
    made = timescale_db(LOGIN)
    assert "hidden!" not in repr(made)
    assert dict(made.asks.login)["database.port"] == 5432
    assert b"hidden!" not in pickle.dumps(made.knowing(KNOWN))
    assert made.knowing(KNOWN) == timescale_db(LOGIN).knowing(Hypertables.from_json(KNOWN.to_json()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**LOGIN, "schemas": "x"}, "It has no option schemas"),
        ({**LOGIN, "database.port": "x"}, "must be a whole number"),
        ({name: text for name, text in LOGIN.items() if name != "database.dbname"}, "needs the option database.dbname"),
    ],
)
def test_options_that_are_wrong_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        timescale_db(options)


def test_it_is_postgresqls_own() -> None:
    assert [name.rpartition(".")[2] for name in CONNECTOR.traits.transforms] == [TimescaleDb.__name__]
