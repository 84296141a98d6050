"""The blocks of code in the pages of the site, and the marks that say how tests treat them.

A mark is a comment of HTML on the line before a block, which readers do not see:

- `<!-- run -->`: `tests/e2e/test_pages.py` runs the block. A block of the language `text` and without a title that
  follows, with nothing but a sentence between, is its output. There, `…` stands for what differs from run to run: any
  text within a line, and any number of lines if it is a line of its own.
- `<!-- run: full -->`: the same, in a process of its own and in a full run alone.
- `<!-- file: NAME -->`: the block is written to that file before the next one runs.

Other blocks do not run. `tests/unit/docs/test_blocks.py` judges them by themselves: it reads configurations, parses
command lines and looks for what is imported. In the directories whose blocks run, any other block has a title that says
to the reader why it does not run, or what it is: `title="not run by the tests: …"`, `title="an example"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>run|run: full|file: \S+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_BETWEEN = re.compile(r"\s*(?:[^\n`#|]+\n)?\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page. `output` is None if the page shows none; `title` is "" unless the page shows one."""

    page: str
    line: int
    language: str
    mark: str
    title: str
    text: str
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, named by its path below docs, in order."""
    text = (DOCS / page).read_text("utf-8")
    found = list(_BLOCK.finditer(text))
    for place, one in enumerate(found):
        mark = one["mark"] or ""
        following = found[place + 1] if place + 1 < len(found) else None
        output = None
        is_output = following is not None and following["language"] == "text" and not following["title"]
        if mark.startswith("run") and following is not None and is_output:
            between = text[one.end() : following.start()]
            output = _plain(following) if _BETWEEN.fullmatch(between) else None
        line = text.count("\n", 0, one.start("language")) + 1
        yield Block(page, line, one["language"], mark, one["title"] or "", _plain(one), output)


def _plain(found: re.Match[str]) -> str:
    return re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)


def pages() -> list[str]:
    """Return the pages of the site, each as its path below docs."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def shown(expected: str, output: str) -> bool:
    """Return True if an output is what the page shows, where `…` stands for anything."""
    lines = [r"(?:.*\n)*" if line.strip() == "…" else _line(line) for line in expected.splitlines()]
    return re.fullmatch("".join(lines), output.rstrip() + "\n") is not None


def _line(text: str) -> str:
    return ".*".join(map(re.escape, text.rstrip().split("…"))) + r" *\n"
