"""Transforms rewrite layouts one after another; records are left out, distinguished by values, or routed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import TableId
from tailrace.columns.logical import BOOLEAN, STRING
from tailrace.records.layout import ComputedColumn, Constant, Header, Node, RecordLayout
from tailrace.records.transform import (
    LeftOutRecords,
    RefusedRecord,
    Rewritten,
    VaryingLayout,
    behind_delete,
    by_distinct,
    either,
    kept,
    resolved,
    rewritten,
    routed,
    with_topic,
)

RECORD = RecordLayout("c", "topic", None, Constant("value", STRING))
TABLE = TableId("d", "s", "t")
FLAG = Constant("flag", BOOLEAN)


@dataclass(frozen=True)
class Appending:
    """A transform that appends a letter to the topic, in the layout and in the route."""

    letter: str

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return with_topic(record, self.route)

    def route(self, topic: str) -> str:
        return topic + self.letter


@dataclass(frozen=True)
class Giving:
    """A transform with the same result for every layout."""

    found: Any

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return self.found  # type: ignore[no-any-return]


def transforms(*of: Any) -> tuple[Any, ...]:
    return of


def value_of(value: Any) -> Callable[[Node], Any]:
    return lambda node: value


def test_transforms_are_done_in_their_order() -> None:
    found = rewritten(RECORD, transforms(Appending("a"), Appending("b")))
    assert isinstance(found, RecordLayout)
    assert found.topic == "topicab"
    assert rewritten(RECORD, ()) is RECORD


@pytest.mark.parametrize("left_out", [None, LeftOutRecords("they are of no use")])
def test_what_is_left_out_is_not_rewritten_any_more(left_out: Rewritten) -> None:
    assert rewritten(RECORD, transforms(Giving(left_out), Giving(RECORD))) is left_out


@pytest.mark.parametrize(("value", "topic"), [(True, "topica"), (False, "othera"), (None, "othera")])
def test_those_behind_a_layout_that_varies_are_done_for_each(value: bool | None, topic: str) -> None:
    varying = either(FLAG, RECORD, replace(RECORD, topic="other"))
    found = rewritten(RECORD, transforms(Giving(varying), Appending("a")))
    assert isinstance(found, VaryingLayout)
    assert found.by == FLAG
    record = resolved(found, value_of(value))
    assert isinstance(record, RecordLayout)
    assert record.topic == topic


def test_layouts_may_vary_within_one_another() -> None:
    inner = either(FLAG, None, RECORD)
    assert resolved(either(FLAG, inner, RECORD), value_of(True)) is None
    assert resolved(either(FLAG, inner, RECORD), value_of(False)) is RECORD
    reason = LeftOutRecords("told", is_error=True)
    assert resolved(reason, value_of(True)) is reason


@pytest.mark.parametrize(("value", "stays"), [(True, True), (False, False), (None, False)])
def test_a_record_stays_where_its_flag_is_true(value: bool | None, stays: bool) -> None:
    flag = ComputedColumn((), lambda: None, BOOLEAN)
    keeping = replace(RECORD, keep=flag)
    for found in (kept(keeping, flag), rewritten(RECORD, transforms(Giving(keeping)))):
        assert isinstance(found, VaryingLayout)
        record = resolved(found, value_of(value))
        assert record == (RECORD if stays else None)


def test_a_topic_of_text_is_named_at_once_and_a_computed_one_by_its_values() -> None:
    named = with_topic(RECORD, str.upper)
    assert named.topic == "TOPIC"
    computed = with_topic(replace(RECORD, topic=ComputedColumn((FLAG,), lambda values: values, STRING)), str.upper)
    assert isinstance(computed.topic, ComputedColumn)
    (inner,) = computed.topic.inputs
    assert isinstance(inner, ComputedColumn)
    assert computed.topic.function(pa.array(["a", "b", "a", None])).to_pylist() == ["A", "B", "A", None]


def test_a_function_is_called_once_for_each_value_that_differs() -> None:
    seen = []

    def made(value: str) -> int:
        seen.append(value)
        return len(value)

    found = by_distinct(made, pa.int32(), pa.array(["aa", None, "b", "aa", "b"]))
    assert found.to_pylist() == [2, None, 1, 2, 1]
    assert found.type == pa.int32()
    assert sorted(seen) == ["aa", "b"]
    assert by_distinct(made, pa.int32(), pa.array([], pa.string())).to_pylist() == []


@dataclass(frozen=True)
class Splitting:
    """A transform that sends records to one of two topics, also by their table."""

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return record

    def routes(self, topic: str, table: TableId) -> tuple[str, ...]:
        return (f"{topic}.{table.table}", "rest")


def test_a_table_has_all_topics_that_its_records_may_go_to_the_usual_one_first() -> None:
    assert routed("p", TABLE, ()) == ("p",)
    assert routed("p", TABLE, transforms(Appending("a"), Giving(None), Appending("b"))) == ("pab",)
    assert routed("p", TABLE, transforms(Splitting(), Appending("x"))) == ("p.tx", "restx")
    # Each of them once.
    assert routed("p", TABLE, transforms(Splitting(), Splitting())) == ("p.t.t", "rest", "rest.t")


@dataclass(frozen=True)
class Heading:
    """A transform that adds a header to its record."""

    name: str
    goes_on: bool = True

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return record

    def shared(self, record: RecordLayout) -> tuple[RecordLayout, bool]:
        return replace(record, headers=(*record.headers, Header(self.name, FLAG))), self.goes_on


@pytest.mark.parametrize(
    ("chain", "names"),
    [
        ((), ["own"]),
        ((Heading("a"), Heading("b")), ["own", "a", "b"]),
        # After a transform that copies the record, nothing is shared any more.
        ((Heading("a"), Appending("x"), Heading("b")), ["own", "a"]),
        ((Heading("a", goes_on=False), Heading("b")), ["own", "a"]),
        ((Appending("x"), Heading("a")), ["own"]),
    ],
)
def test_a_tombstone_has_the_headers_that_its_delete_was_given(chain: tuple[Any, ...], names: list[str]) -> None:
    own = (Header("own", FLAG),)
    tombstone = RecordLayout("tombstone", "topic", None, None, own)
    found = behind_delete(tombstone, replace(RECORD, op="d", headers=own), chain)
    assert [header.name for header in found.headers] == names
    assert (found.op, found.value) == ("tombstone", None)


def test_what_is_refused_names_its_row_and_its_reason() -> None:
    fault = RefusedRecord("the transform x finds no field id", 3)
    assert (fault.reason, fault.row) == ("the transform x finds no field id", 3)
    assert RefusedRecord("why").row == 0
