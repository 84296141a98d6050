"""Both engines match an expression in the same texts, and no expression makes its matcher hang."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.config import expressions
from tailrace.config.expressions import compile_expression, compile_groups, signal_expression
from tailrace.connectors.mongodb.values.shell_json import strict_json

LETTERS = "abkKsSzZ09_.-$ \u212a\u017fé\u2028"
PIECES = (
    ["a", "K", "s", "é", r"\.", r"\x{6b}", "[a-c]", "[^A-K]", r"[\w.-]", r"[^\d]", r"\d", r"\W", r"\S", ".", "(?:a|b)",
     "(ab|)", "(a|ab)", "[Z-a]", "[^k]", "^", "$", r"\b", r"\B", r"\A", r"\z", r"\p{Alpha}", r"[\p{Punct}]", r"\Qa.\E",
     "(?i:k)", "(?s:.)", "(?<n>a)", "[^\u0000-\uffff]", "(.+)", "(a*b?)"]
)  # fmt: skip
REPEATED = st.tuples(
    st.sampled_from(PIECES), st.sampled_from(["", "", "*", "+", "?", "*?", "{1,2}", "{2}", "{0,}"])
).map("".join)
EXPRESSIONS = st.recursive(
    st.lists(REPEATED, max_size=4).map("".join),
    lambda inner: st.tuples(st.lists(inner, min_size=1, max_size=2), st.sampled_from(["", "*", "{1,3}", "?"])).map(
        lambda made: f"(?:{'|'.join(made[0])}){made[1]}"
    ),
    max_leaves=3,
)
NAMES = st.lists(st.text(LETTERS, max_size=6), min_size=6, max_size=6)


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_means_the_same_to_both_engines(piece: str, folds: bool) -> None:
    """Random names seldom match random expressions, so this test takes all short ones."""
    names = [*LETTERS, *map("".join, product(LETTERS + "\n\t", repeat=2))]
    for expression in (piece, f"(?:{piece})*", f"{piece}a?"):
        python = compile_groups("(?i)" * folds + expression)
        tree = expressions.ExpressionTree(python.pattern, ignore_case=False)
        assert expressions.matches(tree.linear(), names) == [python.fullmatch(name) is not None for name in names]


@given(EXPRESSIONS, NAMES, st.booleans())
@example(r"\B", ["", "a"], False)
def test_both_engines_match_the_same_names(expression: str, names: list[str], folds: bool) -> None:
    try:
        chosen = compile_expression(expression, ignore_case=folds)
        plain = compile_expression("(?i)" * folds + expression, ignore_case=False).backtracking
        tree = expressions.ExpressionTree(compile_groups("(?i)" * folds + expression).pattern, ignore_case=False)
    except ValueError:
        return
    if r"\B" in expression:
        # Python's own engine finds no place between two letters or none in an empty text; the other two do.
        names = [name for name in names if name]
    wanted = [compile_groups("(?i)" * folds + expression).fullmatch(name) is not None for name in names]
    assert expressions.matches(tree.linear(), names) == wanted
    assert chosen.among(names) == wanted
    assert [chosen.fullmatch(name) for name in names] == wanted
    assert plain is None or tree.is_harmless


@pytest.mark.parametrize(
    "expression",
    ["(.+)+x", "(a|a)*x", "(a|aa)+x", "(a?){40}a{40}x", "a?" * 40 + "a" * 41, ".*.*.*.*.*.*.*.*.*.*x", "((a*)*)*x",
     "(?:a|b|ab)*c", "(a+){2,}x", "(?:(?:a|a)(?:a|a)){30}x"],
)  # fmt: skip
def test_an_expression_with_many_ways_costs_no_more_than_any_other(expression: str) -> None:
    names = ["a" * 40, "a" * 100_000]
    assert signal_expression(expression).among(names) == [False, False]
    assert not compile_expression(expression).fullmatch("a" * 100_000)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a++x", "possessive"),
        ("(?>a)x", "atomic"),
        (r"(a)\1", "refers back"),
        ("(?=a)a", "looks ahead"),
        ("(?<!a)b", "looks ahead"),
        ("(?:ab?){2000}", "more than a thousand"),
        ("a" * 1001, "more than 1000 characters"),
        ("a{4294967296}", "not a regular expression"),
        ("(" * 900 + ")" * 900, "more than 1000 characters"),
        ("(" * 400, "not a regular expression"),
        ("(?:" * 240 + ")*" * 140, "not a regular expression"),
        ("(", "not a regular expression"),
    ],
)
def test_what_a_signal_may_not_ask_is_refused_by_name(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        signal_expression(expression)
    assert expression not in str(caught.value)


def test_what_the_linear_engine_lacks_is_taken_from_the_configuration() -> None:
    for expression, name in (("(?<!x)a++b", "aab"), (r"(a|b)+\1", "ab" + "b")):
        assert compile_expression(expression).fullmatch(name)
    with pytest.raises(ValueError, match=r"too many repetitions or nested groups"):
        compile_expression("a{4294967296}")


@pytest.mark.parametrize(
    "text",
    ["a(" + " " * 1_000_000, "a( x" + " " * 1_000_000, "new " * 200_000 + "a(", "'" * 1_000_001, "[" * 1_000_000],
)
def test_the_shell_s_json_is_read_in_one_pass(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not JSON|nests too much"):
        strict_json(text)
