"""The stage by which the server leaves out events reads expressions in the same way, and drops nothing wanted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.expressions import compile_expression
from tailrace.connectors.mongodb.log.change_stream import StreamSettings
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter
from tailrace.connectors.mongodb.log.server_filter import pcre
from tailrace.connectors.registry import parse

LETTERS = "abAZks.-_ ]^$\\9\u212a\u017fé\n"
PIECES = st.sampled_from(
    ["a", "B", "k", "s", "é", r"\.", r"\-", r"\$", "[.]", "[a-c]", "[^A-K]", r"[\w.-]", r"[^\d]", r"\d", r"\w", ".",
     "(?:a|b)", "(ab|)", "-", "9", "[k]", "[^s]", r"[\]a]", "^", "$", " "]
)  # fmt: skip
EXPRESSIONS = st.lists(
    st.tuples(PIECES, st.sampled_from(["", "", "*", "+", "?", "{1,2}", "{2}", "{0,}"])).map("".join), max_size=6
).map("".join)


@given(EXPRESSIONS, st.lists(st.text(LETTERS, max_size=6), min_size=8, max_size=8), st.booleans())
def test_an_expression_means_the_same_on_the_server(expression: str, names: list[str], folds: bool) -> None:
    try:
        ours = compile_expression(expression, ignore_case=folds)
    except ValueError:
        return
    written = pcre(ours)
    if written is None:
        return
    # In PCRE without options no letter is folded, and all used syntax means the same in Python.
    theirs = re.compile(f"^(?:{written})$(?!\n)")
    for name in names:
        assert bool(theirs.search(name)) == bool(ours.fullmatch(name)), name


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("shop[.]a", "[sS][hH][oO][pP][\\.][aA]"),
        (r"d\..*", r"[dD]\..*"),
        (r"[a-c\d]+", "[a-cA-C0-9]+"),
        # Syntax that the two may read differently.
        ("a*?", None),
        ("a++", None),
        (r"(?i)a", None),
        (r"(?=a)a", None),
        (r"(a)\1", None),
        (r"\s", None),
        (r"\bа", None),
        ("[A-z]", None),
        ("a{,2}", None),
        ("x" * 20_000, None),
    ],
)
def test_what_is_written_anew_and_what_is_left_to_the_client(expression: str, written: str | None) -> None:
    assert pcre(compile_expression(expression)) == written


def stages(**options: str) -> list[Any]:
    named = {name.replace("_", "."): text for name, text in options.items()}
    config = parse("mongodb", {"mongodb.connection.string": "mongodb://h/", "topic.prefix": "p", **named})
    return list(StreamSettings.of(config, CollectionFilter(config)).pipeline)


COMMANDS = {"operationType": {"$in": ["drop", "rename", "dropDatabase"]}}


def test_without_lists_only_operations_are_chosen() -> None:
    for skipped, kept in (("", ["insert", "update", "replace", "delete"]), ("u,d", ["insert"])):
        choices = [{"operationType": {"$in": kept}}, COMMANDS]
        assert stages(skipped_operations=skipped or "none") == [{"$match": {"$or": choices}}]


def test_an_expression_of_an_include_list_that_cannot_be_sent_opens_it() -> None:
    assert stages(collection_include_list=r"a[.]b,\s*") == stages()
    excluded = stages(collection_exclude_list=r"a[.]b,\s*")[0]["$match"]
    assert excluded == stages(collection_exclude_list="a[.]b")[0]["$match"]
    assert list(excluded["$or"][0]) == ["operationType", "$nor"]


def test_long_lists_are_several_patterns() -> None:
    names = ",".join(f"database_of_shop[.]collection_number_{number}" for number in range(400))
    choices = stages(collection_include_list=names)[0]["$match"]["$or"][0]["$or"]
    assert len(choices) > 1
    assert all(len(one["$expr"]["$regexMatch"]["regex"]) < 32_000 for one in choices)


def test_signals_and_the_end_of_a_stream_stay_in() -> None:
    match = stages(
        capture_scope="database", capture_target="d", signal_data_collection="d.s", collection_include_list="d.c",
        skipped_operations="c",
    )[0]["$match"]  # fmt: skip
    data, signals, commands, end = match["$or"]
    assert commands == COMMANDS
    assert data["operationType"] == {"$in": ["update", "replace", "delete"]}
    assert signals == {
        "operationType": {"$in": ["insert", "update", "replace", "delete"]}, "ns.db": "d", "ns.coll": "s",
    }  # fmt: skip
    assert end == {"operationType": "invalidate"}


def test_only_the_user_s_stages_may_be_wanted() -> None:
    given_ = '[{"$match": {"operationType": "insert"}}]'
    own = stages()
    user = [{"$match": {"operationType": "insert"}}]
    assert stages(cursor_pipeline=given_) == own + user
    assert stages(cursor_pipeline=given_, cursor_pipeline_order="user_first") == user + own
    assert stages(cursor_pipeline=given_, cursor_pipeline_order="user_only") == user
