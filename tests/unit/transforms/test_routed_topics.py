"""Topics of records follow from expressions, from their time, from their table, and from their values."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import TableId
from tailrace.columns.logical import INT32, INT64, STRING
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout
from tailrace.records.transform import ANY_TOPIC, routed
from tests.layout_blocks import TOPIC, LayoutBlock, change_event, struct_of
from tests.unit.transforms.rewritten_layouts import connect, debezium, made_of, one, record_of, refused, seen

ROW = struct_of(f"{TOPIC}.Value", id=Constant(1, INT32), v=Constant("é x", STRING.with_optional(True)))
KEY = struct_of(f"{TOPIC}.Key", id=Constant(1, INT32))
CREATED = record_of(change_event("c", None, ROW), KEY)
TABLE = TableId("golden", "public", "t")


def by_value(block: LayoutBlock, *topics: str) -> RecordLayout:
    """Return records whose topics depend on values."""
    topic = ComputedColumn((block.column("topic", STRING, *topics),), lambda found: found, STRING)
    return record_of(change_event("c", None, ROW), KEY, topic=topic)


def topics(step: Any, record: RecordLayout = CREATED, block: LayoutBlock | None = None) -> list[str | None]:
    return [found and found.topic for found in seen(step, record, block)]


@pytest.mark.parametrize(
    ("regex", "replacement", "topic"),
    [
        (r"server\.(.*)", "$1", "public.t"),
        (r"(\w+)\.(\w+)\.(?<table>\w+)", "${table}-of-$2", "t-of-public"),
        (r".*", "all:$0", f"all:{TOPIC}"),
        ("public", "x", TOPIC),
        (r"server\.public\.(t)?(z)?.*", "[$1|$2]", "[t|]"),
    ],
)
def test_a_topic_follows_an_expression_that_matches_all_of_it(regex: str, replacement: str, topic: str) -> None:
    step = connect("RegexRouter", regex=regex, replacement=replacement)
    assert topics(step) == [topic]
    assert routed(TOPIC, TABLE, made_of(step)) == (topic,)
    block = LayoutBlock(2)
    assert topics(step, by_value(block, TOPIC, "other!"), block)[0] == topic


def test_topics_are_rewritten_one_after_another() -> None:
    steps = (
        connect("RegexRouter", regex=r"server\.(.*)", replacement="a.$1"),
        connect("RegexRouter", regex=r"a\.(.*)", replacement="b.$1"),
    )
    assert topics(steps) == ["b.public.t"]


@pytest.mark.parametrize(
    ("options", "ms", "topic"),
    [
        ({}, 1_577_934_245_678, f"{TOPIC}-20200102"),
        ({}, -1, f"{TOPIC}-19691231"),
        ({"timestamp_format": "yyyy-MM-dd HH:mm:ss.SSS"}, 1_577_934_245_678, f"{TOPIC}-2020-01-02 03:04:05.678"),
        ({"topic_format": "${timestamp}/${topic}/${timestamp}", "timestamp_format": "yy"}, 0, f"70/{TOPIC}/70"),
        ({"topic_format": "all"}, 0, "all"),
    ],
)
def test_a_topic_may_hold_the_records_time(options: dict[str, str], ms: int, topic: str) -> None:
    step = connect("TimestampRouter", **options)
    assert topics(step, record_of(ROW, timestamp=Constant(ms, INT64))) == [topic]
    block = LayoutBlock(2)
    record = record_of(ROW, timestamp=block.column("at", INT64, ms, ms))
    assert topics(step, record, block) == [topic, topic]


def test_a_record_without_a_time_has_no_such_topic() -> None:
    said = "TimestampRouter needs the time of the record, and it has none"
    assert refused(connect("TimestampRouter"), record_of(ROW)) == said
    block = LayoutBlock(2)
    record = record_of(ROW, timestamp=block.column("at", INT64.with_optional(True), 5, None))
    assert refused(connect("TimestampRouter"), record, block) == said


# --- ByLogicalTableRouter -------------------------------------------------------------------------------------------


def by_table(**options: str) -> dict[str, str]:
    return debezium("ByLogicalTableRouter", topic_regex=r"(.*)\.t\d*", topic_replacement="$1.all", **options)


def test_tables_are_put_together_under_another_name() -> None:
    found = one(by_table(), CREATED)
    assert found.topic == "server.public.all"
    assert list(found.key.items()) == [("id", 1), ("__dbz__physicalTableIdentifier", TOPIC)]
    assert found.key_schema is not None
    assert found.value_schema is not None
    assert (found.key_schema.name, found.value_schema.name) == ("server.public.all.Key", "server.public.all.Envelope")
    rows = {part.name: part.type.name for part in found.value_schema.fields if part.name in ("before", "after")}
    assert rows == {"before": "server.public.all.Value", "after": "server.public.all.Value"}
    assert routed(TOPIC, TABLE, made_of(by_table())) == ("server.public.all",)


def test_a_tombstone_goes_with_its_delete() -> None:
    found = one(by_table(), record_of(None, KEY))
    assert (found.topic, found.value) == ("server.public.all", None)
    assert found.key == {"id": 1, "__dbz__physicalTableIdentifier": TOPIC}
    assert one(by_table(), record_of(None)).key is None


def test_a_topic_that_does_not_match_stays() -> None:
    step = debezium("ByLogicalTableRouter", topic_regex="none", topic_replacement="x")
    found = one(step, CREATED)
    assert (found.topic, found.key) == (TOPIC, {"id": 1})
    empty = debezium("ByLogicalTableRouter", topic_regex="(z)?.*", topic_replacement="$1")
    assert one(empty, CREATED).topic == TOPIC


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"key_field_name": "from"}, {"id": 1, "from": TOPIC}),
        (
            {"key_field_regex": r"(.*)\.(\w+)", "key_field_replacement": "$2"},
            {"id": 1, "__dbz__physicalTableIdentifier": "t"},
        ),
        ({"key_field_regex": "x", "key_field_replacement": "y"}, {"id": 1, "__dbz__physicalTableIdentifier": TOPIC}),
        ({"key_enforce_uniqueness": "false"}, {"id": 1}),
    ],
)
def test_the_field_of_the_key_may_be_another(options: dict[str, str], key: dict[str, Any]) -> None:
    assert one(by_table(**options), CREATED).key == key


@pytest.mark.parametrize(
    ("mode", "name"), [("none", "my-all.Key"), ("avro", "my_all.Key"), ("avro_unicode", "my_u002dall.Key")]
)
def test_names_of_schemas_are_adjusted(mode: str, name: str) -> None:
    step = debezium(
        "ByLogicalTableRouter", topic_regex=".*", topic_replacement="my-all", schema_name_adjustment_mode=mode
    )
    found = one(step, CREATED)
    assert found.key_schema is not None
    assert (found.topic, found.key_schema.name) == ("my-all", name)


def test_a_topic_of_values_is_put_together_too() -> None:
    block = LayoutBlock(3)
    found = seen(by_table(), by_value(block, "a.t1", "b.t2", "c.x"), block)
    assert [record and (record.topic, record.key.get("__dbz__physicalTableIdentifier")) for record in found] == [
        ("a.all", "a.t1"), ("b.all", "b.t2"), ("c.x", None),
    ]  # fmt: skip


def test_a_key_that_is_no_struct_is_refused() -> None:
    said = refused(by_table(), record_of(change_event("c", None, ROW), Constant("k", STRING)))
    assert said == "ByLogicalTableRouter finds no struct in the key"


# --- topics of values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "expression", "topic"),
    [
        ("jsr223.groovy", "value.after.v + '.' + value.op", "é x.c"),
        ("jsr223.groovy", "value.op == 'd' ? 'gone' : null", TOPIC),
        ("jsr223.graal.js", "value.after.v == 'z' ? 'no' : 'yes'", "yes"),
        ("sql", "concat(topic, '-', value.source.table)", f"{TOPIC}-t"),
    ],
)
def test_a_topic_may_be_chosen_by_an_expression(language: str, expression: str, topic: str) -> None:
    step = debezium("ContentBasedRouter", language=language) | {"topic.expression": expression}
    assert topics(step) == [topic]
    assert routed(TOPIC, TABLE, made_of(step)) == (ANY_TOPIC,)
    # A tombstone keeps its topic.
    assert topics(step, record_of(None, KEY)) == [TOPIC]
    assert topics(step | {"null.handling.mode": "drop"}, record_of(None, KEY)) == [None]


def test_a_route_of_values_is_taken_record_by_record() -> None:
    block = LayoutBlock(3)
    row = struct_of(f"{TOPIC}.Value", v=block.column("v", STRING.with_optional(True), "a", None, "b"))
    step = debezium("ContentBasedRouter", language="groovy") | {"topic.expression": "value.after.v"}
    record = record_of(change_event("c", None, row))
    assert topics(step, record, block) == ["a", TOPIC, "b"]
    # A later transform sees the topic that an earlier one has chosen.
    later = connect("RegexRouter", regex="([ab])", replacement="$1$1")
    assert topics((step, later), record, block) == ["aa", TOPIC, "bb"]
    only = step | {"topic.regex": "none"}
    assert topics(only, record, block) == [TOPIC] * 3
