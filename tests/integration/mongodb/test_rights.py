"""`check` warns of users with too many rights, and its statements create a user that runs every part."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tailrace.connectors.findings import Finding
from tailrace.connectors.mongodb.server.connection import Address
from tailrace.connectors.mongodb.setup.prerequisites import check, demand
from tailrace.connectors.mongodb.values.shell_json import strict_json
from tailrace.connectors.registry import parse
from tests.chaos import proxy as chaos
from tests.extent import by_day
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.conftest import Make
from tests.servers.mongo_proxy import Change, Failing, Proxy
from tests.servers.secantus import SET_NAME, Secantus
from tests.waiting import until

PASSWORD = "pw-of-the-least"
Through = Callable[[Change], tuple[Mongo, Proxy]]


@pytest.fixture
def server(make_secantus: Callable[..., Secantus]) -> Secantus:
    """Return a server without logins yet, with two databases; `guarded` makes it require logins."""
    started = make_secantus()
    with pymongo.MongoClient(started.uri) as client:
        client.shop.t.insert_many([{"_id": number} for number in range(3)])
        client.shop.create_collection("signals")
        client.other.t.insert_one({"_id": 1})
    return started


def guarded(server: Secantus, statements: list[str], *more: dict[str, Any]) -> None:
    """Run the statements of the check, and restart the server with logins."""
    with pymongo.MongoClient(server.uri) as client:
        for statement in statements:
            name, text = re.fullmatch(r'db\.getSiblingDB\("admin"\)\.(\w+)\((.*)\);', statement, re.DOTALL).groups()  # type: ignore[union-attr]
            given = json.loads(strict_json(text))
            called = given.pop("role" if name == "createRole" else "user")
            client.admin.command({name: called} | given)
        for command in more:
            client.admin.command(command)
    server.stop()
    server.options = ("--auth",)
    server.start()


def login(server: Secantus, user: str = "tailrace") -> Mongo:
    uri = f"mongodb://{user}:{PASSWORD}@{server.address}/?replicaSet={SET_NAME}&authSource=admin"
    return Mongo(uri, server.address, SET_NAME)


def options(server: Secantus, folder: Path, **more: str) -> dict[str, str]:
    given = {"mongodb.connection.string": login(server).uri, "topic.prefix": "p", "database.include.list": "shop"}
    given["checkpoint.location"] = str(folder)
    return given | {name.replace("_", "."): text for name, text in more.items()}


def shown(server: Secantus, given: dict[str, str]) -> list[str]:
    """Return the statements that the check shows if nobody is logged in."""
    (found,) = of(check(parse("mongodb", given | {"mongodb.connection.string": server.uri})), "login")
    assert found.level == "warning"
    text = found.remedy.partition(": ")[2].replace("…", PASSWORD)
    return re.findall(r"db\.getSiblingDB.*?\);(?= |$)", text)


def of(findings: list[Finding], subject: str) -> list[Finding]:
    return [one for one in findings if one.subject == subject]


# MongoDB lists the databases that a user may read, and SecantusDB lists none without this.
LISTS = {
    "createRole": "lists", "roles": [],
    "privileges": [{"resource": {"cluster": True}, "actions": ["listDatabases"]}],
}  # fmt: skip
LISTS_TOO = {"grantRolesToUser": "tailrace", "roles": ["lists"]}


@pytest.mark.parametrize(
    ("scope", "strategy"),
    by_day([("deployment", "insert_insert"), ("deployment", "insert_delete"), ("database", "insert_insert")], 3),
)
def test_the_user_that_is_shown_runs_every_part(
    server: Secantus, make_capture: Make, tmp_path: Path, scope: str, strategy: str
) -> None:
    more = {
        "signal_data_collection": "shop.signals",
        "incremental_snapshot_watermarking_strategy": strategy,
        "capture_scope": scope,
    }
    if scope == "database":
        more["capture_target"] = "shop"
    given = options(server, tmp_path, **more)
    statements = shown(server, given)
    assert ("readAnyDatabase" in statements[1]) == (scope == "deployment")
    guarded(server, statements, LISTS, LISTS_TOO)
    user = login(server)
    with user.client() as client, pytest.raises(pymongo.errors.OperationFailure):
        client.other.t.insert_one({"_id": 2})
    assert {finding.level for finding in demand(parse("mongodb", given))} <= {"ok", "warning"}
    assert of(check(parse("mongodb", given)), "rights")[1:] == []
    named = {name: text for name, text in given.items() if name not in ("mongodb.connection.string", "topic.prefix")}
    capture = make_capture(user, **named)
    assert sorted(event["key"] for event in capture.until(3)) == ["0", "1", "2"]
    # The signal is the administrator's, who has rights that the connector lacks.
    with user.client() as client:
        data = {"type": "incremental", "data-collections": ["shop.t"]}
        client.shop.signals.insert_one({"_id": "s", "type": "execute-snapshot", "data": data})
    seen: list[Any] = []

    def have_come() -> bool:
        seen.extend(event for event in capture.step() or [] if event["topic"].endswith("shop.t"))
        return len(seen) >= 3

    until(have_come, "three documents")
    assert [(event["op"], event["key"]) for event in seen] == [("r", "0"), ("r", "1"), ("r", "2")]


def test_the_user_that_is_shown_reads_the_oplog(server: Secantus, make_capture: Make, tmp_path: Path) -> None:
    given = options(server, tmp_path, mongodb_name="fulfillment")
    del given["topic.prefix"]
    statements = shown(server, given)
    assert statements == [
        'db.getSiblingDB("admin").createUser({ user: "tailrace", pwd: "' + PASSWORD + '", roles: [{ role: "read", '
        'db: "local" }, { role: "read", db: "shop" }] });'
    ]
    guarded(server, statements, LISTS, LISTS_TOO)
    assert {finding.level for finding in demand(parse("mongodb", given))} <= {"ok", "warning"}
    capture = make_capture(login(server), old=True, **{"database.include.list": "shop"}, **{
        "mongodb.user": "tailrace", "mongodb.password": PASSWORD,
    })  # fmt: skip
    assert len(capture.until(3)) == 3
    with login(server).client() as client, pytest.raises(pymongo.errors.OperationFailure):
        client.other.t.find_one()


@pytest.mark.parametrize("old", by_day([False, True], 2), ids=lambda old: "oplog" if old else "change streams")
def test_a_password_that_changes_is_asked_for_at_every_login(
    server: Secantus, make_capture: Make, tmp_path: Path, old: bool
) -> None:
    guarded(server, [], {"createUser": "tailrace", "pwd": PASSWORD, "roles": ["root"]})
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    with chaos.Proxy(int(server.address.rpartition(":")[2])) as way:
        uri = f"mongodb://127.0.0.1:{way.port}/?directConnection=true"
        capture = make_capture(Mongo(uri, f"127.0.0.1:{way.port}", SET_NAME), old=old, **{
            "database.include.list": "shop", "mongodb.user": "tailrace", "mongodb.password.command": f"cat {file}",
            "retriable.restart.connector.wait.ms": "100",
        })  # fmt: skip
        assert len(capture.until(3)) == 3
        for number, password in ((3, "the second"), (4, "the third")):
            with login(server).client() if number == 3 else renamed(server, "the second") as client:
                client.admin.command({"updateUser": "tailrace", "pwd": password})
                client.shop.t.insert_one({"_id": number})
            # every session has to log in again, and the program tells the new password only later
            way.cut()
            file.write_text(password)
            assert [event["key"] for event in capture.until(1)] == [str(number)]
    assert PASSWORD not in f"{Address.of(parse('mongodb', given(file)))!r}"


def renamed(server: Secantus, password: str) -> pymongo.MongoClient[Any]:
    return pymongo.MongoClient(f"mongodb://{server.address}/", username="tailrace", password=password)


def given(file: Path) -> dict[str, str]:
    return {
        "mongodb.connection.string": "mongodb://h", "topic.prefix": "p", "mongodb.user": "u",
        "mongodb.password.command": f"cat {file}",
    }  # fmt: skip


def test_an_administrator_is_warned_of(server: Secantus, tmp_path: Path) -> None:
    guarded(server, [], {"createUser": "tailrace", "pwd": PASSWORD, "roles": ["root"]})
    given = options(server, tmp_path)
    found = of(check(parse("mongodb", given)), "rights")[-1]
    assert found.level == "warning"
    assert found.text == "The user tailrace has more rights than capture needs: root on admin."
    assert found.remedy.startswith('Use a user of its own: db.getSiblingDB("admin").createUser({ user: "tailrace"')
    # Advice is for `tailrace check`, not for each start.
    assert [one.level for one in of(demand(parse("mongodb", given)), "rights")] == ["ok"]


def privilege(database: str, collection: str, *actions: str) -> dict[str, Any]:
    return {"resource": {"db": database, "collection": collection}, "actions": ["find", "changeStream", *actions]}


@pytest.mark.parametrize(
    ("roles", "privileges", "told"),
    [
        ([("readAnyDatabase", "admin")], [privilege("", "")], ""),
        ([("readWriteAnyDatabase", "admin")], [privilege("", "", "insert")], "readWriteAnyDatabase on admin"),
        ([("readWrite", "shop"), ("dbAdmin", "shop")], [], "readWrite on shop, dbAdmin on shop"),
        ([("own", "admin")], [privilege("shop", "signals", "insert", "remove")], ""),
        ([("own", "admin")], [privilege("shop", "", "insert", "update")], "insert, update on shop.*"),
        ([("own", "admin")], [privilege("", "", "remove")], "remove on every database.*"),
        ([("own", "admin")], [{"resource": {"cluster": True}, "actions": ["shutdown"]}], "shutdown on the cluster"),
        (
            [("own", "admin")],
            [{"resource": {"anyResource": True}, "actions": ["anyAction"]}],
            "anyAction on everything",
        ),
    ],
)
def test_roles_and_privileges_as_mongodb_tells_them(
    mongo_database: MongoDatabase,
    mongo_proxy_to: Through,
    tmp_path: Path,
    roles: list[tuple[str, str]],
    privileges: list[dict[str, Any]],
    told: str,
) -> None:
    """The answer has the form of "connectionStatus" in MongoDB's manual; SecantusDB reports no privileges."""
    answer = {
        "authInfo": {
            "authenticatedUsers": [{"user": "cdc", "db": "admin"}],
            "authenticatedUserRoles": [{"role": role, "db": database} for role, database in roles],
            "authenticatedUserPrivileges": privileges,
        },
        "ok": 1.0,
    }
    proxied, _ = mongo_proxy_to(Failing(lambda command: "connectionStatus" in command, answer))
    given = {
        "mongodb.connection.string": proxied.uri,
        "topic.prefix": "p",
        "database.include.list": mongo_database.name,
        "signal.data.collection": "shop.signals",
        "checkpoint.location": str(tmp_path),
    }
    texts = [one.text for one in of(check(parse("mongodb", given)), "rights")[1:]]
    assert texts == ([f"The user cdc has more rights than capture needs: {told}."] if told else [])


def test_reading_more_databases_than_one_is_warned_of(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, tmp_path: Path
) -> None:
    users = {"authenticatedUsers": [{"user": "cdc", "db": "admin"}], "authenticatedUserPrivileges": []}
    answer = {"authInfo": users | {"authenticatedUserRoles": [{"role": "readAnyDatabase", "db": "admin"}]}, "ok": 1.0}
    proxied, _ = mongo_proxy_to(Failing(lambda command: "connectionStatus" in command, answer))
    given = {"mongodb.connection.string": proxied.uri, "topic.prefix": "p", "checkpoint.location": str(tmp_path)}
    assert of(check(parse("mongodb", given)), "rights")[1:] == []
    narrow = given | {"capture.scope": "database", "capture.target": mongo_database.name}
    (found,) = of(check(parse("mongodb", narrow)), "rights")[1:]
    assert "readAnyDatabase, with capture.scope=database" in found.text
    assert f'roles: [{{ role: "read", db: "{mongo_database.name}" }}]' in found.remedy
