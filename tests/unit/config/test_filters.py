"""Include and exclude lists match like Java's expressions: anchored, and ignoring the case of ASCII letters."""

from __future__ import annotations

import pickle

import pytest

from tailrace.config import TableFilter
from tailrace.config.expressions import compile_expression
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError

REQUIRED = {"database.hostname": "db", "database.user": "reader", "database.dbname": "shop"}


def lists(**options: str) -> TableFilter:
    return TableFilter(parse("postgres", REQUIRED | {f"{n.replace('_', '.')}.list": t for n, t in options.items()}))


def test_an_expression_matches_the_whole_name_in_any_case() -> None:
    chosen = lists(table_include=r"s1\.(A|b),.*\.a")
    assert chosen.includes("S1", "a")
    assert chosen.includes("s1", "B")
    assert chosen.includes("other", "A")
    assert not chosen.includes("s1", "bb")
    assert not chosen.includes("s11", "b")


def test_both_lists_of_schemas_and_tables_apply() -> None:
    chosen = lists(schema_include="public,sales", table_exclude=r"public\.log_.*")
    assert chosen.includes("public", "orders")
    assert not chosen.includes("public", "log_2024")
    assert not chosen.includes("other", "orders")


def test_without_lists_everything_but_the_servers_own_tables_is_captured() -> None:
    chosen = lists()
    assert chosen.is_open
    assert chosen.includes("public", "t")
    for schema in ("pg_catalog", "information_schema", "pg_toast", "pg_temp_3"):
        assert not chosen.includes(schema, "t")


def test_the_servers_own_tables_cannot_be_asked_for() -> None:
    assert not lists(table_include=".*").includes("pg_catalog", "pg_class")


def test_a_filter_pickles() -> None:
    assert pickle.loads(pickle.dumps(lists(table_include=r"a\.b"))).includes("a", "b")


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        (r"\Qa.b\E\.c", "a.b.c", "axb.c"),
        (r"\Qa.b", "A.B", "axb"),
        (r"public\.\p{Alpha}+", "public.abc", "public.a1"),
        (r"public\.[\p{Alnum}_]+", "public.a_1", "public.a-1"),
        (r"public\.\P{Digit}+", "public.ab", "public.a1"),
        (r"(?<n>a)\k<n>", "aa", "ab"),
        (r"a\z", "a", "ab"),
        (r"a\x{62}", "ab", "ac"),
        (r"(?<!x)a", "a", "b"),
        (r"a++b", "aab", "b"),
        (r"[a-c&d]+", "a&d", "e"),
        (r"a{1\,3}".replace("\\,", ","), "aaa", "aaaa"),
        ("é", "é", "É"),
        (r"\w+", "abc", "é"),
    ],
)
def test_java_syntax_is_understood(expression: str, matching: str, other: str) -> None:
    compiled = compile_expression(expression)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize("expression", ["[a-z&&[^x]]", "[a[b]]", r"\p{IsGreek}", r"\Xa", "a(", "a[", "*a", "a\\"])
def test_what_python_cannot_do_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_expression(expression)
    with pytest.raises(ConfigError, match=r"table\.include\.list"):
        lists(table_include=expression)


def test_include_and_exclude_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        lists(table_include="a.b", table_exclude="c.d")
