"""Signals become actions, malformed signals become messages without their data, and names find tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.config.filters import quoted_parts, table_name
from tailrace.snapshot.signals import (
    ExecuteSnapshot,
    LogMessage,
    MalformedSignal,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
    matching,
    read,
    resolve,
)


def execute(**data: Any) -> Any:
    return read(Signal("1", "execute-snapshot", json.dumps({name.replace("_", "-"): at for name, at in data.items()})))


@pytest.mark.seed("002-20", "002-25")
def test_the_statement_of_the_specification_is_understood() -> None:
    data = '{"data-collections": ["schema1.table1","schema2.table2"],"type":"incremental"}'
    wanted = ExecuteSnapshot("ad-hoc-1", False, ("schema1.table1", "schema2.table2"))
    assert read(Signal("ad-hoc-1", "execute-snapshot", data)) == wanted
    assert read(Signal("ad-hoc-1", "execute-snapshot", data.replace("incremental", "INCREMENTAL"))) == wanted
    assert execute(data_collections=["schema1.table1", "schema2.table2"]) == ExecuteSnapshot(
        "1", False, ("schema1.table1", "schema2.table2")
    )


@pytest.mark.seed("002-21")
def test_an_empty_list_names_nothing_and_a_missing_one_is_malformed() -> None:
    assert execute(data_collections=[]).collections == ()
    with pytest.raises(MalformedSignal, match="must be a list of table names"):
        execute()


def test_conditions_of_both_forms_and_a_surrogate_key() -> None:
    found = execute(
        data_collections=["a.b", "a.c"],
        additional_conditions=[{"data-collection": "a.b", "filter": "id > 1", "more": 7}],
        additional_condition="n = 2",
        surrogate_key="n",
    )
    # The condition of one table precedes that of all tables.
    assert found.conditions == (("a.b", "id > 1"), (".*", "n = 2"))
    assert found.surrogate == "n"
    assert execute(data_collections=["a.b"], type="Blocking").blocking


def test_the_other_types() -> None:
    assert read(Signal("1", "stop-snapshot", None)) == StopSnapshot("1", ())
    assert read(Signal("1", "stop-snapshot", '{"type":"incremental","data-collections":["a.b"]}')) == StopSnapshot(
        "1", ("a.b",)
    )
    for nothing in (None, "", "no JSON", "[]"):
        assert read(Signal("1", "pause-snapshot", nothing)) == PauseSnapshot("1")
        assert read(Signal("1", "resume-snapshot", nothing)) == ResumeSnapshot("1")
    assert read(Signal("1", "log", '{"message": "at {}"}')) == LogMessage("1", "at {}")
    for watermark in ("snapshot-window-open", "snapshot-window-close"):
        assert read(Signal("1", watermark, "anything")) is None


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("nonsense", None, "has an unknown type; known are execute-snapshot"),
        ("EXECUTE-SNAPSHOT", "{}", "has an unknown type"),
        ("set-binlog-position", '{"gtid_set": "s3cret"}', "asks for set-binlog-position, which is refused: changes"),
        ("execute-snapshot", "{s3cret", "are not JSON"),
        ("execute-snapshot", '["s3cret"]', "are not a JSON object"),
        ("execute-snapshot", "null", "are not a JSON object"),
        ("execute-snapshot", '{"data-collections": "s3cret"}', "must be a list of table names"),
        ("execute-snapshot", '{"data-collections": [7]}', "must be a list of table names"),
        ("execute-snapshot", '{"data-collections": ["  "]}', "must be a list of table names"),
        ("execute-snapshot", '{"data-collections": [], "type": "s3cret"}', "a snapshot of an unknown type"),
        ("execute-snapshot", '{"data-collections": [], "type": 7}', "type of signal s1 must be a text"),
        ("execute-snapshot", '{"data-collections": [], "surrogate-key": ["s3cret"]}', "surrogate-key of signal s1"),
        ("execute-snapshot", '{"data-collections": [], "additional-condition": 7}', "additional-condition of signal"),
        ("execute-snapshot", '{"data-collections": [], "additional-conditions": {"a": 1}}', "must be a list of obj"),
        ("execute-snapshot", '{"data-collections": [], "additional-conditions": ["s3cret"]}', "must be a list of obj"),
        ("execute-snapshot", '{"data-collections": [], "additional-conditions": [{"filter": "s3cret"}]}', "with data"),
        ("stop-snapshot", '{"type": "blocking"}', "which ends by itself"),
        ("stop-snapshot", '{"data-collections": {}}', "must be a list of table names"),
        ("log", None, "message of signal s1 must be a text"),
        ("log", '{"message": ["s3cret"]}', "message of signal s1 must be a text"),
        ("execute-snapshot", '{"data-collections": ["s3cret\\u0000"]}', "a character that the server"),
        ("execute-snapshot", '{"data-collections": [], "additional-condition": "\\ud800s3cret"}', "a character that"),
        ("execute-snapshot", "[" * 100_000, "are not JSON"),
    ],
)
def test_a_malformed_signal_is_told_by_its_id_and_never_by_its_data(kind: str, data: str | None, said: str) -> None:
    with pytest.raises(MalformedSignal) as caught:
        read(Signal("s1", kind, data))
    assert said in str(caught.value)
    assert "s1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


TABLES = [("public", "My.Table"), ("public", "a"), ("public", "ab"), ("public", 'q"t'), ("s.t", "a"), ("s", "a")]


@pytest.mark.seed("002-22", "002-26")
def test_names_with_dots_are_quoted_part_by_part() -> None:
    assert matching('"public"."My.Table"', TABLES) == [("public", "My.Table")]
    assert matching('public."My.Table"', TABLES) == [("public", "My.Table")]
    assert matching('"shop"."public"."a"', TABLES) == [("public", "a")]
    assert matching('"s.t".a', TABLES) == [("s.t", "a")]
    assert matching('"public"."q""t"', TABLES) == [("public", 'q"t')]
    assert matching('"public"."A"', TABLES) == []


def test_a_name_as_it_stands_comes_before_the_expression_that_it_also_is() -> None:
    # As an expression, `public.My.Table` would find others, too.
    assert matching("public.My.Table", [("public", "MyxTable"), *TABLES]) == [("public", "My.Table")]
    assert matching(r"public\.a.*", TABLES) == [("public", "a"), ("public", "ab")]
    # As in the server and in the recordings, A differs from a.
    assert matching("PUBLIC.A", TABLES) == []
    assert matching("a", TABLES) == []
    with pytest.raises(MalformedSignal, match="is not a regular expression"):
        matching("public.(", TABLES)


@pytest.mark.seed("002-08")
def test_tables_come_in_the_order_of_the_request_each_once() -> None:
    found, missing = resolve(["s.a", r"public\..*", "public.a", "public.none", '"x"."y"'], TABLES)
    assert found == [("s", "a"), ("public", "My.Table"), ("public", "a"), ("public", "ab"), ("public", 'q"t')]
    assert missing == ["public.none", '"x"."y"']


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ('"a"."b"', ("a", "b")),
        ('a."b.c"', ("a", "b.c")),
        ('"a""b".c', ('a"b', "c")),
        ('"a".b."c"', ("a", "b", "c")),
        ('""."b"', ("", "b")),
        ("a.b", None),
        ('"a"', None),
        ('"a', None),
        ('"a"b."c"', None),
        ('"a"."b"x', None),
        ('"a".', None),
    ],
)
def test_parts_of_quoted_names(name: str, parts: tuple[str, ...] | None) -> None:
    assert quoted_parts(name) == parts


def test_names_of_tables() -> None:
    assert table_name("public.t") == ("public", "t")
    assert table_name("shop.public.t") == ("public", "t")
    assert table_name('"pub.lic"."t"') == ("pub.lic", "t")
    assert table_name("t") == ("", "t")
