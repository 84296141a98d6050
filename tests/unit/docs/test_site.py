"""The site's pages: each is in the navigation, and its links, anchors and pictures exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(r"!?\[[^\]\[]*\]\(([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +\{ *#([\w-]+) *\})?$", re.MULTILINE)


def pages() -> list[str]:
    """Return the pages of the site, each as its path below docs."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@cache
def prose(page: str) -> str:
    """Return the text of a page without its blocks of code."""
    return FENCE.sub("", (DOCS / page).read_text("utf-8"))


@cache
def anchors(page: str) -> frozenset[str]:
    """Return the anchors of a page: those of its headings, as the site makes them, and its own."""
    found: dict[str, int] = {}
    for title, own in HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        name = own or slugify(plain, "-")
        found[name] = found.get(name, -1) + 1
    repeated = {f"{name}_{number}" for name, count in found.items() for number in range(1, count + 1)}
    return frozenset(found) | repeated | frozenset(re.findall(r'\b(?:id|name)="([\w.-]+)"', prose(page)))


def listed(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of the navigation."""
    for entry in entries:
        for page in entry.values() if isinstance(entry, dict) else [entry]:
            yield from listed(page) if isinstance(page, list) else [page]


def broken(page: str) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    for target in LINK.findall(CODE.sub("", prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = ((DOCS / page).parent / path).resolve() if path else DOCS / page
        if (
            DOCS not in found.parents
            or not found.is_file()
            or (anchor and anchor not in anchors(found.relative_to(DOCS).as_posix()))
        ):
            yield target


def test_every_page_is_in_the_navigation_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    assert sorted(listed(project["nav"])) == pages()


@pytest.mark.parametrize("page", pages())
def test_links_and_anchors_exist(page: str) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_the_root_exist(name: str) -> None:
    text = CODE.sub("", FENCE.sub("", (ROOT / name).read_text("utf-8")))
    wrong = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        found = ROOT / path
        if re.match(r"[a-z]+:", target) or not path:
            continue
        if not found.exists() or (anchor and anchor not in anchors(found.relative_to(DOCS).as_posix())):
            wrong.append(target)
    assert wrong == []
