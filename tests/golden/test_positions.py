"""A case ends at a position of the server's log, so that the effect of one statement more or less is seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tdsserver.process import TestServer
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import runner
from tests.golden.case import Case
from tests.servers.derby import Derby


def changed(folder: Path, name: str, changes: dict[str, Callable[[str], str]]) -> Case:
    """Return a copy of a shipped case with some files changed."""
    target = folder / name
    shutil.copytree(runner.SHIPPED / name, target)
    for file, change in changes.items():
        before = (target / file).read_text("utf-8")
        after = change(before)
        assert after != before
        (target / file).write_text(after, "utf-8")
    return cases.load(target)


def shorter(script: str) -> str:
    """Return the script without its last statement, which stands on a line of its own."""
    return "\n".join(script.rstrip().split("\n")[:-1]) + "\n"


def longer(statement: str) -> Callable[[str], str]:
    """Return a function that adds a statement to a script."""
    return lambda script: f"{script.rstrip()}\n{statement};\n"


def steps(change: Callable[[list[dict[str, object]]], object]) -> Callable[[str], str]:
    """Return a function that changes the steps of a run.json."""

    def edit(text: str) -> str:
        run = json.loads(text)
        change(run["steps"])
        return json.dumps(run)

    return edit


INSERTED = {"op": "insert", "ns": "inventory.orders", "documents": [{"_id": 99}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [(longer("INSERT INTO plain VALUES (77, 'more')"), "too many"), (shorter, "missing")],
)
def test_one_event_more_or_less_of_postgresql_is_seen(
    change: Callable[[str], str], said: str, postgres_server: Postgres, tmp_path: Path
) -> None:
    case = changed(tmp_path, "postgres/no_pk", {"run.sql": change})
    found = runner.run(case, postgres_server)
    assert said in str(found.difference)


@pytest.mark.parametrize(
    ("change", "said"),
    [(longer("INSERT INTO nokey VALUES (77, 'more')"), "too many"), (shorter, "missing")],
)
def test_one_event_more_or_less_of_sql_server_is_seen(
    change: Callable[[str], str], said: str, sqlserver: TestServer, tmp_path: Path
) -> None:
    case = changed(tmp_path, "sqlserver-3/no_key", {"run.sql": change})
    found = runner.run_sqlserver(case, sqlserver)
    assert said in str(found.difference)


@pytest.mark.parametrize("version", ["mongodb-1.1", "mongodb-3"])
@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda run: run.insert(-1, INSERTED), "too many"), (lambda run: run.pop(-3), "missing")],
)
def test_one_event_more_or_less_of_mongodb_is_seen(
    change: Callable[[list[dict[str, object]]], object],
    said: str,
    version: str,
    mongo_server: Mongo,
    tmp_path: Path,
) -> None:
    case = changed(tmp_path, f"{version}/tutorial", {"run.json": steps(change)})
    found = runner.run_mongo(case, mongo_server)
    assert said in str(found.difference)


@pytest.mark.parametrize(
    ("change", "said"),
    [(longer("DELETE FROM MYSCHEMA.CUSTOMERS WHERE ID = 1004"), "too many"), (shorter, "missing")],
)
def test_one_event_more_or_less_of_db2_is_seen(
    change: Callable[[str], str], said: str, derby_server: Derby, tmp_path: Path
) -> None:
    case = changed(tmp_path, "db2-2.3/tutorial", {"run.sql": change})
    found = runner.run_db2(case, derby_server)
    assert said in str(found.difference)


def test_rows_may_be_copied_from_the_script(postgres_server: Postgres, tmp_path: Path) -> None:
    def setup(script: str) -> str:
        return script.replace("INSERT INTO plain VALUES (1, 'x');", "COPY plain (a, b) FROM stdin;\n1\tx\n\\.\n")

    def work(script: str) -> str:
        first, _, rest = script.partition("\n")
        assert first == "INSERT INTO plain VALUES (2, 'y');"
        return f"COPY public.plain FROM STDIN WITH (FORMAT csv);\n2,y\n\\.\n{rest}"

    case = changed(tmp_path, "postgres/no_pk", {"setup.sql": setup, "run.sql": work})
    assert runner.run(case, postgres_server).difference is None
