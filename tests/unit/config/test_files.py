"""Debezium Server's and Kafka Connect's files run as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.config import files
from tailrace.config.formats import Format, part_format
from tailrace.config.properties import parse_properties
from tailrace.config.secrets import resolve
from tailrace.connectors import registry
from tailrace.errors import ConfigError

SERVER = r"""
# a comment
debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=broker:9092
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.database.hostname=db
debezium.source.database.user=reader
debezium.source.database.password=${env:DB_PASSWORD}
debezium.source.database.dbname=shop
debezium.source.topic.prefix=tutorial
debezium.source.table.include.list=public\\.orders,\
    public\\.customers
debezium.format.value=json
debezium.format.value.schemas.enable=false
quarkus.log.level=INFO
"""
CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": 1,
    "database.hostname": "db",
    "database.user": "reader",
    "database.dbname": "shop",
    "database.server.name": "old",
    "tombstones.on.delete": False,
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("! no\n# no\n\n a=1", {"a": "1"}),
        ("a=1\\\n   2\\\n 3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        (r"a=\u00e9\t\\.", {"a": "é\t\\."}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=1\\\n# part of the value", {"a": "1# part of the value"}),
    ],
)
def test_properties_follow_java(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_a_broken_escape_is_an_error() -> None:
    with pytest.raises(ConfigError):
        parse_properties(r"a=\u12")


def test_references_are_replaced(tmp_path: Path) -> None:
    secrets = write(tmp_path, "secrets.properties", "db.password=s3cret\n")
    options = {
        "a": "${env:NAME}",
        "b": f"${{file:{secrets}:db.password}}",
        "c": "${SOME_NAME}-${other:fallback}",
        "d": "${a.b}",
        "e": "${x}",
        "x": "1",
    }
    environment = {"NAME": "n", "SOME_NAME": "s", "A_B": "upper"}
    assert resolve(options, environment) == {
        "a": "n",
        "b": "s3cret",
        "c": "s-fallback",
        "d": "upper",
        "e": "1",
        "x": "1",
    }


def test_a_missing_reference_names_the_option_and_no_value() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"database.password": "x${env:GONE}", "b": "${file:/nowhere:k}", "c": "${dir:/nowhere:k}"}, {})
    assert "database.password" in str(caught.value)
    assert "b refers" in str(caught.value)
    assert "c refers" in str(caught.value)


@pytest.mark.parametrize("expressions", [True, False])
@pytest.mark.parametrize("provider", ["vault", "secrets", "secretsmanager"])
def test_an_unknown_provider_is_an_error_and_never_a_password(expressions: bool, provider: str) -> None:
    options = {"database.password": f"${{{provider}:my-path/hunter2:key}}", "database.user": "u"}
    with pytest.raises(ConfigError) as caught:
        resolve(options, {}, expressions=expressions)
    assert f"database.password refers to the provider {provider}, which is not known" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_default_belongs_to_debezium_servers_files() -> None:
    options = {"database.port": "${PORT:5433}"}
    assert resolve(options, {}) == {"database.port": "5433"}
    with pytest.raises(ConfigError, match=r"database\.port refers to the provider PORT, which is not known"):
        resolve(options, {}, expressions=False)


@pytest.mark.parametrize("expressions", [True, False])
@pytest.mark.parametrize("provider", ["dir", "directory"])
def test_a_secret_may_be_the_file_of_a_directory(tmp_path: Path, expressions: bool, provider: str) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "password").write_text("p=ä}: 1")
    (tmp_path / "outside").write_text("no")
    reference = f"${{{provider}:{tmp_path}/mounted:password}}"
    assert resolve({"a": f"<{reference}>"}, {}, expressions=expressions) == {"a": "<p=ä}: 1>"}
    with pytest.raises(ConfigError, match=r"a refers to .* which does not exist"):
        resolve({"a": f"${{{provider}:{tmp_path}/mounted:../outside}}"}, {}, expressions=expressions)


def test_a_reference_without_a_provider_stays_in_a_connector(caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "transforms.outbox.route.topic.replacement": "${routedByValue}",
        "topic.replacement": "a.${one}",
        "database.password": "x${NAME}",
    }
    assert resolve(options, {"NAME": "n", "one": "1", "routedByValue": "2"}, expressions=False) == options
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["database.password"]


def test_a_group_of_an_expression_stays_in_a_server_file_too() -> None:
    options = {
        "debezium.transforms.outbox.route.topic.replacement": "${routedByValue}",
        "debezium.source.topic.replacement": "a.${one}",
        "debezium.source.database.sqlserver.agent.status.query": "select 1 from ${db}.x",
    }
    assert resolve(options, {}) == options
    with pytest.raises(ConfigError, match=r"debezium\.source\.database\.user refers to \$\{GONE\}"):
        resolve({"debezium.source.database.user": "${GONE}"}, {})


@pytest.mark.parametrize("expressions", [True, False])
def test_a_reference_can_be_escaped(expressions: bool) -> None:
    options = {"a": "$${env:X}-${env:X}", "b": "$1 $$ $$x {} ${"}
    assert resolve(options, {"X": "1"}, expressions=expressions) == {"a": "${env:X}-1", "b": "$1 $$ $$x {} ${"}


def test_expressions_may_be_nested() -> None:
    options = {
        "a": "${ONE:${TWO:deep}}",
        "b": "${TWO_GIVEN:${GONE}}",
        "c": "${kind.${which}:none}",
        "which": "x",
        "kind.x": "${ONE_GIVEN}",
        "url": "${URL:mongodb://h:1/?a={b}}",
        "e": "\\${NAME}",
        "self": "${self:end}",
    }
    environment = {"TWO_GIVEN": "2", "ONE_GIVEN": "1", "NAME": "n"}
    resolved = resolve(options, environment)
    assert {name: resolved[name] for name in ("a", "b", "c", "e", "self")} == {
        "a": "deep",
        "b": "2",
        "c": "1",
        "e": "${NAME}",
        "self": "end",
    }


def test_what_a_variable_holds_is_not_searched_again() -> None:
    for expressions in (True, False):
        assert resolve({"a": "${env:P}"}, {"P": "s${x}$${y}"}, expressions=expressions) == {"a": "s${x}$${y}"}


def test_a_server_file_names_source_sink_and_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    run = registry.read(write(tmp_path, "application.properties", SERVER))
    assert run.source["database.password"] == "hunter2"
    assert run.source["table.include.list"] == [r"public\.orders", r"public\.customers"]
    assert run.source["value.converter.schemas.enable"] is False
    assert run.source["key.converter.schemas.enable"] is True
    assert run.source.event_format == "3"
    assert run.sink.name == "kafka"
    assert run.sink.options == {"producer.bootstrap.servers": "broker:9092"}
    assert any("quarkus.log.level" in notice for notice in run.notices)
    assert "hunter2" not in repr(run)
    assert run.checkpoint == Path(".tailrace/tutorial")


def test_overrides_and_the_checkpoint_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    path = write(tmp_path, "application.properties", SERVER)
    run = registry.read(path, {"debezium.source.topic.prefix": "b"}, checkpoint="/c")
    assert run.source.logical_name == "b"
    assert run.checkpoint == Path("/c")


def test_the_environment_goes_before_a_servers_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    monkeypatch.setenv("DEBEZIUM_VERSION", "3.1")
    monkeypatch.setenv("DEBEZIUM_SOURCE_TOPIC_PREFIX", "other")
    monkeypatch.setenv("DEBEZIUM_SOURCE_TOMBSTONES_ON_DELETE", "false")
    monkeypatch.setenv("DEBEZIUM_SOURCE_DATABASE_PASSWORD", "p${a}")
    monkeypatch.setenv("DEBEZIUM_SINK_KAFKA_PRODUCER_BOOTSTRAP_SERVERS", "there:9092")
    path = write(tmp_path, "application.properties", SERVER)
    run = registry.read(path)
    assert (run.source.logical_name, run.source["tombstones.on.delete"]) == ("other", False)
    assert run.source["database.password"] == "p${a}"
    assert run.sink.options == {"producer.bootstrap.servers": "there:9092"}
    assert registry.read(path, {"debezium.source.topic.prefix": "given"}).source.logical_name == "given"
    connector = registry.read(write(tmp_path, "connector.json", json.dumps(CONNECTOR)))
    assert connector.source.logical_name == "old"


def test_entries_of_the_runtime_may_be_what_others_refer_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    text = SERVER.replace("hostname=db", "hostname=${shop.host}") + "shop.host=there\nslot.name=s\n"
    run = registry.read(write(tmp_path, "application.properties", text))
    assert run.source["database.hostname"] == "there"
    assert run.source["slot.name"] == "debezium"
    (told,) = [notice for notice in run.notices if notice.startswith(("slot.name", "shop.host"))]
    assert told.startswith("slot.name has no effect: Debezium Server reads no such entry")


def test_of_two_entries_for_one_option_the_later_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    text = f"{SERVER}debezium.source.value.converter.schemas.enable=true\n"
    run = registry.read(write(tmp_path, "application.properties", text))
    assert run.source["value.converter.schemas.enable"] is True
    told = [notice for notice in run.notices if notice.startswith("debezium.format.value.schemas.enable has no effect")]
    assert told == [
        "debezium.format.value.schemas.enable has no effect: debezium.source.value.converter.schemas.enable has "
        "another value and comes later."
    ]


def test_a_connectors_own_producer_is_the_sinks(tmp_path: Path) -> None:
    own = {"producer.override.acks": "1", "producer.override.linger.ms": "3"}
    sink = {"debezium.sink.type": "kafka", "debezium.sink.kafka.producer.linger.ms": "7"}
    run = registry.read(write(tmp_path, "connector.json", json.dumps(CONNECTOR | own | sink)))
    assert run.sink.options == {"producer.acks": "1", "producer.linger.ms": "7"}
    assert any(notice.startswith("producer.override.linger.ms has no effect") for notice in run.notices)
    other = registry.read(write(tmp_path, "connector.json", json.dumps(CONNECTOR | own)))
    assert any(notice.startswith("producer.override.acks has no effect") for notice in other.notices)


@pytest.mark.parametrize(
    ("named", "directory", "location"),
    [
        ("/c", "/c", "/c"),
        ("file:/c/d", "/c/d", "file:/c/d"),
        ("file:///c", "/c", "file:///c"),
        ("s3a://bucket/c", None, "s3a://bucket/c"),
        ("hdfs://host:8020/c", None, "hdfs://host:8020/c"),
        ("dbfs:/c", None, "dbfs:/c"),
    ],
)
def test_a_location_with_a_scheme_goes_to_spark_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, directory: str | None, location: str
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    path = write(tmp_path, "application.properties", SERVER)
    for run in (
        registry.read(path, checkpoint=named),
        registry.read(path, {"debezium.source.checkpoint.location": named}),
    ):
        assert run.checkpoint == (None if directory is None else Path(directory))
        assert run.checkpoint_location == location


def test_a_relative_checkpoint_is_where_we_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    monkeypatch.chdir(tmp_path)
    run = registry.read(write(tmp_path, "application.properties", SERVER))
    assert run.checkpoint_location == str(tmp_path / ".tailrace" / "tutorial")


def test_options_of_a_sink_that_is_not_in_use_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    path = write(tmp_path, "application.properties", SERVER)
    run = registry.read(path, {"debezium.sink.type": "file", "debezium.sink.file.path": "/out"})
    assert run.sink == files.SinkConfig("file", {"path": "/out"})
    assert any("debezium.sink.kafka.producer.bootstrap.servers has no effect" in notice for notice in run.notices)
    own = registry.read(path, {"debezium.sink.parquet.path": "/out"}, sinks=["parquet"])
    assert any("debezium.sink.parquet.path has no effect" in notice for notice in own.notices)


@pytest.mark.parametrize("nested", [True, False])
def test_a_connector_as_json_runs_and_prints(tmp_path: Path, nested: bool) -> None:
    document = {"name": "inventory", "config": CONNECTOR} if nested else CONNECTOR | {"name": "inventory"}
    run = registry.read(write(tmp_path, "connector.json", json.dumps(document)))
    assert run.name == "inventory"
    assert run.source.event_format == "1.7"
    assert run.source["tombstones.on.delete"] is False
    assert run.sink.name == "console"
    assert any("console" in notice for notice in run.notices)


def test_a_plain_connector_may_name_a_sink_beside_its_options(tmp_path: Path) -> None:
    text = "".join(f"{name}={value}\n" for name, value in CONNECTOR.items())
    text = text.replace("False", "false") + "debezium.sink.type=file\ndebezium.sink.file.path=/out\n"
    run = registry.read(write(tmp_path, "connector.properties", text), checkpoint="/c")
    assert run.sink == files.SinkConfig("file", {"path": "/out"})
    assert run.checkpoint == Path("/c")


def test_protobuf_of_a_server_is_confluents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    registry_of = "debezium.format.value=protobuf\ndebezium.format.value.schema.registry.url=http://r\n"
    run = registry.read(write(tmp_path, "application.properties", f"{SERVER}{registry_of}"))
    assert part_format(run.source, "value") == Format("protobuf", "value", (("schema.registry.url", "http://r"),))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("debezium.format.value=clientprovided", "debezium.format.value = clientprovided is not supported"),
        ("debezium.format.value=yaml", "is not a format"),
        ("debezium.transforms=unwrap", "transforms.unwrap.type is missing"),
        ("debezium.predicates=p", "predicates.p.type is missing"),
        ("debezium.sink.kafak.address=x", "does not belong to the sink kafka"),
        ("debezium.sink.parquet.path=x", "does not belong to the sink kafka"),
        ("debezium.source.row.columns=topic", "row.columns is for spark.readStream: here the sink says which"),
        ("debezium.something=1", "is not an entry of Debezium Server"),
        ("debzium.source.slot.name=x", "does not begin with debezium.source."),
        ("debezium.source.connector.class=io.debezium.connector.oracle.OracleConnector", "is not supported"),
        ("debezium.source.connector.class=com.example.Mine", "is not a known connector"),
    ],
)
def test_what_is_not_supported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, said: str) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    with pytest.raises(ConfigError) as caught:
        registry.read(write(tmp_path, "application.properties", f"{SERVER}{entry}\n"))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1]", '{"config": 3}', '{"config": {"a": [1]}}'])
def test_a_broken_document_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        registry.read(write(tmp_path, "connector.json", text))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        registry.read(tmp_path / "absent")


@pytest.mark.parametrize("text", [SERVER, json.dumps({"name": "t", "config": CONNECTOR | {"database.user": "Jürgen"}})])
def test_line_ends_and_byte_order_marks_of_windows_change_nothing(tmp_path: Path, text: str) -> None:
    plain, windows = tmp_path / "plain", tmp_path / "Überall und nirgends"
    plain.write_bytes(text.encode())
    windows.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert files.read_entries(windows) == files.read_entries(plain)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "utf-16"
    path.write_text(SERVER, "utf-16")
    with pytest.raises(ConfigError, match="is not text in UTF-8") as refused:
        files.read_entries(path)
    assert refused.value.remedy == "Save it in UTF-8, or check its name."
