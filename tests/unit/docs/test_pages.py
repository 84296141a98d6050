"""Limits of a page of the documentation: its length, its pictures, the options and files that it names."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.unit.docs.test_site import CODE, DOCS, ROOT, pages, prose
from tools.house.prose import long_sentences, sentences, words
from tools.pictures.svg import drawn

MOST_WORDS = 2500
PICTURES = DOCS / "pictures"
GENERATED = tuple(
    f"reference/{name}.md" for name in ("options", "postgresql", "sqlserver", "mongodb", "db2", "mysql", "mariadb")
)
"""Their options are compared with the tables of the connectors by tests/unit/test_reference.py."""
TABLE = re.compile(r"^\| (option[^|\n]*)\| default [^\n]*\n\|[-: |]+\n((?:\|[^\n]*\n)+)", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]+\]\([^)]*pictures/([\w-]+)\.svg\)")
PARTS = ("reference/transforms.md", "reference/debezium-transforms.md", "reference/encodings.md")
"""Their options are those of a transform or a converter, which may have names of others."""
FIGURE = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def others() -> list[str]:
    """Return the pages outside of the reference."""
    return [page for page in pages() if not page.startswith("reference/")]


@pytest.mark.parametrize("page", others())
def test_a_page_can_be_read_in_one_sitting(page: str) -> None:
    assert words((DOCS / page).read_text("utf-8")) <= MOST_WORDS


def test_no_option_is_defined_on_two_pages() -> None:
    places = defaultdict(set)
    for page in pages():
        if page in (*GENERATED, *PARTS):
            continue
        for head, body in TABLE.findall(f"{prose(page)}\n"):
            prefix = re.search(r"`([^`]+\.)`", head)
            for names in re.findall(r"^\| ([^|]*)\|", body, re.MULTILINE):
                for name in re.findall(r"`([^`=]+)`", names):
                    places[(prefix[1] if prefix else "") + name].add(page)
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


def test_no_figure_stands_on_two_pages() -> None:
    """A figure is a number that somebody has measured: of those with separators, one that is not round."""
    places = defaultdict(set)
    for page in pages():
        for figure in FIGURE.findall(CODE.sub("", prose(page))):
            if len(figure.replace(",", "").rstrip("0")) > 2 and int(figure.replace(",", "")) & 1023:
                places[figure].add(page)
    assert {figure: sorted(found) for figure, found in places.items() if len(found) > 1} == {}


def test_the_readmes_figures_are_those_of_the_page() -> None:
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Figures\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[2:4]] for line in section.splitlines() if "`make" in line]
    page = prose("contribute/figures.md")
    assert len(rows) == 3
    for figure, command in rows:
        assert command in page
        assert [number for number in re.findall(r"[\d.,]*\d", figure) if number not in page] == []


@pytest.mark.parametrize("source", sorted(PICTURES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_picture_is_made_of_its_source(source: Path) -> None:
    made = source.with_suffix(".svg").read_text("utf-8")
    assert made == drawn(source.read_text("utf-8")), "run python -m tools.pictures"
    assert "prefers-color-scheme:dark" in made
    assert "://" not in made.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_every_picture_has_a_source_and_is_shown() -> None:
    made = {path.stem for path in PICTURES.glob("*.svg")}
    shown = {name for page in pages() for name in PICTURE.findall(prose(page))}
    assert made == {path.stem for path in PICTURES.glob("*.toml")} == shown


def test_a_picture_refuses_a_box_that_is_not_there() -> None:
    head = 'title = "t"\nalt = "a"\nsize = [10, 10]\n[[box]]\nid = "a"\nat = [0, 0]\nsize = [4, 4]\n'
    with pytest.raises(ValueError, match="there is no box b"):
        drawn(f'{head}[[arrow]]\nfrom = "b.left"\nto = [0, 0]\n')
    with pytest.raises(ValueError, match="no side middle"):
        drawn(f'{head}[[arrow]]\nfrom = "a.middle"\nto = [0, 0]\n')


@pytest.mark.parametrize("page", pages())
def test_nothing_is_loaded_from_another_host(page: str) -> None:
    assert re.findall(r"!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b[^>]*https?:", prose(page)) == []


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith(("contribute/", "decisions/"))])
def test_files_that_a_page_for_contributors_names_exist(page: str) -> None:
    named = re.findall(r"`([\w./-]+\.(?:py|md|toml|json))`", prose(page))
    bases = (ROOT, ROOT / "src" / "tailrace", ROOT / "src" / "tailrace" / "connectors" / "postgres")
    # what runs make is not there yet
    missing = [name for name in named if not any((base / name).exists() for base in bases) and "build/" not in name]
    assert missing == []


def test_long_sentences_are_counted_outside_of_code_and_tables(tmp_path: Path) -> None:
    text = "# Head\n\nOne `two three` four. Five.\n\n| a table | of words |\n\n```sh\ncode here\n```\n"
    assert [words(sentence) for sentence in sentences(text)] == [1, 3, 1]
    (tmp_path / "page.md").write_text(f"{' '.join(['word'] * 36)}.\n", "utf-8")
    assert long_sentences(tmp_path)[0].startswith("  36 page.md: word")
