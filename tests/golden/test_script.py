"""The statement splitter reads scripts as PostgreSQL's own lexer does."""

import pytest

from tests.golden.script import Directive, Statement, split


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("select 1; select 2", ["select 1", "select 2"]),
        ("select ';'; select 'it''s; x'", ["select ';'", "select 'it''s; x'"]),
        (r"select E'\';'; select 1", [r"select E'\';'", "select 1"]),
        (r"select '\'; select 1", [r"select '\'", "select 1"]),
        ('select 1 as "a;""b"; select 2', ['select 1 as "a;""b"', "select 2"]),
        ("do $$ begin; end $$; select $a$ ; $$ ; $a$", ["do $$ begin; end $$", "select $a$ ; $$ ; $a$"]),
        ("select a$b$c; select 1", ["select a$b$c", "select 1"]),
        ("select $1; select 2", ["select $1", "select 2"]),
        ("-- a; b\nselect 1 -- c; d\n; -- e", ["select 1 -- c; d"]),
        ("/* a; /* b; */ c; */ select 1; /* nothing */ ;", ["select 1"]),
        (
            "create function f() returns int begin atomic select 1; select case when a then 1 end; end; select 2",
            [
                "create function f() returns int begin atomic select 1; select case when a then 1 end; end",
                "select 2",
            ],
        ),
        ("begin; select 1; commit;", ["begin", "select 1", "commit"]),
        ("select 4/2-1; select 'née;'", ["select 4/2-1", "select 'née;'"]),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(script: str, statements: list[str]) -> None:
    assert split(script) == [Statement(text) for text in statements]


def test_directives_stand_between_statements() -> None:
    script = "select 1;\n--@ settle 2\n-- a comment\n  --@ stop\nselect 2;\n--@ wait 10\n"
    assert split(script) == [
        Statement("select 1"),
        Directive("settle", "2"),
        Directive("stop", ""),
        Statement("select 2"),
        Directive("wait", "10"),
    ]


def test_a_directive_inside_quotes_is_text() -> None:
    assert split("select $$\n--@ stop\n$$") == [Statement("select $$\n--@ stop\n$$")]


def test_the_lines_behind_a_copy_are_its_data() -> None:
    script = (
        "select 1;\ncopy t (a, b)\n  from STDIN with (format csv); \n1,it's; --\n--@ stop\n\\.\n--@ stop\nselect 2;\n"
    )
    assert split(script) == [
        Statement("select 1"),
        Statement("copy t (a, b)\n  from STDIN with (format csv)", "1,it's; --\n--@ stop\n"),
        Directive("stop", ""),
        Statement("select 2"),
    ]
    assert split("copy t from stdin;\n\\.\n") == [Statement("copy t from stdin", "")]
    assert split("copy t from '/f'; select 1") == [Statement("copy t from '/f'"), Statement("select 1")]


@pytest.mark.parametrize("script", ["copy t from stdin; 1\n\\.\n", "copy t from stdin;\n1\n", "copy t from stdin;"])
def test_a_copy_without_its_data_is_an_error(script: str) -> None:
    with pytest.raises(ValueError, match="the data of a COPY from stdin"):
        split(script)


@pytest.mark.parametrize("script", ["--@ jump 3", "select 'a", "select $$ a", "/* a", "select 1\n--@ stop\n"])
def test_what_cannot_be_read_is_an_error(script: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        split(script)
