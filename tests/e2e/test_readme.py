"""The code in the README runs as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.config.properties import parse_properties
from tailrace.connectors.registry import from_entries
from tailrace.errors import TailraceError
from tests import fix_invariant
from tests.fix_postgres import Database

README = Path(__file__).parents[2] / "README.md"


def block(language: str) -> str:
    """Return the README's only block of code in `language`."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    return str(found)


def test_the_python_example_delivers_rows_and_then_changes(
    spark: SparkSession, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = database.server
    written = {
        '"localhost"': server.host,
        '"5432"': str(server.port),
        '"postgres"': server.user,
        '"secret"': server.password,
        '"database.dbname": "shop"': database.name,
        '"changes"': str(tmp_path / "changes"),
        '"checkpoint"': str(tmp_path / "checkpoint"),
    }
    code = block("python")
    for placeholder, value in written.items():
        assert placeholder in code
        name, colon, _ = placeholder.rpartition(": ")
        code = code.replace(placeholder, f"{name}{colon}{value!r}")
    database.execute("create table t (id int primary key, note text)", "insert into t values (1, 'one')")
    fix_invariant.watch(server.dsn(), "debezium", fix_invariant.committed_in(tmp_path / "checkpoint"))
    exec(compile(code, "README.md", "exec"), {})
    database.execute("update t set note = 'two'", "delete from t")
    exec(compile(code, "README.md", "exec"), {})
    rows = spark.read.parquet(str(tmp_path / "changes")).orderBy("position", "ordinal").collect()
    assert [(row["op"], row["topic"]) for row in rows] == [
        ("r", "shop.public.t"),
        ("u", "shop.public.t"),
        ("d", "shop.public.t"),
        ("tombstone", "shop.public.t"),
    ]
    assert "shop.public.t" in capsys.readouterr().out


def test_the_configuration_is_understood() -> None:
    run = from_entries(parse_properties(block("properties")), {"SHOP_PASSWORD": "secret"})
    assert (run.sink.name, run.source["database.password"], run.notices) == ("kafka", "secret", ())


def test_the_exit_codes_are_those_of_the_errors() -> None:
    page = README.parent / "docs" / "operate" / "exit-codes.md"
    listed = set(map(int, re.findall(r"^\| (\d+) \|", page.read_text("utf-8"), re.M)))
    kinds: list[type[TailraceError]] = [TailraceError, *TailraceError.__subclasses__()]
    assert {kind.exit_code for kind in kinds} <= listed
