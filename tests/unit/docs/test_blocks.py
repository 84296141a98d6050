"""In the pages' code blocks, configurations are valid, and commands and imports exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest

from tailrace.command import cli
from tailrace.config.files import RunConfig
from tailrace.config.properties import parse_properties
from tailrace.connectors.registry import OWN, from_entries, table
from tests.pages import DOCS, Block, blocks, pages, shown

BASES = {
    "": "connector.class=PostgreSQL\ndatabase.hostname=h\ndatabase.user=u\ndatabase.dbname=d\ntopic.prefix=p\n",
    "databases/mongodb.md": "connector.class=MongoDB\ntopic.prefix=p\nmongodb.connection.string=mongodb://h/?replicaSet=r\n",
}
"""Further entries for a page's fragment of a file."""
AREAS = ("start", "from-debezium", "databases", "sinks", "pyspark", "operate", "guarantees", "reference")
"""Directories of pages for users."""
WITHOUT = {"reference/chapters.md", "reference/encodings.md"}
"""Pages that name options of things other than sources."""


def users_pages() -> list[str]:
    return [page for page in pages() if page.partition("/")[0] in AREAS]


def of(language: str) -> list[Block]:
    """Return all blocks of a language."""
    return [block for page in users_pages() for block in blocks(page) if block.language == language]


def whole(block: Block) -> dict[str, str]:
    """Return the entries of a block, with entries that its page has shown before or leaves out."""
    entries = parse_properties(block.text)
    if any(name.endswith("connector.class") for name in entries):
        return entries
    prefix = "debezium.source." if any(name.startswith("debezium.") for name in entries) else ""
    base = parse_properties(BASES.get(block.page, BASES[""]))
    shown_before = [one for one in blocks(block.page) if one.language == "properties" and one.line < block.line]
    before = {name: text for one in shown_before for name, text in parse_properties(one.text).items() if prefix}
    if "debezium.sink.type" in entries:
        before = {name: text for name, text in before.items() if not name.startswith("debezium.sink.")}
    return {prefix + name: text for name, text in base.items()} | before | entries


def variables(entries: Mapping[str, str]) -> dict[str, str]:
    """Return a value for each variable that entries refer to."""
    return dict.fromkeys(re.findall(r"\$\{(?:env:)?([A-Z_0-9]+)\}", " ".join(entries.values())), "value")


@pytest.mark.parametrize("block", of("properties"), ids=str)
def test_a_configuration_is_understood(block: Block) -> None:
    entries = whole(block)
    assert isinstance(from_entries(entries, variables(entries)), RunConfig)


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the command lines of tailrace in a block of the shell."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words[:1] == ["tailrace"]:
            yield words[1:]


@pytest.mark.parametrize("block", [block for block in of("sh") if any(commands(block))], ids=str)
def test_a_command_exists(block: Block) -> None:
    for words in commands(block):
        cli._parser().parse_args(words)


RUN = ("start/", "from-debezium/", "sinks/", "pyspark/", "operate/")
"""The directories of which `tests/e2e/test_pages.py` runs the blocks."""
ALONE = re.compile(r"tailrace |pip install |export |python3 -m venv |\.venv/bin/pip |echo |#|$")
"""The lines of the shell that a reader can try without anything that the page does not bring."""


@pytest.mark.parametrize(
    "block",
    [one for one in of("sh") if not one.mark and not one.title and not one.page.startswith(RUN)],
    ids=str,
)
def test_a_block_of_the_shell_runs_or_says_why_not(block: Block) -> None:
    assert [line for line in block.text.replace("\\\n", " ").splitlines() if ALONE.match(line.lstrip()) is None] == []


@pytest.mark.parametrize("page", [page for page in users_pages() if page.startswith(RUN)])
def test_a_block_runs_or_is_an_output_or_says_why_not(page: str) -> None:
    """A configuration needs neither: `test_a_configuration_is_understood` reads each of them."""
    found = list(blocks(page))
    outputs = {following.line for block, following in pairwise(found) if block.output is not None}
    bare = [one for one in found if not one.mark and not one.title and one.line not in outputs]
    assert [str(one) for one in bare if one.language != "properties"] == []


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_what_is_imported_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, name.name) for name in node.names), node.module


def known() -> re.Pattern[str]:
    """Return an expression for the names of all options of sources."""
    found = []
    for option in (option for connector in OWN for option in table(connector)):
        found += [re.escape(name) for name in (*option.aliases, *option.deprecated_names)]
        found.append(option.pattern or re.escape(option.name))
    return re.compile("|".join(f"(?:{one})" for one in found), re.IGNORECASE)


OPTION = re.compile(
    r"(?:snapshot|slot|publication|signal|incremental\.snapshot|event|topic|table|column|schema\.(?:in|ex)clude"
    r"|tombstones|heartbeat|decimal|time\.precision|binary|skipped|max|poll|capture|cursor|notification|row)\.[a-z.]+[a-z]"
)
"""Names in sentences and tables that are options of sources."""
OTHERS = re.compile(
    r"topic\.(?:creation\..*|expression|format|field|num)|max\.(?:bytes|request\.size|message\.bytes)"
    r"|table\.(?:field|fields|op|json|name|expand)\..*"
)
"""Names that are also options of sinks or transforms."""


def named(page: str) -> Iterator[str]:
    """Yield the options of sources that a page names in its sentences and tables."""
    text = re.sub(r"^( *)```.*?^\1```$", "", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", text):
        name = span.partition("=")[0].strip()
        if OPTION.fullmatch(name) and not OTHERS.fullmatch(name):
            yield name


@pytest.mark.parametrize("page", [page for page in users_pages() if page not in WITHOUT])
def test_options_that_a_page_names_exist(page: str) -> None:
    options = known()
    assert [name for name in named(page) if options.fullmatch(name) is None] == []


def test_an_output_is_compared_with_its_gaps() -> None:
    assert shown("ok  server  PostgreSQL ….\n…\n0 errors\n", "ok  server  PostgreSQL 18.4.\nmore\nlines\n0 errors\n")
    assert shown("one\n…\n", "one\n")
    assert not shown("one\ntwo\n", "one\n2\n")
