"""`check` warns of logins with too many rights, and its statements create a login that runs every part."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator

import pytest

from tailrace.connectors.findings import Finding
from tailrace.connectors.sqlserver.setup.prerequisites import check, demand
from tdsserver.process import TestDatabase, TestServer
from tests.fix_capture import Event
from tests.integration.sqlserver.capturing import Capture
from tests.integration.sqlserver.reading import config
from tests.waiting import until

PASSWORD = "pw-of-the-least"


@pytest.fixture
def shop(sqlserver_database: TestDatabase) -> TestDatabase:
    """Return a database with a table with a gating role, one without, and a signal table."""
    sqlserver_database.execute(
        "create table t (id int not null primary key)",
        "create table [odd name] (id int not null primary key)",
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)",
        "exec sys.sp_cdc_enable_db",
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = N'readers'",
    )
    sqlserver_database.enable("odd name", "signals")
    sqlserver_database.execute("insert into t values (1), (2), (3)", "insert into [odd name] values (1)")
    sqlserver_database.capture()
    return sqlserver_database


@pytest.fixture
def login(sqlserver: TestServer, shop: TestDatabase) -> Iterator[str]:
    """Yield the name of a login that a test creates."""
    name = f"least_{secrets.token_hex(3)}"
    yield name
    shop.execute(f"drop user if exists [{name}]")
    sqlserver.execute(f"drop login [{name}]")


def rights(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.subject == "rights"]


def options(database: TestDatabase, login: str = "", **more: str) -> dict[str, str]:
    user = {"database.user": login, "database.password": PASSWORD} if login else {}
    return {"signal.data.collection": f"{database.name}.dbo.signals"} | user | {
        name.replace("_", "."): text for name, text in more.items()
    }  # fmt: skip


def made(database: TestDatabase, login: str, **more: str) -> None:
    """Run the statements that the check shows to the server's owner, with a login's name and password."""
    (found,) = rights(check(config(database, options(database, **more))))
    shown = found.remedy.partition(": ")[2].replace("'…'", f"'{PASSWORD}'")
    statements = [part for part in re.sub(r"\btailrace\b", login, shown).split("; ") if not part.startswith("use ")]
    assert f"create user {login} for login {login}" in statements
    assert f"use [{database.name}];" in shown
    database.execute(*statements)


def test_the_owner_of_the_server_is_warned_of(shop: TestDatabase) -> None:
    (found,) = rights(check(config(shop, options(shop))))
    assert (found.level, found.text) == (
        "warning",
        f"The user sa in {shop.name} has more rights than capture needs: sysadmin.",
    )
    # Advice is for `tailrace check`, not for each start.
    assert rights(demand(config(shop, options(shop)))) == []


@pytest.mark.parametrize(
    ("grants", "told"),
    [
        ("alter role db_owner add member [{}]", "db_owner"),
        ("alter role db_datawriter add member [{}]", "db_datawriter"),
    ],
)
def test_wide_roles_are_warned_of(
    sqlserver: TestServer, shop: TestDatabase, login: str, grants: str, told: str
) -> None:
    made(shop, login)
    shop.execute(grants.format(login))
    (found,) = rights(check(config(shop, options(shop, login))))
    assert found.text == f"The user {login} in {shop.name} has more rights than capture needs: {told}."


@pytest.mark.parametrize(
    ("mode", "strategy"), [("direct", "insert_insert"), ("function", "insert_insert"), ("direct", "insert_delete")]
)
def test_the_login_that_is_shown_runs_every_part(shop: TestDatabase, login: str, mode: str, strategy: str) -> None:
    watermarks = {"incremental.snapshot.watermarking.strategy": strategy}
    made(shop, login, **watermarks)
    own = options(shop, login, **watermarks, **{"data.query.mode": mode})
    assert rights(check(config(shop, own))) == []
    assert {finding.level for finding in demand(config(shop, own))} == {"ok"}
    query = Capture([shop], own | {"topic.prefix": "p", "snapshot.mode": "initial", "include.schema.changes": "false"})
    try:
        assert kinds(query.take(4)) == [("r", 1), ("r", 1), ("r", 2), ("r", 3)]
        shop.execute("insert into t values (4)", "delete from t where id = 1")
        assert kinds(query.take(3)) == [("c", 4), ("d", 1), ("tombstone", 1)]
        data = json.dumps({"data-collections": [f"{shop.name}.dbo.t"]})
        shop.execute(f"insert into signals values ('s1', 'execute-snapshot', '{data}')")

        def again() -> set[int]:
            shop.capture()
            query.step()
            return {event.id["id"] for event in query.events if event.op == "r"}

        until(lambda: len(again()) >= 3, "three rows")
        assert again() == {2, 3, 4}
    finally:
        query.planner.close()


def kinds(events: list[Event]) -> list[tuple[str, int]]:
    return sorted((event.op, event.id["id"]) for event in events)
