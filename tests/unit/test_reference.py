"""The reference pages agree with the tables of options, and define each option once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tailrace.connectors.reference import BEGIN, END, SHARED, main, names, page, renew
from tailrace.connectors.registry import OWN, find, table

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def rows(name: str) -> list[tuple[str, str]]:
    """Return the rows of a page: the name of an option, and its other cells."""
    return re.findall(r"^\| (?:<a id=\"[^\"]+\"></a>)?`([^`]+)` (\|.*) \|$", page(name), re.M)


def covers(row: str, title: str) -> bool:
    """Return True if a row of the shared page holds for a database."""
    told = row.partition("*For:*")[2]
    without = row.partition("*Differs:*")[2] + row.partition("*Not for:*")[2]
    return title not in without and (not told or title in told)


@pytest.mark.parametrize("name", names())
def test_the_page_is_up_to_date(name: str) -> None:
    assert main([str(PAGES / f"{name}.md"), "--check"]) == 0, "run python -m tailrace.connectors.reference"


@pytest.mark.parametrize("connector", OWN)
def test_every_option_is_defined_once_for_each_database(connector: str) -> None:
    title = find(connector).title
    own = [name for name, _ in rows(title.lower().replace(" ", ""))]
    shared = [name for name, row in rows(SHARED) if covers(row, title)]
    assert sorted(own + shared) == sorted(option.name for option in table(connector))


def test_no_definition_stands_twice() -> None:
    found = Counter(row for on in names() for row in rows(on))
    assert [name for (name, _), count in found.items() if count > 1] == []


@pytest.mark.parametrize("name", names())
def test_an_option_has_one_link_target(name: str) -> None:
    targets = re.findall(r"<a id=\"([^\"]+)\">", page(name))
    assert len(targets) == len(set(targets))


def test_an_outdated_page_is_noticed_and_renewed(tmp_path: Path) -> None:
    old = tmp_path / "postgresql.md"
    old.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", "utf-8")
    assert main([str(old), "--check"]) == 1
    assert "stale" in old.read_text("utf-8")
    assert main([str(old)]) == 0
    assert old.read_text("utf-8") == f"before\n{BEGIN}\n{page('postgresql')}{END}\nafter\n"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        renew("postgresql", "nothing")


@pytest.mark.parametrize("connector", OWN)
def test_a_word_stands_beside_the_word_that_it_is_read_as(connector: str) -> None:
    title = find(connector).title
    found = [*rows(title.lower().replace(" ", "")), *((name, row) for name, row in rows(SHARED) if covers(row, title))]
    texts = dict(found)
    for option in table(connector):
        for word, taken, _ in option.instead:
            assert re.search(
                rf"Read as `{re.escape(taken)}`, with a warning:[^.]*`{re.escape(word)}`", texts[option.name]
            )
