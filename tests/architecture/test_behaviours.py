"""Each documented behaviour is shown by a test, and the page names the test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture import behaviours
from tests.architecture.behaviours import Document
from tests.golden import case as cases
from tests.golden import runner


def test_every_line_of_a_document_is_shown_by_a_test() -> None:
    found = behaviours.shown()
    assert [name for page in behaviours.documents() for name in page.lines if name not in found] == []


def test_no_test_names_a_line_that_its_document_does_not_have() -> None:
    lines = {page.number: page.lines for page in behaviours.documents()}
    named = behaviours.shown()
    assert [name for name in named if name not in lines.get(name.partition("-")[0], {name: ""})] == []


def test_the_table_is_what_the_tests_say() -> None:
    page = behaviours.PAGE.read_text("utf-8")
    made = behaviours.replaced(page, behaviours.table(behaviours.documents(), behaviours.shown()))
    assert page == made, "write it again: python -m tests.architecture.behaviours"


def test_the_golden_cases_that_show_something_come_with_the_repository() -> None:
    shipped = {case.name for case in cases.find(runner.SHIPPED)}
    assert set(behaviours.golden()) - shipped == set()


def test_a_mark_is_found_on_its_function() -> None:
    text = '@pytest.mark.seed("1-1", "1-2")\n@pytest.mark.skip\ndef test_a():\n  pass\ndef test_b():\n  pass'
    assert list(behaviours._marks(ast.parse(text), "f")) == [("test_a", "1-1"), ("test_a", "1-2")]


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.seed(ID)\ndef test_a(): pass",
        "@pytest.mark.seed()\ndef test_a(): pass",
        "@pytest.mark.seed(id='1-1')\ndef test_a(): pass",
        "pytestmark = pytest.mark.seed('1-1')",
    ],
)
def test_a_mark_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="f:1: a seed mark"):
        list(behaviours._marks(ast.parse(text), "f"))


def test_the_table_says_what_differs_and_what_is_missing() -> None:
    page = Document("1", "Title", {"1-1": "one", "1-2": "two"}, {"1-1": "three"}, {"1-2": "four"})
    assert behaviours.table([page], {"1-1": ["`a`", "`b`"]}).splitlines() == [
        "## Title",
        "",
        "| id | behaviour | shown by |",
        "|---|---|---|",
        "| 1-1 | one. On the wire: three | `a`<br>`b` |",
        "| 1-2 | two. Not there yet: four |  |",
    ]


def test_a_page_needs_its_markers() -> None:
    whole = f"a {behaviours.BEGIN} old {behaviours.END} b"
    assert behaviours.replaced(whole, "new") == f"a {behaviours.BEGIN}\nnew\n{behaviours.END} b"
    for page in ("", whole + behaviours.END, behaviours.BEGIN):
        with pytest.raises(ValueError, match="once each"):
            behaviours.replaced(page, "new")


def test_an_id_belongs_to_its_document(tmp_path: Path) -> None:
    path = tmp_path / "lines.toml"
    path.write_text('[000]\ntitle = "t"\nlines = {"001-01" = "x"}\n', "utf-8")
    with pytest.raises(ValueError, match="001-01"):
        behaviours.documents(path)
    path.write_text('[000]\ntitle = "t"\nlines = {"000-01" = "x"}\nwire = {"000-02" = "y"}\n', "utf-8")
    with pytest.raises(ValueError, match="000-02"):
        behaviours.documents(path)
