"""`tailrace init` for databases of which it knows the options alone: the file, and what check says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.config.files import read_entries
from tailrace.connectors import registry


@pytest.mark.parametrize("name", [one.name for one in registry.known() if one.asked])
def test_what_init_asks_for_are_options_of_the_connector(name: str) -> None:
    described = registry.find(name)
    assert {option for option, _ in described.asked} <= {option.name for option in described.load_options().table}


def test_a_server_that_does_not_answer_leaves_the_file_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200")
    path = tmp_path / "f.properties"
    first = ["init", str(path), "--connector", "mongodb", "--sink", "kafka", "--password-env", "SHOP"]
    assert cli.main([*first, "--set", "topic.prefix=shop"]) == 3
    assert "MongoDB cannot be reached" in capsys.readouterr().err
    assert read_entries(path) == {
        "debezium.source.connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "debezium.source.mongodb.connection.string": "${env:SHOP}",
        "debezium.source.topic.prefix": "shop",
        "debezium.sink.type": "kafka",
        "debezium.sink.kafka.producer.bootstrap.servers": "localhost:9092",
    }


def test_other_words_are_refused_with_those_that_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", str(tmp_path / "f"), "--connector", "oracle"]) == 2
    assert "It knows " in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
