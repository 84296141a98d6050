"""The table of documented behaviours and the tests that show them: `python -m tests.architecture.behaviours`.

The lines are in behaviours.toml beside this module. The marks of the tests, which are read without running the tests,
tell which test shows which line. The table stands between two markers in docs/reference/chapters.md.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
LINES = Path(__file__).with_name("behaviours.toml")
GOLDEN = TESTS / "golden"
PAGE = ROOT / "docs" / "reference" / "chapters.md"
MARK = "seed"
BEGIN, END = "<!-- behaviours: begin -->", "<!-- behaviours: end -->"


@dataclass(frozen=True, slots=True)
class Document:
    """A page of documentation: its number, its subject, its lines by id; behaviours.toml explains `wire` and
    `missing`."""

    number: str
    title: str
    lines: Mapping[str, str]
    wire: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def documents(path: Path = LINES) -> list[Document]:
    """Return the pages whose lines are all shown. Raises ValueError for an id that is not a line of its page."""
    found = []
    for number, content in tomllib.loads(path.read_text("utf-8")).items():
        page = Document(number, **content)
        strange = [name for name in page.lines if name.partition("-")[0] != number]
        strange += sorted({*page.wire, *page.missing} - set(page.lines))
        if strange:
            raise ValueError(f"{path.name}: {strange} under {number}")
        found.append(page)
    return found


@cache
def shown(tests: Path = TESTS) -> dict[str, list[str]]:
    """Return the tests, as `file::function`, and the golden cases that show each id, sorted by name.

    A golden case that is expected to fail shows nothing. Raises ValueError for a mark whose ids are not literals.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        name = path.relative_to(tests).as_posix()
        for function, identity in _marks(ast.parse(path.read_text("utf-8")), name):
            found.setdefault(identity, []).append(f"`{name}::{function}`")
    for case, identities in golden().items():
        for identity in identities:
            found.setdefault(identity, []).append(f"golden case `{case}`")
    return found


@cache
def golden() -> dict[str, list[str]]:
    """Return the ids of each golden case that has some and is expected to be equal."""
    listed = tomllib.loads((GOLDEN / "behaviours.toml").read_text("utf-8"))
    failing = tomllib.loads((GOLDEN / "expected_failures.toml").read_text("utf-8"))
    return {case: list(identities) for case, identities in sorted(listed.items()) if case not in failing}


def _marks(module: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """Return the functions of a module with the ids in their own marks, in the order of the file."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(f"mark.{MARK}"):
            continue
        owner = next((one for one in module.body if node in getattr(one, "decorator_list", [])), None)
        texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if not isinstance(owner, ast.FunctionDef) or len(texts) != len(node.args) or node.keywords or not texts:
            raise ValueError(f"{name}:{node.lineno}: a {MARK} mark decorates a test function and has literal ids")
        for text in texts:
            yield owner.name, str(text)


def table(pages: list[Document], tests: Mapping[str, list[str]]) -> str:
    """Return the tables of all pages in Markdown, each under a heading of its own."""
    parts = []
    for page in pages:
        lines = [f"## {page.title}", "", "| id | behaviour | shown by |", "|---|---|---|"]
        for identity, text in page.lines.items():
            notes = [text]
            if identity in page.wire:
                notes.append(f"On the wire: {page.wire[identity]}")
            if identity in page.missing:
                notes.append(f"Not there yet: {page.missing[identity]}")
            lines.append(f"| {identity} | {'. '.join(notes)} | {'<br>'.join(tests.get(identity, []))} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def replaced(page: str, content: str) -> str:
    """Return `page` with `content` between its markers. Raises ValueError unless it has exactly one pair of them."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page needs {BEGIN} and {END}, once each")
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{content}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Write the table. Return the exit code."""
    page = PAGE.read_text("utf-8")
    PAGE.write_text(replaced(page, table(documents(), shown())), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
