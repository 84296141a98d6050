"""Topic naming strategies: names, replacements as Java does them, and the key's further field."""

from __future__ import annotations

import pytest

from tailrace.columns import TableId
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import substituted
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings

REQUIRED = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "dbserver1"}
REGEX = "io.debezium.schema.SchemaRegexTopicNamingStrategy"


def settings(**options: str) -> EventSettings:
    return EventSettings.from_options(parse("postgres", REQUIRED | options))


def table(schema: str, name: str) -> TableId:
    return TableId("d", schema, name)


@pytest.mark.parametrize(
    ("regex", "replacement", "text", "result"),
    [
        (r"(.*)\.t", "$1.all", "a.t", "a.all"),
        (r"(.*)\.t", "$1.all", "a.u", None),
        (r"(?<one>.*)\.t", "${one}0", "a.t", "a0"),
        (r"(.*)\.t", r"\$1\\$1", "a.t", r"$1\a"),
        (r"(.*)\.t", "$12", "a.t", "a2"),
        (r"(.*)\.(x)?t", "$1-$2", "a.t", "a-"),
        ("a.*?", "b", "aaa", "baa"),
        ("A", "b", "a", None),
    ],
)
def test_replacements_are_javas(regex: str, replacement: str, text: str, result: str | None) -> None:
    assert substituted(compile_groups(regex), replacement, text) == result


def test_topics_are_named_by_table_alone_where_that_is_asked_for() -> None:
    chosen = settings(**{"topic.naming.strategy": "io.debezium.schema.DefaultTopicNamingStrategy"})
    assert names.topic(chosen, table("s2", "t")) == names.topic(chosen, table("public", "t")) == "dbserver1.t"
    assert names.table_field(chosen, table("s2", "t")) is None


def test_topics_that_are_shared_by_expression_have_keys_that_tell_the_table() -> None:
    shared = {
        "topic.naming.strategy": REGEX,
        "topic.regex": r"(.*)\.(s2|public|a)\.(?<name>t|with.space)",
        "topic.replacement": r"$1.all-$2\$x.t",
    }
    chosen = settings(**shared)
    assert names.topic(chosen, table("public", "t")) == "dbserver1.all-public$x.t"
    assert names.topic(chosen, table("s2", "with space")) == "dbserver1.all-s2$x.t"
    assert names.topic(chosen, table("public", "other")) == "dbserver1.public.other"
    field = "__dbz__physicalTableIdentifier"
    assert names.table_field(chosen, table("s2", "with space")) == (field, "dbserver1.s2.with space")
    assert names.table_field(chosen, table("public", "other")) == (field, "dbserver1.public.other")
    named = settings(
        **shared,
        **{
            "topic.key.field.name": "shard",
            "topic.key.field.regex": r".*\.(.*)\.t",
            "topic.key.field.replacement": "S$1",
        },
    )
    assert names.table_field(named, table("s2", "t")) == ("shard", "Ss2")
    assert names.table_field(settings(**shared, **{"topic.key.enforce.uniqueness": "false"}), table("s2", "t")) is None


def test_an_expression_sees_the_topic_without_illegal_characters_and_the_key_tells_the_table_with_them() -> None:
    """As in Debezium 2.3 and 3.0, illegal characters in the result of the expression are not replaced again."""
    emoji = "\N{GRINNING FACE}"
    odd = table(f"s{emoji}", f"t{emoji} x")
    chosen = settings(**{"topic.naming.strategy": REGEX, "topic.regex": "(.*)t__(.*)", "topic.replacement": "$1 Zé$2"})
    assert names.topic(chosen, odd) == "dbserver1.s__. Zé_x"
    assert names.table_field(chosen, odd) == ("__dbz__physicalTableIdentifier", f"dbserver1.s{emoji}.t{emoji} x")
    passed = settings(**{"topic.naming.strategy": REGEX, "topic.regex": f"(.*){emoji}(.*)", "topic.replacement": "$1"})
    assert names.topic(passed, odd) == "dbserver1.s__.t___x"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic.naming.strategy": "com.example.Own"}, "must be one of io.debezium"),
        ({"topic.regex": ".*"}, "topic.regex needs a topic.naming.strategy by expression"),
        ({"topic.naming.strategy": REGEX, "topic.regex": ".*"}, "topic.replacement is missing"),
        ({"topic.naming.strategy": REGEX, "topic.regex": "(", "topic.replacement": "x"}, "not a regular expression"),
        ({"topic.naming.strategy": REGEX, "topic.regex": "(a)", "topic.replacement": "$2"}, "'$2' names no group"),
        ({"topic.naming.strategy": REGEX, "topic.regex": "(a)", "topic.replacement": "${b}"}, "names no group"),
    ],
)
def test_what_names_no_topic_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("postgres", REQUIRED | options)
    assert reason in str(caught.value)
