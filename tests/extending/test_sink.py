"""A sink of another package: found by its entry point, it gets from the pipeline the columns that it asks for."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tailrace import sinks
from tailrace.command import cli
from tailrace.connectors.registry import from_entries
from tailrace.errors import ConfigError, ConnectionFailed, SinkError
from tailrace.pipeline import Pipeline, read_columns
from tests.fix_postgres import Database

PACKAGES = Path(__file__).parent


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as if it were installed."""
    monkeypatch.syspath_prepend(PACKAGES / "sink")


def package(folder: Path, name: str, points: str, code: str = "") -> None:
    """Write a package with these entry points into a folder."""
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (folder / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(f"[tailrace.sinks]\n{points}\n")
    (folder / f"{name}.py").write_text(code)


def test_a_sink_is_known_while_its_package_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("kafka", "file", "parquet", "console", "noop", "http", "redis", "nats-jetstream", "jdbc", "tables")
    assert sinks.names() == own
    with pytest.raises(SinkError, match=r"There is no sink 'latest'\."):
        sinks.open("latest", {"path": "p"})
    monkeypatch.syspath_prepend(PACKAGES / "sink")
    assert sinks.names() == (*own, "latest")
    assert sinks.open("latest", {"path": "p"}).name == "latest"
    with pytest.raises(SinkError, match=r"needs debezium\.sink\.latest\.path"):
        sinks.open("latest", {})
    with pytest.raises(SinkError, match="the nearest is latest"):
        sinks.open("lates", {})


@pytest.mark.usefixtures("_toy")
def test_its_options_may_wait_in_a_file() -> None:
    entries = {
        "debezium.source.database.hostname": "h", "debezium.source.database.user": "u",
        "debezium.source.database.dbname": "d", "debezium.source.topic.prefix": "p",
        "debezium.sink.type": "console", "debezium.sink.latest.path": "p",
    }  # fmt: skip
    run = from_entries(entries, {}, sinks=sinks.names())
    assert "debezium.sink.latest.path has no effect: events go to another sink." in run.notices
    with pytest.raises(ConfigError, match=r"debezium\.sink\.latest\.path does not belong to the sink console"):
        from_entries(entries, {})


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "broken", "odd = broken:Sink", "import nothing_of_that_name")
    package(tmp_path, "other", "plain = other:Plain", "class Plain:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SinkError, match=r"The sink odd of the package broken cannot be loaded: ModuleNotFoundError"):
        sinks.open("odd", {})
    with pytest.raises(SinkError, match=r"The sink plain is not a subclass of tailrace\.sinks\.base\.Sink"):
        sinks.open("plain", {})


def test_two_sinks_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "double", "console = double:Sink")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SinkError, match=r"The sink console is in several packages: tailrace, double\."):
        sinks.open("console", {})


def pipeline(spark: SparkSession | None, database: Database, folder: Path, **more: str) -> Pipeline:
    options = database.options(topic_prefix="shop", slot_name=database.name.lower()) | {
        "checkpoint.location": str(folder / "checkpoint")
    }
    entries = {f"debezium.source.{name}": text for name, text in options.items()} | {
        "debezium.format.schemas.enable": "false",
        "debezium.sink.type": "latest",
        "debezium.sink.latest.path": str(folder / "latest.db"),
    }
    named = {f"debezium.{name.replace('_', '.')}": text for name, text in more.items()}
    return Pipeline(from_entries(entries | named), spark)


def kept(folder: Path) -> list[tuple[str, int, Any]]:
    """Return topic, key and row of each key."""
    with sqlite3.connect(folder / "latest.db") as connection:
        found = connection.execute("select topic, key, value from latest order by topic, key").fetchall()
    return [(topic, json.loads(key)["id"], value and json.loads(value)["after"]) for topic, key, value in found]


@pytest.mark.usefixtures("_toy")
def test_the_source_is_asked_for_what_the_sink_needs(tmp_path: Path, database: Database) -> None:
    made = pipeline(None, database, tmp_path)
    # op and source_ts are for the pipeline's status
    assert read_columns(made.sink) == ("topic", "key", "value", "op", "position", "ordinal", "source_ts")
    texts = made.options()
    assert texts["row.columns"] == "topic,key,value,op,position,ordinal,source_ts"
    assert texts["event.order"] == "key"
    # A configuration may ask for a stricter order.
    assert pipeline(None, database, tmp_path, source_event_order="topic").options()["event.order"] == "topic"


@pytest.mark.usefixtures("_toy")
def test_a_pipeline_runs_into_it_and_a_replay_changes_nothing(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    first = pipeline(spark, database, tmp_path).start(available_now=True)
    assert first.awaitTermination(240)
    assert kept(tmp_path) == [("shop.public.t", 1, {"id": 1, "v": "a"}), ("shop.public.t", 2, {"id": 2, "v": "b"})]
    database.execute("update t set v = 'c' where id = 1", "delete from t where id = 2", "insert into t values (3, 'd')")
    wanted = [
        ("shop.public.t", 1, {"id": 1, "v": "c"}),
        ("shop.public.t", 2, None),
        ("shop.public.t", 3, {"id": 3, "v": "d"}),
    ]
    database.keep_slot(database.name.lower())
    second = pipeline(spark, database, tmp_path).start(available_now=True)
    assert second.awaitTermination(240)
    assert kept(tmp_path) == wanted
    # As after a crash between the sink and the commit of the last batch.
    max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    database.set_slot_back(database.name.lower())
    again = pipeline(spark, database, tmp_path).start(available_now=True)
    assert again.awaitTermination(240)
    assert again.lastProgress is not None
    assert kept(tmp_path) == wanted


@pytest.mark.usefixtures("_toy")
def test_what_the_sink_meets_is_told_in_its_words(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    made = pipeline(spark, database, tmp_path, sink_latest_path=str(tmp_path / "nowhere" / "latest.db"))
    with pytest.raises(StreamingQueryException) as failed:
        made.start(available_now=True).awaitTermination(240)
    found = made.cause(failed.value)
    assert isinstance(found, SinkError)
    assert found.message.endswith("nowhere/latest.db cannot be written: unable to open database file.")
    assert found.remedy == "Check debezium.sink.latest.path."
    passing = made.cause(RuntimeError("sqlite3.OperationalError: database is locked\n\tat org.apache.X"))
    assert isinstance(passing, ConnectionFailed)
    assert made.cause(RuntimeError("java.lang.RuntimeException: of nobody")) is None


@pytest.mark.usefixtures("_toy")
def test_check_tells_what_a_replay_leaves(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {f"debezium.source.{name}": text for name, text in database.options(topic_prefix="shop").items()}
    entries |= {"debezium.sink.type": "latest", "debezium.sink.latest.path": "p"}
    path = tmp_path / "application.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    cli.main(["check", str(path)])
    assert "shop: postgres to latest, format 3, exactly once." in capsys.readouterr().out
