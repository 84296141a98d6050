"""The reference page says what the table of options says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config.config import TABLES
from tailrace.config.reference import AREAS, BEGIN, END, main, page, renew

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "postgres.md"


def test_the_page_is_up_to_date() -> None:
    assert main([str(PAGE), "--check"]) == 0, "run python -m tailrace.config.reference"


def test_every_option_is_in_one_area() -> None:
    assert tuple(option for _, options in AREAS for option in options) == TABLES["postgres"]


def test_every_option_is_in_one_row() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(TABLES["postgres"])
    for option in TABLES["postgres"]:
        assert sum(row.startswith(f"| `{option.name}` |") for row in rows) == 1, option.name


def test_an_outdated_page_is_noticed_and_renewed(tmp_path: Path) -> None:
    old = tmp_path / "page.md"
    old.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", "utf-8")
    assert main([str(old), "--check"]) == 1
    assert "stale" in old.read_text("utf-8")
    assert main([str(old)]) == 0
    assert old.read_text("utf-8") == f"before\n{BEGIN}\n{page()}{END}\nafter\n"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        renew("nothing")
