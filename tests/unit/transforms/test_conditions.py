"""Predicates, their negation, and conditions in Groovy, JavaScript and SQL select the records of a transform."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import TableId
from tailrace.columns.logical import BOOLEAN, DOUBLE, INT32, INT64, STRING
from tailrace.records.layout import Constant
from tailrace.records.transform import routed
from tests.layout_blocks import TOPIC, LayoutBlock, change_event, struct_of
from tests.unit.transforms.chains import PREDICATES
from tests.unit.transforms.rewritten_layouts import connect, debezium, made_of, record_of, refused, seen

ROW = struct_of(f"{TOPIC}.Value", id=Constant(1, INT32))
MARK = connect("InsertHeader", header="marked", value_literal="yes")
MATCHES = {"p": {"type": PREDICATES + "TopicNameMatches", "pattern": r"server\.public\.t"}}
HEADER = {"p": {"type": PREDICATES + "HasHeaderKey", "name": "h"}}
TOMBSTONE = {"p": {"type": PREDICATES + "RecordIsTombstone"}}
CREATED = record_of(ROW)


def marked(predicates: Any, record: Any, negate: str = "", block: LayoutBlock | None = None) -> list[bool]:
    """Return the records that the transform with the predicate `p` has changed."""
    step = MARK | {"predicate": "p"} | ({"negate": negate} if negate else {})
    return [found is not None and ("marked", "yes") in found.headers for found in seen(step, record, block, predicates)]


@pytest.mark.parametrize(
    ("predicates", "record", "holds"),
    [
        (MATCHES, CREATED, True),
        (MATCHES, record_of(ROW, topic="server.public.tt"), False),
        (HEADER, CREATED, False),
        (HEADER, record_of(ROW, headers={"h": Constant(None, STRING.with_optional(True))}), True),
        (HEADER, record_of(ROW, headers={"H": Constant("x", STRING)}), False),
        (TOMBSTONE, CREATED, False),
        (TOMBSTONE, record_of(None), True),
        (TOMBSTONE, record_of(Constant(None, ROW.type.with_optional(True))), True),
    ],
)
def test_a_transform_is_for_the_records_that_its_predicate_is_true_of(
    predicates: Any, record: Any, holds: bool
) -> None:
    assert marked(predicates, record) == [holds]
    assert marked(predicates, record, negate="false") == [holds]
    assert marked(predicates, record, negate="true") == [not holds]


def test_a_predicate_is_asked_of_each_record_where_it_depends_on_values() -> None:
    block = LayoutBlock(3)
    value = block.column("v", STRING.with_optional(True), "a", None, "")
    assert marked(TOMBSTONE, record_of(value), block=block) == [False, True, False]
    assert marked(TOMBSTONE, record_of(value), negate="true", block=block) == [True, False, True]
    route = debezium("ContentBasedRouter", language="groovy") | {"topic.expression": "value.t"}
    row = struct_of("r", t=block.column("t", STRING, TOPIC, "other", TOPIC))
    found = seen((route, MARK | {"predicate": "p"}), record_of(row), block, MATCHES)
    assert [record and record.headers for record in found] == [[("marked", "yes")], [], [("marked", "yes")]]


def test_a_predicate_sees_what_earlier_transforms_have_made() -> None:
    rename = connect("RegexRouter", regex=".*", replacement="other")
    for steps, holds in (((MARK | {"predicate": "p"}, rename), True), ((rename, MARK | {"predicate": "p"}), False)):
        (found,) = seen(steps, CREATED, None, MATCHES)
        assert found is not None
        assert (("marked", "yes") in found.headers) is holds
        assert found.topic == "other"


@pytest.mark.parametrize(("negate", "kept"), [("false", [False, True]), ("true", [True, False])])
def test_records_are_filtered_by_a_predicate(negate: str, kept: list[bool]) -> None:
    step = connect("Filter") | {"predicate": "p", "negate": negate}
    found = [seen(step, record, None, TOMBSTONE)[0] is not None for record in (record_of(None), CREATED)]
    assert found == kept


def test_topics_are_foreseen_through_a_predicate() -> None:
    table = TableId("golden", "public", "t")
    rename = connect("RegexRouter", regex=".*", replacement="other") | {"predicate": "p"}
    for predicates, negate, topics in (
        (MATCHES, "false", ("other",)), (MATCHES, "true", (TOPIC,)), (TOMBSTONE, "false", ("other", TOPIC)),
    ):  # fmt: skip
        assert routed(TOPIC, table, made_of(rename | {"negate": negate}, predicates)) == topics


# --- conditions -----------------------------------------------------------------------------------------------------


def condition(text: str, language: str = "jsr223.groovy", **options: str) -> dict[str, str]:
    return debezium("Filter", language=language, condition=text, **options)


def kept(step: dict[str, str], block: LayoutBlock, **columns: Any) -> list[bool]:
    """Return the changes that stay, whose rows have these columns."""
    row = struct_of(f"{TOPIC}.Value", **columns)
    record = record_of(change_event("u", row, row), struct_of("k", id=Constant(7, INT32)))
    return [found is not None for found in seen(step, record, block)]


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("jsr223.groovy", "value.after.n > 0", [True, False, False]),
        ("jsr223.groovy", "value.after.n == null || value.after.n < 0", [False, True, True]),
        ("jsr223.groovy", "value.after.t?.startsWith('a') && value.op == 'u'", [True, False, False]),
        ("jsr223.groovy", "value.after.b", [True, False, False]),
        ("jsr223.groovy", "!(value.after.t in ['a', 'c'])", [False, True, True]),
        ("jsr223.groovy", "value.after.d != null && value.after.d * 2 == 3.0", [True, False, False]),
        ("jsr223.groovy", "topic == 'server.public.t' && key.id == 7", [True, True, True]),
        ("jsr223.graal.js", "value.after.n === 5", [True, False, False]),
        ("jsr223.graal.js", "value.after.t == 'é' || value.after.n > 1", [True, True, False]),
        ("sql", "value.after.n > 0", [True, False, False]),
        ("sql", "value.after.n is null", [False, False, True]),
        ("sql", "value.after.t like 'a%' or value.after.t = 'é'", [True, True, False]),
        ("sql", "coalesce(value.after.n, 9) = 9 and not value.after.b", [False, False, True]),
    ],
)
def test_changes_are_kept_by_a_condition(language: str, text: str, wanted: list[bool]) -> None:
    block = LayoutBlock(3)
    columns = {
        "n": block.column("n", INT64.with_optional(True), 5, -5, None),
        "t": block.column("t", STRING.with_optional(True), "a", "é", None),
        "b": block.column("b", BOOLEAN, True, False, False),
        "d": block.column("d", DOUBLE.with_optional(True), 1.5, 2.5, None),
    }
    assert kept(condition(text, language), block, **columns) == wanted


@pytest.mark.parametrize(
    ("text", "said"), [("value.after.n * 2 == 4", "uses * of null"), ("value.after.t.startsWith('a')", "of null")]
)
def test_what_groovy_cannot_do_with_a_null_is_refused(text: str, said: str) -> None:
    block = LayoutBlock(2)
    columns = {
        "n": block.column("n", INT64.with_optional(True), 2, None),
        "t": block.column("t", STRING.with_optional(True), "a", None),
    }
    row = struct_of(f"{TOPIC}.Value", **columns)
    assert said in refused(condition(text), record_of(change_event("u", row, row)), block)


@pytest.mark.parametrize(("mode", "stays"), [("keep", True), ("drop", False)])
def test_tombstones_are_kept_or_dropped(mode: str, stays: bool) -> None:
    step = condition("value.op == 'c'") | {"null.handling.mode": mode}
    (found,) = seen(step, record_of(None))
    assert (found is not None) is stays


def test_a_condition_is_for_the_topics_that_an_expression_names() -> None:
    step = condition("value.op == 'd'") | {"topic.regex": "other.*"}
    assert seen(step, record_of(change_event("c", None, ROW)))[0] is not None
    assert seen(step, record_of(change_event("c", None, ROW), topic="other.x"))[0] is None


def test_a_value_that_is_null_in_some_records_is_a_tombstone_there() -> None:
    block = LayoutBlock(2)
    kind = ROW.type.with_optional(True)
    record = record_of(block.column("row", kind, {"id": 1}, None))
    assert [found is not None for found in seen(condition("value.id == 2"), record, block)] == [False, True]
