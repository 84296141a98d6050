"""The reference pages say what the tables of options say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.connectors.reference import BEGIN, END, main, page, renew
from tailrace.connectors.registry import OWN, table

PAGES = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", OWN)
def test_the_page_is_up_to_date(name: str) -> None:
    assert main([str(PAGES / f"{name}.md"), "--check"]) == 0, "run python -m tailrace.connectors.reference"


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_in_one_row(name: str) -> None:
    rows = [line for line in page(name).splitlines() if line.startswith("| `")]
    assert len(rows) == len(table(name))
    for option in table(name):
        assert sum(row.startswith(f"| `{option.name}` |") for row in rows) == 1, option.name


def test_an_outdated_page_is_noticed_and_renewed(tmp_path: Path) -> None:
    old = tmp_path / "postgres.md"
    old.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", "utf-8")
    assert main([str(old), "--check"]) == 1
    assert "stale" in old.read_text("utf-8")
    assert main([str(old)]) == 0
    assert old.read_text("utf-8") == f"before\n{BEGIN}\n{page('postgres')}{END}\nafter\n"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        renew("postgres", "nothing")
