"""The blocks of the pages that say so run, in the order of the site, and print what the pages show.

The pages of one directory are followed one after another, in one folder and with one database: a shop with the tables
of `SHOP`. Blocks of the shell, of SQL and of Python share the tests' Spark session; `tests/pages.py` has the marks.
A short run leaves out the pages in `LATER`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import pipeline, sinks
from tailrace.command import cli
from tailrace.config.files import RunConfig
from tailrace.config.properties import parse_properties
from tailrace.pipeline import Pipeline
from tailrace.verify import command as verify_command
from tailrace.verify.check import Lake
from tests import extent
from tests.fix_postgres import Database
from tests.pages import DOCS, Block, blocks, shown

SHOP = (
    "create table public.orders (id int primary key, item text not null, amount numeric(8,2) not null)",
    "create table public.customers (id int primary key, name text not null, email text)",
    "insert into public.orders values (1, 'rope', 9.90), (2, 'lantern', 24.50)",
    "insert into public.customers values (1, 'Ida Lind', 'ida@lind.example'), (2, 'Omar Haddad', null)",
    "alter table public.orders replica identity full",
)
LISTED = ("start", "from-debezium", "sinks", "pyspark", "operate")
LATER = frozenset(
    {
        "sinks/tables.md",
        "sinks/table-maintenance.md",
        "operate/add-a-table.md",
        "operate/verify-and-repair.md",
    }
)
"""Pages that run pipelines into tables, which take minutes: a full run follows them.

Tests of the sink, of `tailrace maintain` and of `tailrace verify` show the same with frames of their own.
"""
ROLE = "cdc"
"""The role that pages make: roles belong to the server, so a test removes it."""


def in_order(directory: str) -> list[str]:
    """Return the pages of a directory in the order of the navigation."""
    project = tomllib.loads((DOCS.parent / "zensical.toml").read_text("utf-8"))["project"]
    return [page for page in _listed(project["nav"]) if page.startswith(f"{directory}/")]


def _listed(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for page in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _listed(page) if isinstance(page, list) else [page]


def marked(directory: str) -> list[Block]:
    """Return the blocks of a directory that run in this extent, or are files for those that do."""
    pages = [page for page in in_order(directory) if extent.is_full() or page not in LATER]
    found = [block for page in pages for block in blocks(page)]
    return [block for block in found if block.mark == "run" or block.mark.startswith("file: ")]


class Reader:
    """Someone who types what the pages show, in a folder and with a database of their own."""

    def __init__(self, folder: Path, database: Database, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._database = database
        self._patch = patch
        self._names: dict[str, Any] = {}

    def does(self, block: Block) -> None:
        """Run a block, or write it to its file."""
        kind = block.mark.removeprefix("file: ")
        if block.mark.startswith("file: "):
            (self.folder / kind).write_text(self._file(block), "utf-8")
        else:
            {"sh": self._shell, "sql": self._sql, "python": self._python}[block.language](block)

    def said(self, output: str) -> str:
        """Return an output with the names that the pages use."""
        for real, name in (
            (self._database.name, "shop"),
            (f"{self.folder}/", "/"),
            (self._database.server.host, "localhost"),
        ):
            output = output.replace(real, name)
        return output

    def _file(self, block: Block) -> str:
        """Return a file with the login of this database; a page may show a part of it."""
        text = self._real(block)
        if block.language != "properties":
            return text
        given = parse_properties(text)
        login = self._database.options(connector_class="PostgreSQL", topic_prefix="shop")
        if "debezium.source.database.user" in given:
            login = {name: login[name] for name in ("database.hostname", "database.port", "database.dbname")}
        named = {f"debezium.source.{name}": value for name, value in login.items()}
        return "".join(f"{line}\n" for line in text.splitlines() if line.partition("=")[0] not in named) + "".join(
            f"{name}={value}\n" for name, value in named.items()
        )

    def _real(self, block: Block) -> str:
        """Return a block with the places of this test; Spark's JVM resolves relative ones in a directory of its own."""
        server = self._database.server
        text = block.text.replace("/lake/", f"{self.folder}/lake/").replace(
            ".path=events", f".path={self.folder}/events"
        )
        if block.language != "python":
            return text
        for name, real in (
            ("/data/", f"{self.folder}/data/"),
            ('"localhost"', repr(server.host)),
            ('"5432"', repr(str(server.port))),
            ('"postgres"', repr(server.user)),
            ('"secret"', repr(server.password)),
            ('"database.dbname": "shop"', f'"database.dbname": {self._database.name!r}'),
        ):
            text = text.replace(name, real)
        return text

    def _shell(self, block: Block) -> None:
        for line in self._real(block).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["export"]:
                name, _, value = words[1].partition("=")
                self._patch.setenv(name, value)
            elif words[:1] == ["tailrace"] and "|" not in words:
                expected = re.search(r"# exit code (\d+)", line)
                assert cli.main(words[1:]) == int(expected[1] if expected else 0), line
            elif words:
                print(subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True).stdout, end="")

    def _sql(self, block: Block) -> None:
        self._database.execute(*filter(str.strip, block.text.split(";\n")))

    def _python(self, block: Block) -> None:
        exec(compile(self._real(block), str(block), "exec"), self._names)


@pytest.fixture
def reader(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """A reader whose commands use the tests' session."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "Pipeline", lambda run, **_: Pipeline(run, spark))
    monkeypatch.setattr(verify_command, "run", partial(_verify, spark))
    database.execute(*SHOP)
    yield Reader(tmp_path, database, monkeypatch)
    with database.connect() as connection:
        if connection.execute("select from pg_roles where rolname = %s", [ROLE]).fetchone() is not None:
            connection.execute(f"drop owned by {ROLE}".encode())
            connection.execute(f"drop role {ROLE}".encode())


@pytest.mark.parametrize("directory", [one for one in LISTED if any(block.mark == "run" for block in marked(one))])
def test_the_blocks_of_a_directory_do_what_its_pages_show(
    directory: str, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in marked(directory):
        capsys.readouterr()
        reader.does(block)
        output = reader.said(capsys.readouterr().out)
        if block.output is not None:
            assert shown(block.output, output), f"{block} prints\n{output}"


def _verify(spark: SparkSession, configured: RunConfig, arguments: argparse.Namespace, *_: object) -> int:
    sink = sinks.open(configured.sink.name, configured.sink.options, configured.source)
    assert isinstance(sink, Lake)
    return verify_command.verify(spark, configured, sink, arguments)


def processes() -> list[Block]:
    """Return the blocks that need a process of their own."""
    return [block for one in LISTED for page in in_order(one) for block in blocks(page) if block.mark == "run: full"]


@pytest.mark.full
@pytest.mark.parametrize("block", processes(), ids=str)
def test_a_command_of_its_own_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", block.text],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert block.output is not None
    assert shown(block.output, done.stdout), done.stdout
