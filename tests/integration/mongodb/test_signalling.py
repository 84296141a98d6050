"""`tailrace signal` writes signals into the signal collection, and the running query carries them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.errors import PrerequisiteError
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.capture import Capture, keys
from tests.servers.mongo_proxy import Change, Failing, Proxy, error

Make = Callable[..., Capture]
Through = Callable[[Change], tuple[Mongo, Proxy]]


def file_of(folder: Path, server: Mongo, database: str) -> str:
    """Write a configuration with a signal collection."""
    path = folder / "connector.properties"
    path.write_text(
        "connector.class=io.debezium.connector.mongodb.MongoDbConnector\n"
        f"mongodb.connection.string={server.uri}\ntopic.prefix=p\nsignal.data.collection={database}.signals\n"
    )
    return str(path)


def test_a_signal_is_a_document_that_the_query_obeys(
    mongo_database: MongoDatabase, make_capture: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = mongo_database.name
    mongo_database["c"].insert_many([{"_id": number, "kind": number % 2} for number in range(6)])
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", collection_include_list=f"{name}[.]c",
        signal_data_collection=f"{name}.signals",
    )  # fmt: skip
    capture.idle(1)
    file = file_of(tmp_path, mongo_database.server, name)
    arguments = ["--table", f"{name}.c", "--filter", f"{name}.c={{kind: 1}}", "--id", "one"]
    assert cli.main(["signal", "execute-snapshot", file, *arguments]) == 0
    assert capsys.readouterr().out == f"execute-snapshot one: a document of the signal collection {name}.signals.\n"
    assert mongo_database["signals"].find_one({"_id": "one"}) == {
        "_id": "one",
        "type": "execute-snapshot",
        "data": {
            "type": "incremental",
            "data-collections": [f"{name}.c"],
            "additional-conditions": [{"data-collection": f"{name}.c", "filter": "{kind: 1}"}],
        },
    }
    found = [event for event in capture.idle(5) if event["op"] == "r"]
    assert keys(found) == [("r", "1"), ("r", "3"), ("r", "5")]
    assert cli.main(["signal", "pause-snapshot", file, "--id", "two"]) == 0
    assert mongo_database["signals"].find_one({"_id": "two"}) == {"_id": "two", "type": "pause-snapshot"}


@pytest.mark.parametrize("text", ["{kind", "7", '{"_id": {"$oid": 1}}'])
def test_a_condition_that_is_no_query_is_told_before_it_is_sent(
    mongo_database: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = file_of(tmp_path, mongo_database.server, mongo_database.name)
    arguments = ["--table", f"{mongo_database.name}.c", "--filter", f"{mongo_database.name}.c={text}"]
    assert cli.main(["signal", "execute-snapshot", file, *arguments]) != 0
    assert "is not a query of MongoDB" in capsys.readouterr().err
    assert mongo_database["signals"].find_one() is None


def test_an_id_is_used_once(mongo_database: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path, mongo_database.server, mongo_database.name)
    assert cli.main(["signal", "pause-snapshot", file, "--id", "one"]) == 0
    assert cli.main(["signal", "resume-snapshot", file, "--id", "one"]) == PrerequisiteError.exit_code
    assert "has a signal of this id already" in capsys.readouterr().err


def test_a_user_who_may_not_write_is_told_the_grant(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = error(13, "Unauthorized", "not authorized on x to execute command")
    server, _ = mongo_proxy_to(Failing(lambda document: "insert" in document, refused))
    file = file_of(tmp_path, server, mongo_database.name)
    assert cli.main(["signal", "pause-snapshot", file]) == PrerequisiteError.exit_code
    told = capsys.readouterr().err
    assert f"may not write to the signal collection {mongo_database.name}.signals" in told
    assert f'resource: {{ db: "{mongo_database.name}", collection: ' in told
    assert 'actions: ["insert"]' in told


def test_a_blocking_snapshot_whose_condition_the_server_refuses_ends_nothing(
    mongo_database: MongoDatabase, make_capture: Make, tmp_path: Path
) -> None:
    name = mongo_database.name
    mongo_database["c"].insert_one({"_id": 1})
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", database_include_list=name,
        signal_data_collection=f"{name}.signals", notification_enabled_channels="sink",
        **{"notification.sink.topic.name": "notifications"},
    )  # fmt: skip
    capture.idle(1)
    file = file_of(tmp_path, mongo_database.server, name)
    for kind in ("incremental", "blocking"):
        arguments = ["--type", kind, "--table", f"{name}.c", "--filter", f"{name}.c={{_id: {{$nothing: 1}}}}"]
        assert cli.main(["signal", "execute-snapshot", file, *arguments]) == 0
    told = [event["value"] for event in capture.idle(5) if event["topic"] == "notifications"]
    kinds = [one["type"] for one in told if one["aggregate_type"] == "Initial Snapshot"]
    # The start has skipped its own snapshot.
    assert [kind for kind in kinds if kind != "SKIPPED"] == ["ABORTED"]
    mongo_database["c"].insert_one({"_id": 2})
    assert ("c", "2") in keys(capture.until(1))


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "not planned"])
def test_a_signal_that_was_read_before_a_crash_is_carried_out_once(
    mongo_database: MongoDatabase, make_capture: Make, tmp_path: Path, planned: bool
) -> None:
    """Spark may or may not have kept the end of the batch with the signal."""
    mongo_database["c"].insert_many([{"_id": number} for number in range(3)])
    options = {
        "snapshot_mode": "no_data", "database_include_list": mongo_database.name, "signal_enabled_channels": "file",
        "signal_file": str(tmp_path / "signals"), "signal_poll_interval_ms": "1", "read_only": "true",
    }  # fmt: skip
    capture = make_capture(mongo_database.server, **options)
    capture.step()
    data = {"data-collections": [f"{mongo_database.name}.c"]}
    signal = json.dumps({"id": "s", "type": "execute-snapshot", "data": data})
    (tmp_path / "signals").write_text(f"{signal}\n")
    end = None
    while end is None or "progress" not in end:
        end = capture.plan()
    again = make_capture(mongo_database.server, offset=capture.offset, **options)
    capture.close()
    found = []
    if planned:
        found += again.read(again.offset, end)
        again.offset = end
    assert keys(found + again.until(3)) == [("r", "0"), ("r", "1"), ("r", "2")]
    assert again.idle() == []
