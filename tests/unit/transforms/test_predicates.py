"""Predicates select the records of a transform."""

from __future__ import annotations

import pytest

from tailrace.columns import TableId
from tailrace.config.transforms import transforms
from tailrace.events import names
from tests.event_settings import event_settings
from tests.unit.transforms.chains import CONNECT, PREDICATES, chain, faults, rows

TOMBSTONES = {"type": f"{PREDICATES}RecordIsTombstone"}
NAMED = {"type": "InsertHeader", "header": "seen", "value.literal": "yes"}
ROUTE = {"type": f"{CONNECT}RegexRouter", "regex": r"s\.public\.(.*)", "replacement": "tables.$1"}
BY_ITEM = {
    "type": "ContentBasedRouter",
    "language": "jsr223.groovy",
    "topic.expression": "value.op == 'd' ? null : value.after.item",
}


def seen(*steps: dict[str, str], **predicates: dict[str, str]) -> list[bool]:
    return [bool(row["headers"]) for row in rows(*steps, predicates=predicates)]


def test_a_tombstone_is_a_record_without_a_value() -> None:
    assert seen(NAMED | {"predicate": "p"}, p=TOMBSTONES) == [False, False, False, True]
    assert seen(NAMED | {"predicate": "p", "negate": "true"}, p=TOMBSTONES) == [True, True, True, False]


def test_topics_match_as_a_whole() -> None:
    for pattern, matches in (("s.public.t", True), ("public", False), (r".*\.t", True), (r"S\.public\.t", False)):
        found = seen(NAMED | {"predicate": "p"}, p={"type": "TopicNameMatches", "pattern": pattern})
        assert found == [matches] * 4, pattern


def test_a_header_is_found_by_its_name() -> None:
    assert seen(NAMED, NAMED | {"predicate": "p"}, p={"type": "HasHeaderKey", "name": "seen"}) == [True] * 4
    found = rows(NAMED, NAMED | {"predicate": "p"}, predicates={"p": {"type": "HasHeaderKey", "name": "seen"}})
    assert [len(row["headers"]) for row in found] == [2] * 4


def test_a_topic_that_an_earlier_transform_made_counts() -> None:
    routed = {"type": "TopicNameMatches", "pattern": "tables[.].*"}
    assert seen(ROUTE, NAMED | {"predicate": "p"}, p=routed) == [True] * 4
    assert seen(NAMED | {"predicate": "p"}, ROUTE, p=routed) == [False] * 4


def test_a_topic_that_depends_on_values_counts_record_by_record() -> None:
    rope = {"type": "TopicNameMatches", "pattern": "rope"}
    found = rows(BY_ITEM, ROUTE, NAMED | {"predicate": "p"}, predicates={"p": rope})
    assert [(row["topic"], bool(row["headers"])) for row in found] == [
        ("rope", True),
        ("tables.t", False),
        ("tables.t", False),
        ("tables.t", False),
    ]


def groups(*steps: dict[str, str], tables: str) -> list[list[str]]:
    """Return the tables that are read together."""
    made = transforms(chain(*steps, predicates={"p": TOMBSTONES})).transforms
    ids = [TableId("d", "public", name) for name in tables.split()]
    found: dict[str, list[str]] = {}
    for table, topic in names.shared(event_settings("s", "d", transforms=made), ids).items():
        found.setdefault(topic, []).append(table.table)
    return list(found.values())


def test_tables_that_may_come_together_in_any_topic_are_read_together() -> None:
    longer = {"type": f"{CONNECT}RegexRouter", "regex": "(.*t.*)", "replacement": "$1x", "predicate": "p"}
    assert groups(longer, tables="txx u tx t tyx") == [["txx", "tx", "t"], ["u"], ["tyx"]]
    # Some records of a stay where all of b go.
    away = {"type": f"{CONNECT}RegexRouter", "regex": "(.*)[.]a", "replacement": "$1.elsewhere", "predicate": "p"}
    moved = {"type": f"{CONNECT}RegexRouter", "regex": "(.*)[.]b", "replacement": "$1.a"}
    assert groups(away, moved, tables="a b c") == [["a", "b"], ["c"]]
    assert groups(moved, tables="b c d") == [["b"], ["c"], ["d"]]


def test_a_record_that_is_left_out_passes_no_further_transform() -> None:
    masked = {"type": f"{CONNECT}ValueToKey", "fields": "op"}
    dropped = {"type": f"{CONNECT}Filter", "predicate": "p"}
    assert [row["key"] for row in rows(dropped, masked, predicates={"p": TOMBSTONES})] == [
        {"op": "c"},
        {"op": "u"},
        {"op": "d"},
    ]
    assert rows({"type": f"{CONNECT}Filter"}) == []


@pytest.mark.parametrize(
    ("step", "predicates", "said"),
    [
        ({"predicate": "p"}, {}, "transforms.a.predicate names a predicate that predicates does not name"),
        ({"negate": "true"}, {}, "transforms.a.negate needs a predicate"),
        ({"predicate": "p", "negate": "no"}, {"p": TOMBSTONES}, "transforms.a.negate must be true or false"),
        ({}, {"p": {"type": "HasHeaderKey"}}, "predicates.p.type = HasHeaderKey is not supported: It needs the option"),
        ({}, {"p": {"type": "TopicNameMatches", "pattern": "("}}, "Its pattern '(' is not a regular expression"),
        ({}, {"p": TOMBSTONES | {"name": "x"}}, "It has no option name"),
        ({}, {"p": {"type": "Nothing"}}, "There is no predicate 'Nothing'"),
        ({}, {"p": {}}, "predicates.p.type is missing"),
    ],
)
def test_what_is_wrong_is_said(step: dict[str, str], predicates: dict[str, dict[str, str]], said: str) -> None:
    (fault,) = faults(NAMED | step, predicates=predicates)
    assert said in fault


def test_a_short_name_that_two_have_is_refused() -> None:
    (fault,) = faults({"type": "Filter"})
    assert "It may be one of" in fault
