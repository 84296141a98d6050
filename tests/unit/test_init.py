"""`tailrace init` without a server: the file, and what is said when none answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.config.files import read_entries
from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tailrace.connectors.survey import ServerSurvey


@pytest.mark.parametrize("name", [one.name for one in registry.known() if one.asked])
def test_what_init_asks_for_are_options_of_the_connector(name: str) -> None:
    described = registry.find(name)
    assert {option for option, _ in described.asked} <= {option.name for option in described.load_options().table}


FIRST = ["--connector", "mongodb", "--sink", "kafka", "--password-env", "SHOP", "--set", "topic.prefix=shop"]


def test_a_server_that_does_not_answer_is_told_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200")
    path = tmp_path / "f.properties"
    assert cli.main(["init", str(path), *FIRST]) == 3
    assert "MongoDB cannot be reached" in capsys.readouterr().err
    assert not path.exists()


def test_the_file_has_what_the_look_at_the_server_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200")
    seen = ServerSurvey((("collection.include.list", "shop.orders"),), ("rs.initiate();",))
    monkeypatch.setattr(Descriptor, "load_survey", lambda _: lambda config: seen)
    path = tmp_path / "f.properties"
    assert cli.main(["init", str(path), *FIRST]) == 3
    assert "#   rs.initiate();\n" in path.read_text()
    assert read_entries(path) == {
        "debezium.source.connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "debezium.source.mongodb.connection.string": "${env:SHOP}",
        "debezium.source.topic.prefix": "shop",
        "debezium.source.collection.include.list": "shop.orders",
        "debezium.sink.type": "kafka",
        "debezium.sink.kafka.producer.bootstrap.servers": "localhost:9092",
    }


def test_an_entry_of_the_sink_takes_the_place_of_its_first_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200")
    monkeypatch.setattr(Descriptor, "load_survey", lambda _: lambda config: ServerSurvey((), ()))
    path = tmp_path / "f.properties"
    given = ["debezium.sink.kafka.producer.bootstrap.servers=b:9092", "debezium.format.schemas.enable=false"]
    assert cli.main(["init", str(path), *FIRST, *(word for one in given for word in ("--set", one))]) == 3
    assert read_entries(path) == {
        "debezium.source.connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "debezium.source.mongodb.connection.string": "${env:SHOP}",
        "debezium.source.topic.prefix": "shop",
        "debezium.sink.type": "kafka",
        "debezium.sink.kafka.producer.bootstrap.servers": "b:9092",
        "debezium.format.schemas.enable": "false",
    }


def test_other_words_are_refused_with_those_that_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", str(tmp_path / "f"), "--connector", "oracle"]) == 2
    assert "It knows " in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
