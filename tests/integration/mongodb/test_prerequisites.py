"""`tailrace check` for MongoDB reports the state of a server, and refuses unsuitable ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp

from tailrace.command import cli
from tailrace.config import Config
from tailrace.connectors.findings import Finding
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.setup.prerequisites import check, demand
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError
from tests.fix_mongodb import GenuineOplog, Mongo, MongoDatabase, running
from tests.servers.certificates import WORD, Authority
from tests.servers.mongo_proxy import Change, Failing, Mongos, Proxy, error
from tests.servers.secantus import Secantus

Through = Callable[[Change], tuple[Mongo, Proxy]]


def config(server: Mongo, folder: Path, **options: str) -> Config:
    """Return a configuration of the form 3, or of 1.1 with mongodb_name."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    base = {"mongodb.hosts": server.hosts} if "mongodb.name" in named else {"mongodb.connection.string": server.uri}
    if "mongodb.name" not in named:
        base["topic.prefix"] = "p"
    return parse("mongodb", base | {"checkpoint.location": str(folder / "checkpoint")} | named)


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


@pytest.mark.parametrize("name", ["", "p"])
def test_a_server_that_is_ready(mongo_database: MongoDatabase, tmp_path: Path, name: str) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    mongo_database["d"].insert_one({"_id": 1})
    more = {"mongodb_name": name} if name else {}
    given = config(mongo_database.server, tmp_path, database_include_list=mongo_database.name, **more)
    found = by_subject(demand(given))
    assert found["server"].text.endswith("the replica set secantus.")
    assert found["rights"].text.endswith("may read the oplog." if name else "may read a change stream.")
    assert found["collections"].text == f"2 collections are captured: {mongo_database.name}.c, {mongo_database.name}.d."
    assert found["select"].level == "ok"
    assert "oplog" in found


def test_the_command_prints_what_was_found(
    mongo_database: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    options = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "checkpoint.location": str(tmp_path / "checkpoint"),
        **mongo_database.options(),
    }
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": "a", "config": options}), encoding="utf-8")
    assert cli.main(["check", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "mongodb to console, format 1.1, at least once." in printed
    assert "1 collection is captured" in printed


def test_a_server_without_a_replica_set(make_secantus: Callable[..., Secantus], tmp_path: Path) -> None:
    server = make_secantus("--standalone")
    alone = Mongo(f"mongodb://{server.address}/", server.address, "")
    with pytest.raises(PrerequisiteError, match="a single server without a replica set"):
        demand(config(alone, tmp_path))


def test_a_mongos_needs_change_streams(mongo_database: MongoDatabase, mongo_proxy_to: Through, tmp_path: Path) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    server, _ = mongo_proxy_to(Mongos())
    found = by_subject(demand(config(server, tmp_path, database_include_list=mongo_database.name)))
    assert "the mongos of a sharded cluster" in found["server"].text
    old = parse("mongodb", {"mongodb.connection.string": server.uri, "mongodb.name": "p"})
    with pytest.raises(PrerequisiteError, match="its mongos has no oplog"):
        demand(old)


UNAUTHORIZED = error(13, "Unauthorized", "not authorized to execute this command")


@pytest.mark.parametrize(
    ("matches", "name", "subject", "remedy"),
    [
        (lambda command: command.get("find") == "oplog.rs", "p", "rights", 'role: "read", db: "local"'),
        (lambda command: "aggregate" in command, "", "rights", "readAnyDatabase"),
        (lambda command: "listDatabases" in command, "", "collections", "readAnyDatabase"),
        (lambda command: command.get("find") == "c", "", "select", 'role: "read"'),
    ],
)
def test_a_missing_privilege_is_told_with_the_grant(
    mongo_database: MongoDatabase,
    mongo_proxy_to: Through,
    tmp_path: Path,
    matches: Callable[[dict[str, Any]], bool],
    name: str,
    subject: str,
    remedy: str,
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    server, _ = mongo_proxy_to(Failing(matches, UNAUTHORIZED))
    more = {"mongodb_name": name} if name else {}
    given = config(server, tmp_path, database_include_list=mongo_database.name, **more)
    found = by_subject(check(given))[subject]
    assert found.level == "error"
    assert remedy in found.remedy
    with pytest.raises(PrerequisiteError, match="may not"):
        demand(given)


def test_a_server_without_majority_reads_is_warned_of(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, tmp_path: Path
) -> None:
    refusal = error(148, "ReadConcernMajorityNotEnabled", "Majority read concern requested, but not supported")
    server, _ = mongo_proxy_to(Failing(lambda command: "readConcern" in command, refusal))
    found = by_subject(check(config(server, tmp_path, mongodb_name="p")))
    assert found["majority"].level == "warning"
    assert found["rights"].level == "ok"


def test_a_refused_login_and_a_missing_server(make_secantus: Callable[..., Secantus], tmp_path: Path) -> None:
    server = make_secantus("--auth")
    with pytest.raises(ConnectionFailed, match="login"):
        check(config(running(server), tmp_path, mongodb_user="me", mongodb_password="wrong"))
    server.kill()
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        check(config(running(server), tmp_path, **{"mongodb.server.selection.timeout.ms": "300"}))


def checkpoint(folder: Path, seconds: int) -> None:
    """Write a checkpoint of a query that has read up to a time."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    log = {"log": {"number": 1, "time": [seconds, 1]}}
    for batch, text in ((0, "{}"), (2, json.dumps(log)), (1, "{}")):
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{text}", encoding="utf-8")


@pytest.mark.parametrize(
    ("position", "mode", "level", "words"),
    [
        (
            1558965000,
            "initial",
            "error",
            "The oplog begins at 2019-05-27 13:58:26 UTC, after the checkpoint",
        ),
        (1558965000, "when_needed", "warning", "The oplog begins at"),
        (1558965506 + 7300, "initial", "ok", "The oplog reaches back 2 hours beyond the checkpoint."),
        (None, "initial", "ok", "The oplog reaches back 2 days."),
    ],
)
def test_the_oplog_is_compared_with_the_checkpoint(
    genuine_oplog: GenuineOplog, tmp_path: Path, position: int | None, mode: str, level: str, words: str
) -> None:
    for seconds in (1558965506, 1558965506 + 2 * 86_400):
        genuine_oplog.append({"ts": Timestamp(seconds, 1), "op": "n", "ns": "", "o": {}})
    if position is not None:
        checkpoint(tmp_path, position)
    found = by_subject(check(config(genuine_oplog.server, tmp_path, mongodb_name="p", snapshot_mode=mode)))
    assert (found["oplog"].level, found["oplog"].text[: len(words)]) == (level, words)


def test_options_that_need_a_newer_server(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, tmp_path: Path
) -> None:
    old = {"versionArray": [5, 0, 9, 0], "version": "5.0.9", "ok": 1.0}
    server, _ = mongo_proxy_to(Failing(lambda command: next(iter(command)) == "buildInfo", old))
    given = config(
        server,
        tmp_path,
        **{"capture.mode": "change_streams_with_pre_image", "cursor.oversize.handling.mode": "split"},
    )
    told = [finding.text for finding in check(given) if finding.subject == "version"]
    assert told == [
        "capture.mode = change_streams_with_pre_image needs MongoDB 6.0.",
        "cursor.oversize.handling.mode = split needs MongoDB 6.0.9.",
    ]


def test_collections_without_earlier_documents(mongo_database: MongoDatabase, tmp_path: Path) -> None:
    mongo_database.database.create_collection("kept", changeStreamPreAndPostImages={"enabled": True})
    modes = {"capture.mode": "change_streams_update_full_with_pre_image", "database.include.list": mongo_database.name}
    assert by_subject(check(config(mongo_database.server, tmp_path, **modes)))["images"].level == "ok"
    mongo_database["plain"].insert_one({"_id": 1})
    modes["capture.mode.full.update.type"] = "post_image"
    found = by_subject(check(config(mongo_database.server, tmp_path, **modes)))["images"]
    assert found.level == "warning"
    assert f"{mongo_database.name}.plain, so that before and after of updates will be null" in found.text


def test_a_signal_collection_and_names_that_collide(mongo_database: MongoDatabase, tmp_path: Path) -> None:
    for name in ("a b", "a+b"):
        mongo_database[name].insert_one({"_id": 1})
    signals = f"{mongo_database.name}.signals"
    options = {"signal.data.collection": signals, "database.include.list": mongo_database.name}
    given = config(mongo_database.server, tmp_path, **options)
    found = by_subject(check(given))
    assert found["signals"].level == "warning"
    assert "share a topic" in found["names"].text
    mongo_database.database.create_collection("signals")
    assert by_subject(check(given))["signals"].level == "ok"


def test_a_guardrail(mongo_database: MongoDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        mongo_database[name].insert_one({"_id": 1})
    limits = {"guardrail.collections.max": "1", "database.include.list": mongo_database.name}
    given = config(mongo_database.server, tmp_path, **limits)
    assert by_subject(check(given))["guardrail"].level == "warning"
    guard_number(given, 2, "collections")
    assert "2 collections are captured, more than guardrail.collections.max = 1" in caplog.text
    strict = config(mongo_database.server, tmp_path, **limits, **{"guardrail.collections.limit.action": "fail"})
    guard_number(strict, 1, "collections")
    with pytest.raises(ConfigError, match="more than guardrail"):
        guard_number(strict, 2, "collections")


def test_a_secured_server(make_secantus: Callable[..., Secantus], tmp_path: Path) -> None:
    authority = Authority()
    server_file, trusted = authority.pem(tmp_path)
    keys, trust = authority.pkcs12(tmp_path)
    secured = make_secantus("--tls-cert-file", str(server_file), "--tls-key-file", str(server_file),
                            "--tls-ca-file", str(trusted), "--tls-require-client-cert")  # fmt: skip
    string = f"mongodb://localhost:{secured.port}/?directConnection=true"
    tls = {
        "mongodb.connection.string": string,
        "topic.prefix": "p",
        "mongodb.ssl.enabled": "true",
        "mongodb.server.selection.timeout.ms": "3000",
    }
    stores = {
        "mongodb.ssl.keystore": str(keys),
        "mongodb.ssl.keystore.password": WORD,
        "mongodb.ssl.truststore": str(trust),
        "mongodb.ssl.truststore.password": WORD,
    }
    pem = {
        "mongodb.ssl.keystore": str(server_file),
        "mongodb.ssl.keystore.type": "PEM",
        "mongodb.ssl.truststore": str(trusted),
        "mongodb.ssl.truststore.type": "PEM",
    }
    for files in (stores, pem):
        client = connect(Address.of(parse("mongodb", tls | files)))
        assert client.admin.command("ping")["ok"] == 1.0
        client.close()
    with pytest.raises(ConnectionFailed):
        check(parse("mongodb", tls | {"mongodb.ssl.truststore": str(trusted), "mongodb.ssl.truststore.type": "PEM"}))


def test_the_proxy_of_the_oplog_is_what_the_check_reads(genuine_oplog: GenuineOplog, tmp_path: Path) -> None:
    found = by_subject(check(config(genuine_oplog.server, tmp_path, mongodb_name="p")))
    assert found["server"].text.endswith("the replica set rs0.")
    assert "oplog" not in found
