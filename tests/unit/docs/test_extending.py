"""The pages that lead to the code name fields, modules, classes and methods that exist."""

from __future__ import annotations

import ast
import dataclasses
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tailrace.connectors.descriptor import Descriptor
from tests.unit.docs.test_site import ROOT, prose

PAGE = "contribute/extending.md"
PAGES = (PAGE, "contribute/architecture.md")
SOURCES = (ROOT / "src" / "tailrace", ROOT / "tests" / "extending", ROOT / "tests" / "contract")
PACKAGES = (ROOT / "src" / "tailrace", ROOT / "src" / "tailrace" / "connectors" / "postgres")
"""The directories from which a dotted name may begin."""
TOYLOG = ROOT / "tests" / "extending" / "database" / "toylog"
GROUPS = {"tailrace.predicates"}
"""Groups of entry points that have no package of their name."""
OTHERS = {"DefaultSource", "availableNow", "foreachBatch", "pyspark_toylog_cdc", "spark.read"}
"""Names of Spark's, and one for a package of others."""
NAMES = re.compile(r"^ *(?:class|def) (\w+)|^ *((?:\w+, )*\w+)(?:: [^=\n]+)? = |(?:^ +|[(,] ?)(\w+): ", re.MULTILINE)


def spans(page: str) -> list[str]:
    """Return what a page gives in code style."""
    return re.findall(r"`([^`]+)`", prose(page))


@cache
def texts() -> dict[Path, str]:
    """Return the sources. Only those that define a name of the page are parsed, since parsing all takes seconds."""
    return {path: path.read_text("utf-8") for folder in SOURCES for path in folder.rglob("*.py")}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(texts()[path])))


def defined(word: str, name: str) -> Iterator[ast.AST]:
    """Yield the definitions of a name, by the word `class` or `def`."""
    found = re.compile(rf"^ *{word} {name}\b", re.MULTILINE)
    for path, text in texts().items():
        if found.search(text):
            yield from (node for node in nodes(path) if getattr(node, "name", "") == name)


@cache
def names(path: Path) -> frozenset[str]:
    """Return the classes, functions, variables and parameters of a module."""
    found: set[str] = set()
    for definition, variables, annotated in NAMES.findall(texts()[path]):
        found.update((definition, annotated), variables.split(", "))
    return frozenset(found)


@cache
def every_name() -> frozenset[str]:
    """Return the names of all modules, and those in them."""
    return frozenset().union(*({path.stem, path.parent.name} | names(path) for path in texts()))


def is_there(place: str) -> bool:
    """Return True if a dotted name is a module of the product, or a name in one."""
    path = ROOT / "src" / place.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    if path.parent.is_dir():
        # a package imports what it offers
        return re.search(rf"\bimport .*\b{path.name}\b", texts()[path.parent / "__init__.py"]) is not None
    return path.name in names(path.parent.with_suffix(".py"))


def takes(name: str, parameters: list[str]) -> bool:
    """Return True if a function or method has this name and these parameters."""
    return any(
        [one.arg for one in node.args.args if one.arg != "self"] == parameters
        for node in defined("def", name)
        if isinstance(node, ast.FunctionDef)
    )


def has(name: str, member: str) -> bool:
    """Return True if a class of this name defines the member."""
    return any(
        getattr(part, "name", "") == member or getattr(getattr(part, "target", None), "id", "") == member
        for node in defined("class", name)
        if isinstance(node, ast.ClassDef)
        for part in node.body
    )


def unknown(page: str) -> Iterator[str]:
    """Yield the spans that look like names in Python and are not."""
    for span in spans(page):
        call = re.fullmatch(r"([\w.]+)\((|[a-z]\w*(?:, [a-z]\w*)*)\)", span)
        name = call[1] if call else span
        if name in GROUPS | OTHERS or re.fullmatch(r"[A-Za-z_][\w.]*\w", name) is None:
            continue
        first, _, member = name.partition(".")
        if first == "tailrace":
            fits = is_there(name)
        elif first == "toylog":
            fits = (TOYLOG / f"{member}.py").is_file()
        elif member and first[0].isupper():
            fits = has(first, member)
        elif member and any((folder / first).is_dir() for folder in PACKAGES):
            fits = any((folder / name.replace(".", "/")).with_suffix(".py").is_file() for folder in PACKAGES)
        elif member:
            # an option, whose names other tests look up
            continue
        elif call:
            fits = takes(name, call[2].split(", ") if call[2] else [])
        else:
            fits = name in every_name()
        if not fits:
            yield span


@pytest.mark.parametrize("page", PAGES)
def test_the_names_on_a_page_exist(page: str) -> None:
    assert sorted(set(unknown(page))) == []


def test_the_table_of_the_descriptor_has_every_field_once() -> None:
    table = prose(PAGE).partition("| field | what it names |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(Descriptor))


def lines_of_code(path: Path) -> int:
    """Return the number of a module's lines without blank lines, comments and docstrings."""
    text = path.read_text("utf-8")
    kept = {
        line
        for token in tokenize.generate_tokens(StringIO(text).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        and token.string
        for line in range(token.start[0], token.end[0] + 1)
    }
    docs = (
        one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    )
    return len(kept.difference(*(range(one.lineno, (one.end_lineno or one.lineno) + 1) for one in docs)))


def test_the_whole_connector_is_as_short_as_the_page_says() -> None:
    said = re.search(r"is a whole connector in (\d+) lines of code", prose(PAGE))
    assert said is not None
    assert sum(lines_of_code(path) for path in TOYLOG.glob("*.py")) <= int(said[1])
