"""`tailrace check --offline` and `tailrace migrate`: what they print, write and return, and what they never show."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.command import cli, migrate
from tailrace.config.properties import parse_properties
from tailrace.connectors import registry

CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": 4,
    "plugin.name": "decoderbufs",
    "database.hostname": "h",
    "database.user": "u",
    "database.password": "hunter2",
    "database.dbname": "d",
    "database.server.name": "old",
    "table.whitelist": "public.orders,public\\.lines",
    "database.history.kafka.topic": "t",
    "heartbeat.interval.ms": "1000",
    "provide.transaction.metadata": True,
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": False,
}
SERVER = """\
# the shop
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.database.hostname=h
debezium.source.database.user=u
debezium.source.database.password=${env:NOWHERE_TO_BE_FOUND}
debezium.source.database.dbname=d
debezium.source.topic.prefix=shop
debezium.source.producer.override.compression.type=zstd
debezium.format.value=jsonbytearray
debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=k:9092
table.include.list=a
quarkus.log.level=INFO
"""


def write(folder: Path, text: str | dict[str, Any]) -> Path:
    path = folder / ("connector.json" if isinstance(text, dict) else "application.properties")
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_a_file_that_passes_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--offline", str(write(tmp_path, {"name": "shop", "config": CONNECTOR}))]) == 0
    said = capsys.readouterr().out
    assert "ok       configuration  shop: postgres to console, format 1.7, at least once.\n" in said
    assert "warning  configuration  plugin.name is taken as pgoutput: " in said
    assert said.endswith(" No server was asked.\n")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"slot.nmae": "x"}, "slot.nmae is not an option; the nearest is slot.name."),
        ({"database.hostname": ""}, "database.hostname is missing."),
        ({"debezium.sink.type": "kinesis"}, "debezium.sink.type = kinesis is not supported."),
        ({"debezium.sink.type": "file"}, "The sink file needs debezium.sink.file.path."),
        ({"decimal.handling.mode": "exact"}, "decimal.handling.mode must be one of precise, double, string"),
    ],
)
def test_a_file_that_is_refused_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, str], said: str
) -> None:
    path = write(tmp_path, {"name": "shop", "config": CONNECTOR | more})
    assert cli.main(["check", "--offline", str(path)]) == 2
    assert f"error    configuration  {said}" in capsys.readouterr().out
    assert cli.main(["migrate", "--write", str(path)]) == 2
    assert "refused         " in capsys.readouterr().out
    assert not migrate.cleaned_path(path).exists()


def test_what_is_no_file_of_a_connector_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resource = "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nspec:\n  class: x\n"
    for text in ("{", resource, "connector.class=io.debezium.connector.oracle.OracleConnector\n"):
        for command in (["check", "--offline"], ["migrate"]):
            assert cli.main([*command, str(write(tmp_path, text))]) == 2
    said = capsys.readouterr().err
    assert "is YAML" in said
    assert "connector.class = io.debezium.connector.oracle.OracleConnector is not supported, for now." in said


def test_overrides_count_in_a_check(tmp_path: Path) -> None:
    path = str(write(tmp_path, {"name": "shop", "config": CONNECTOR | {"slot.nmae": "x"}}))
    assert cli.main(["check", "--offline", path]) == 2
    assert cli.main(["check", "--offline", path, "--set", "tailrace.unknown.options=warn"]) == 0


def test_migrate_tells_what_becomes_of_every_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["migrate", str(write(tmp_path, {"name": "shop", "config": CONNECTOR}))]) == 0
    said = capsys.readouterr().out
    for line in (
        "kept            database.password",
        "without effect  tasks.max: the log has one reader, and the parallelism of the rest is Spark's",
        "translated      plugin.name → plugin.name = pgoutput: it comes with every server",
        "translated      database.server.name → topic.prefix",
        "translated      table.whitelist → table.include.list",
        "without effect  database.history.kafka.topic: PostgreSQL's schemas come from its catalog and its log",
        "15 entries: 10 kept, 3 translated, 2 without effect.",
        "connector       PostgreSQL",
        "format          1.7: events of Debezium 1.7, as database.server.name is given",
        "keys            json, with schemas",
        "values          json, without schemas",
        "topics          old.public.orders, of public.orders",
        "                old.public.lines, of public.lines",
        "                __debezium-heartbeat.old, of heartbeats",
        "                old.transaction, of transactions",
        "sink            console, at least once",
    ):
        assert f"\n{line}" in f"\n{said}"
    assert "hunter2" not in said
    assert not migrate.cleaned_path(tmp_path / "connector.json").exists()


def test_a_cleaned_connector_says_what_older_names_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, {"name": "shop", "config": CONNECTOR})
    assert cli.main(["migrate", "--write", str(path)]) == 0
    target = tmp_path / "connector.tailrace.json"
    assert f"written         {target}" in capsys.readouterr().out
    document = json.loads(target.read_text())
    assert document["name"] == "shop"
    assert (
        document["config"] | {"topic.prefix": "old", "event.format": "1.7", "plugin.name": "pgoutput"}
        == (document["config"])
    )
    assert not {"tasks.max", "table.whitelist", "database.server.name"} & document["config"].keys()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert registry.read(target).source.logical_name == "old"
    assert registry.read(target).source.event_format == "1.7"
    assert cli.main(["migrate", "--write", str(path)]) == 2
    assert "already exists" in capsys.readouterr().err


def test_a_servers_file_stays_one_with_its_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, SERVER)
    assert cli.main(["check", "--offline", str(path)]) == 0
    assert "debezium.source.database.password refers to a value that is missing." in capsys.readouterr().out
    assert cli.main(["migrate", "--write", str(path)]) == 0
    said = capsys.readouterr().out
    for line in (
        "kept            debezium.source.database.password, which refers to a value that is missing; a run needs it",
        "without effect  debezium.source.producer.override.compression.type: beside a connector of Kafka Connect",
        "translated      debezium.format.value → debezium.format.value = json: it is the same JSON",
        "without effect  table.include.list: Debezium Server reads no such entry",
        "without effect  quarkus.log.level: it configures Debezium Server's own runtime",
        "topics          shop.SCHEMA.TABLE, for each captured table",
        "sink            kafka, at least once",
    ):
        assert line in said
    written = parse_properties((tmp_path / "application.tailrace.properties").read_text())
    assert written["debezium.source.database.password"] == "${env:NOWHERE_TO_BE_FOUND}"
    assert written["debezium.sink.kafka.producer.bootstrap.servers"] == "k:9092"
    assert written["debezium.source.event.format"] == "3"
    assert not {"table.include.list", "quarkus.log.level"} & written.keys()


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        ({"connector.class": "MySqlConnector", "database.hostname": "h", "database.user": "u"},
         "s.DATABASE.TABLE, for each captured table"),
        ({"connector.class": "MongoDbConnector", "mongodb.connection.string": "mongodb://h"},
         "s.DATABASE.COLLECTION, for each captured collection"),
    ],
)  # fmt: skip
def test_topics_of_a_database_without_schemas_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, str], topics: str
) -> None:
    path = write(tmp_path, {"name": "shop", "config": config | {"topic.prefix": "s"}})
    assert cli.main(["migrate", str(path)]) == 0
    assert f"topics          {topics}\n" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["extended", "none"])
def test_a_lock_that_a_snapshot_of_mysql_takes_or_leaves_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """It was called without effect, and left out of the cleaned file, while the snapshot obeyed it."""
    options = {"connector.class": "MySqlConnector", "database.hostname": "h", "database.user": "u"}
    options |= {"topic.prefix": "s", "snapshot.locking.mode": mode}
    path = write(tmp_path, {"name": "shop", "config": options})
    assert cli.main(["migrate", "--write", str(path)]) == 0
    assert "kept            snapshot.locking.mode\n" in capsys.readouterr().out
    assert registry.read(migrate.cleaned_path(path)).source["snapshot.locking.mode"] == mode


def test_a_value_that_nobody_knows_yet_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("database.hostname", "database.dbname", "database.user", "topic.prefix", "table.include.list",
             "decimal.handling.mode", "max.batch.size", "tombstones.on.delete", "slot.name", "message.key.columns",
             "signal.data.collection", "transforms", "column.mask.with.5.chars")  # fmt: skip
    references = {name: f"${{env:NOT_{number}_HERE}}" for number, name in enumerate(names)}
    path = write(tmp_path, {"name": "shop", "config": CONNECTOR | references})
    assert cli.main(["check", "--offline", str(path)]) == 0
    assert capsys.readouterr().out.count("refers to a value that is missing.") == len(names)
    broken = write(tmp_path, {"name": "shop", "config": CONNECTOR | {"database.user": "${vault:a:b}"}})
    assert cli.main(["check", "--offline", str(broken)]) == 2


def test_what_another_program_is_to_replace_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    templates = {"database.port": "${DB_PORT}", "max.batch.size": "${SIZE}"}
    route = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
             "transforms.r.regex": "(?<all>.*)", "transforms.r.replacement": "${all}"}  # fmt: skip
    path = write(tmp_path, {"name": "shop", "config": CONNECTOR | templates | route})
    assert cli.main(["check", "--offline", str(path)]) == 0
    assert capsys.readouterr().out.count("refers to a value that is missing.") == 2


def test_options_of_mongodb_that_nobody_knows_yet_are_no_fault(tmp_path: Path) -> None:
    config = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": "${env:NOT_HERE}",
        "topic.prefix": "p",
        "capture.scope": "database",
        "capture.target": "${env:NOT_HERE}",
        "cursor.pipeline": "${env:NOT_HERE}",
    }
    assert cli.main(["check", "--offline", str(write(tmp_path, config))]) == 0


def test_a_database_that_nobody_knows_yet_is_no_fault_under_its_older_name(tmp_path: Path) -> None:
    config = {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "${env:NOT_HERE}",
        "database.server.name": "s",
    }
    path = str(write(tmp_path, config))
    assert cli.main(["check", "--offline", path]) == 0
    assert cli.main(["migrate", path]) == 0


def test_a_connectors_own_producer_becomes_the_sinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = {"debezium.sink.type": "kafka", "debezium.sink.kafka.producer.bootstrap.servers": "k:9092"}
    path = write(tmp_path, CONNECTOR | sink | {"producer.override.compression.type": "zstd"})
    assert cli.main(["migrate", "--write", str(path)]) == 0
    line = "translated      producer.override.compression.type → debezium.sink.kafka.producer.compression.type: "
    assert line in capsys.readouterr().out
    written = json.loads((tmp_path / "connector.tailrace.json").read_text())
    assert written["debezium.sink.kafka.producer.compression.type"] == "zstd"


def test_an_address_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SERVER.replace("=kafka\n", "=redis\n")
    assert cli.main(["check", "--offline", str(write(tmp_path, text))]) == 0
    assert "debezium.sink.redis.address is not set." in capsys.readouterr().out


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_resource_of_strimzi_is_a_connector(tmp_path: Path, wrapped: bool) -> None:
    options = {name: value for name, value in CONNECTOR.items() if name not in ("connector.class", "tasks.max")}
    resource = {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaConnector",
        "metadata": {"name": "shop"},
        "spec": {"class": CONNECTOR["connector.class"], "tasksMax": 1, "config": options},
    }
    path = tmp_path / "resource.json"
    path.write_text(json.dumps([resource] if wrapped else resource))
    run = registry.read(path)
    assert (run.name, run.source["tasks.max"], run.source.event_format) == ("shop", 1, "1.7")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_a_written_properties_file_reads_as_it_was(entries: dict[str, str]) -> None:
    text = "".join(migrate.line(name, value) for name, value in entries.items())
    assert parse_properties(text) == entries


# a file of offsets that Java has written: for shop and store, and null for gone
OFFSETS = (
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAAABAAAAADdXIAAltC"
    "rPMX+AYIVOACAAB4cAAAABtbImthZmthIix7InNlcnZlciI6InNob3AifV11cQB+AAIAAACPeyJ0c19zZWMiOjE3NjQzMzg0MDAsImZpbGUiOiJiaW5s"
    "b2cuMDAwMDAzIiwicG9zIjoxMDcwLCJndGlkcyI6IjNlMTFmYTQ3LTcxY2EtMTFlMS05ZTMzLWM4MGFhOTQyOTU2MjoxLTMiLCJyb3ciOjEsInNlcnZl"
    "cl9pZCI6MjIzMzQ0LCJldmVudCI6NH11cQB+AAIAAAAaWyJnb25lIix7InNlcnZlciI6ImdvbmUifV1wdXEAfgACAAAAHFsib3RoZXIiLHsic2VydmVy"
    "Ijoic3RvcmUifV11cQB+AAIAAAAgeyJmaWxlIjoiYmlubG9nLjAwMDAwMSIsInBvcyI6NH14"
)
SHOP = (
    '{"ts_sec":1764338400,"file":"binlog.000003","pos":1070,"gtids":"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3",'
    '"row":1,"server_id":223344,"event":4}'
)


def of_offsets(folder: Path, data: bytes | None = None, prefix: str = "shop", **more: str) -> Path:
    """Return a file of Debezium Server for MySQL, whose file of offsets is beside it."""
    if data is not None:
        (folder / "offsets.dat").write_bytes(data)
    entries = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.hostname": "h",
        "database.user": "u", "database.password": "p", "topic.prefix": prefix,
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets.dat"),
    } | {name.replace("_", "."): value for name, value in more.items()}  # fmt: skip
    return write(folder, "".join(f"debezium.source.{name}={value}\n" for name, value in entries.items() if value))


def test_an_offset_in_a_file_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_offsets(tmp_path, base64.b64decode(OFFSETS), snapshot_mode="initial")
    assert cli.main(["migrate", str(path), "--write"]) == 0
    assert f"position        capture.start.offset = {SHOP}\n" in capsys.readouterr().out
    written = parse_properties((tmp_path / "application.tailrace.properties").read_text())
    assert written["debezium.source.capture.start.offset"] == SHOP
    assert written["debezium.source.snapshot.mode"] == "no_data"
    assert cli.main(["check", "--offline", str(tmp_path / "application.tailrace.properties")]) == 0


@pytest.mark.parametrize(
    ("data", "prefix", "said"),
    [
        (None, "shop", "it cannot be read: No such file or directory"),
        (b"", "shop", "it is empty"),
        (b"{}", "shop", "it is not a file of Kafka Connect's FileOffsetBackingStore"),
        (base64.b64decode(OFFSETS)[:-9], "shop", "it is damaged"),
        (base64.b64decode(OFFSETS)[:-1], "shop", "it is damaged"),
        (base64.b64decode(OFFSETS), "gone", "it has no offset for topic.prefix=gone"),
        (base64.b64decode(OFFSETS).replace(b'"pos":4', b'"pas":4'), "store", "the offset has no place"),
        (base64.b64decode(OFFSETS).replace(b'"store"', b'"shop" '), "shop", "it has offsets of several connectors"),
    ],
)
def test_an_offset_that_is_not_taken_over_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None, prefix: str, said: str
) -> None:
    path = of_offsets(tmp_path, data, prefix)
    assert cli.main(["migrate", str(path), "--write"]) == 0
    out = capsys.readouterr().out
    assert f"Debezium's offset in the file of offset.storage.file.filename is not taken over: {said}" in out
    assert "capture.start.offset" not in (tmp_path / "application.tailrace.properties").read_text()


def test_an_offset_that_is_kept_elsewhere_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_offsets(
        tmp_path, offset_storage="org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
        offset_storage_file_filename="",
    )  # fmt: skip
    assert cli.main(["migrate", str(path)]) == 0
    said = "offset.storage = KafkaOffsetBackingStore keeps it elsewhere; give it to capture.start.offset"
    assert f"Debezium's offset is not read: {said}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("connector", "events"),
    [
        ("mysql.MySqlConnector", "3: events of today's Debezium, as that is this connector's default"),
        ("postgresql.PostgresConnector", "1.7: events of Debezium 1.7, as database.server.name is given"),
    ],
)
def test_the_name_of_the_server_chooses_the_format_where_there_is_a_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], connector: str, events: str
) -> None:
    text = "\n".join(line for line in SERVER.splitlines() if "topic.prefix" not in line and ".dbname" not in line)
    text = text.replace("postgresql.PostgresConnector", connector) + "\ndebezium.source.database.server.name=shop\n"
    if "postgresql" in connector:
        text += "debezium.source.database.dbname=d\n"
    cli.main(["migrate", str(write(tmp_path, text))])
    assert f"format          {events}\n" in capsys.readouterr().out
