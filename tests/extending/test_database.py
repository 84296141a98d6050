"""A database that tailrace does not know: its connector is a separate package, found by its entry point."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.command import cli
from tailrace.connectors import reference, registry
from tailrace.errors import ConfigError
from tailrace.monitoring.status import StatusLine
from tailrace.pipeline import Pipeline
from tailrace.spark import options, register
from tests.extending.reading import read

PACKAGE = Path(__file__).parent / "database"
ROWS = ({"id": 1, "item": "rope"}, {"id": 1, "item": "long rope"}, {"id": 2, "item": None})


def change(op: str, before: object, after: object, table: str = "orders") -> str:
    line = {"op": op, "table": table, "before": before, "after": after, "at_us": 1_700_000_000_000_000}
    return json.dumps(line) + "\n"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as if it were installed, for this process."""
    monkeypatch.syspath_prepend(PACKAGE)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "toylog"]:
        del sys.modules[name]


@pytest.fixture
def session(installed: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session, with the package installed for its planners and workers too."""
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(PACKAGE))
    return spark


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "changes.jsonl"
    first, second, third = ROWS
    path.write_text(
        change("c", None, first)
        + change("c", None, {"id": 9, "item": "the log's own"}, "sys_log")
        + change("u", first, second)
        + change("c", None, third)
        + change("d", third, None)
    )
    return path


def entries(log: Path, **more: str) -> dict[str, str]:
    given = {
        "debezium.source.connector.class": "example.ToylogConnector",
        "debezium.source.topic.prefix": "shop",
        "debezium.source.log.file": str(log),
        "debezium.source.checkpoint.location": str(log.parent / "checkpoint"),
        "debezium.format.schemas.enable": "false",
        "debezium.sink.type": "console",
    }
    return given | {name.replace("__", "."): text for name, text in more.items()}


@pytest.fixture
def file(log: Path) -> str:
    path = log.parent / "application.properties"
    given = entries(log) | {"debezium.source.signal.data.collection": "log.signals"}
    path.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    return str(path)


def test_only_an_installed_package_brings_it() -> None:
    with pytest.raises(ConfigError, match=r"There is no connector 'toylog'. Known: postgres, mongodb, sqlserver, db2"):
        registry.find("toylog")


def test_it_is_one_of_the_connectors(installed: None, log: Path) -> None:
    assert [one.name for one in registry.known()] == [*registry.OWN, "toylog"]
    run = registry.from_entries(entries(log))
    assert (run.source.connector, run.source["log.file"], run.source.event_format) == ("toylog", str(log), "3")
    assert "`log.file` | required | Path of the log. |" in reference.page("toylog")


def test_its_options_are_judged_like_all_others(installed: None, log: Path) -> None:
    with pytest.raises(ConfigError, match=r"log.flie is not an option; the nearest is log.file"):
        registry.from_entries(entries(log, debezium__source__log__flie="x"))
    with pytest.raises(ConfigError, match=r"known are: Db2, MariaDB, MongoDB, MySQL, PostgreSQL, SQL Server, Toylog"):
        registry.from_entries(entries(log, debezium__source__connector__class="nothing"))


def test_check_asks_it(installed: None, log: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       configuration  shop: toylog to console, format 3, at least once.",
        "ok       log            5 changes.",
        "0 errors, 0 warnings.",
    ]
    log.unlink()
    assert cli.main(["check", file]) == 4
    assert f"error    log            The log {log} cannot be read" in capsys.readouterr().out


def test_signal_writes_to_it(installed: None, log: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["signal", "pause-snapshot", file, "--id", "s"]) == 0
    assert capsys.readouterr().out == "pause-snapshot s: a line of the log log.signals.\n"
    assert json.loads(log.read_text().splitlines()[-1])["after"] == {"id": "s", "type": "pause-snapshot", "data": None}


def test_the_status_line_speaks_its_words(installed: None) -> None:
    out = io.StringIO()
    line = StatusLine(registry.find("toylog").load_describe(), out)
    line.update({"batchId": 3, "numInputRows": 5, "sources": [{"endOffset": {"line": 5}, "latestOffset": {"line": 5}}]})
    line.close()
    assert out.getvalue() == "0 events/s · 5 in all · lag 0.0 s · batch 3 · at line 5\n"


def test_a_pipeline_delivers_its_changes(session: SparkSession, log: Path) -> None:
    written = log.parent / "events"
    given = entries(log, debezium__sink__type="file", debezium__sink__file__path=str(written))
    for count in (5, 6):
        pipeline = Pipeline(registry.from_entries(given), session)
        try:
            query = pipeline.start(available_now=True)
            assert query.awaitTermination(180)
        finally:
            pipeline.stop()
        records = [
            json.loads(line) for path in sorted(written.glob("*.json*")) for line in path.read_text().splitlines()
        ]
        assert len(records) == count
        with log.open("a") as more:
            more.write(change("c", None, {"id": 3, "item": "bell"}))
    assert {record["topic"] for record in records} == {"shop.log.orders"}
    values = [record["value"] for record in records if record["value"] is not None]
    first, second, third = ROWS
    found = [(value["op"], value["before"], value["after"]) for value in values]
    assert found == [
        ("c", None, first),
        ("u", first, second),
        ("c", None, third),
        ("d", third, None),
        ("c", None, {"id": 3, "item": "bell"}),
    ]
    source = values[0]["source"]
    assert (source["connector"], source["version"], source["name"]) == ("toylog", "3.6.1.Final", "shop")
    assert (source["table"], source["commit_lsn"]) == ("orders", "00000000:00000001")


def test_a_query_of_some_tables(installed: None, log: Path) -> None:
    rows = read("toylog", {"topic.prefix": "s", "log.file": str(log), "table.include.list": "log.orders"})
    rows.sort(key=lambda row: (row["position"], row["op"]))
    assert [row["op"] for row in rows] == ["c", "u", "c", "d", "tombstone"]
    assert {row["table"] for row in rows} == {"orders"}


@pytest.mark.full
def test_it_is_a_format_of_spark(session: SparkSession, log: Path) -> None:
    register(session)
    given = {"topic.prefix": "s", "log.file": str(log), "table.include.list": "log.orders"}
    frame = session.readStream.format("toylog-cdc").options(**options(given)).load()
    query = (
        frame.writeStream.format("memory")
        .queryName("toylog_rows")
        .option("checkpointLocation", str(log.parent / "other"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180)
    rows = session.sql("select op, `table`, position from toylog_rows order by position, op").collect()
    ops = [row.op for row in rows]
    assert ops == ["c", "u", "c", "d", "tombstone"]
    assert {row.table for row in rows} == {"orders"}
