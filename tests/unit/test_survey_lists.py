"""The lists of a first file name the tables that were found, and match these alone."""

from __future__ import annotations

import re

from tailrace.connectors.survey import LISTED, lists


def test_without_tables_there_is_no_list() -> None:
    assert lists((), "schema") == ()


def test_names_match_themselves_alone() -> None:
    ((option, text),) = lists([("dbo", "a.b"), ("dbo", "c|d")], "schema")
    assert option == "table.include.list"
    expressions = text.split(",")
    found = [
        one for one in ("dbo.a.b", "dbo.axb", "dbo.c|d", "dbo.c") if any(re.fullmatch(e, one) for e in expressions)
    ]
    assert found == ["dbo.a.b", "dbo.c|d"]


def test_many_tables_are_named_by_what_holds_them() -> None:
    tables = [(f"s{number % 2}", f"t{number}") for number in range(LISTED + 1)]
    assert lists(tables, "schema") == (("schema.include.list", "s0,s1"),)
