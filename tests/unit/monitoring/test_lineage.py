"""OpenLineage gets the events of a run: its job, the captured tables, what the sink writes, and the end."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openlineage.client.client import OpenLineageClient
from openlineage.client.serde import Serde
from openlineage.client.transport import Config as TransportConfig
from openlineage.client.transport import Transport

from tailrace import sinks
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors import registry
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.connectors.descriptor import Descriptor
from tailrace.errors import ConfigError, SinkError
from tailrace.monitoring import lineage
from tailrace.monitoring.lineage import Lineage
from tests.unit.monitoring.planner_file import observation, written
from tests.waiting import until

SECRET = "a-secret-that-nobody-may-see"
POSTGRES = {
    "database.hostname": "db.example", "database.port": "5433", "database.user": "u", "database.password": SECRET,
    "database.dbname": "shop", "topic.prefix": "p", "openlineage.integration.enabled": "true",
}  # fmt: skip
TABLES = [
    TableSchema(TableId("shop", "public", "orders"), (Column("id", "int4", 23), Column("v", "text", 25)), ("id",)),
    TableSchema(TableId("shop", "public", "persons"), (Column("id", "int8", 20, comment="a number"),), ("id",)),
]


class Kept(Transport):
    """A transport that keeps the events as JSON; it fails while `is_down`."""

    kind = "kept"
    config_class = TransportConfig

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_down = False

    def emit(self, event: Any) -> None:
        if self.is_down:
            raise OSError(SECRET)
        self.events.append(json.loads(Serde.to_json(event)))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[TableSchema]:
    """The tables that every database of the test tells."""
    found = list(TABLES)

    def capturing(*_: Any) -> CapturedTables:
        return CapturedTables(tuple(found), "0/0", None)  # type: ignore[arg-type]  # nobody reads the form

    monkeypatch.setattr(Descriptor, "load_captured_tables", lambda _: capturing)
    monkeypatch.setattr(lineage, "BEGIN_SECONDS", 0.01)
    monkeypatch.setattr(lineage, "LOOK_SECONDS", 0.01)
    return found


def ran(
    folder: Path, more: dict[str, str] | None = None, *, kept: Kept | None = None, sink: Any = None, **other: Any
) -> tuple[Lineage, Kept]:
    """Return the started lineage of a pipeline that runs, and what it has sent."""
    transport = kept or Kept()
    config = registry.parse(other.get("connector", "postgres"), {**other.get("options", POSTGRES), **(more or {})})
    dataset = (lambda *_: None) if sink is None else sink.dataset
    found = Lineage(config, observation(written(folder)), dataset, OpenLineageClient(transport=transport))
    found.start()
    return found, transport


def states(kept: Kept) -> list[str]:
    return [event["eventType"] for event in kept.events]


# --- the form of events -----------------------------------------------------------------------------------------------

FACETS: dict[str, tuple[str, Sequence[str], dict[str, Sequence[str]]]] = {
    "processing_engine": ("ProcessingEngineRunFacet", ["version", "name", "openlineageAdapterVersion"], {}),
    "errorMessage": ("ErrorMessageRunFacet", ["message", "programmingLanguage"], {}),
    "documentation": ("DocumentationJobFacet", ["description"], {}),
    "ownership": ("OwnershipJobFacet", [], {"owners": ["name", "type"]}),
    # the client tags the run with itself
    "tags": ("Tags(Job|Run)Facet", [], {"tags": ["key", "value", "source"]}),
    "jobType": ("JobTypeJobFacet", ["processingType", "integration", "jobType"], {}),
    "datasetType": ("DatasetTypeDatasetFacet", ["datasetType"], {}),
    "schema": ("SchemaDatasetFacet", [], {"fields": ["name", "type"]}),
}
"""Of each facet: the name of its schema in OpenLineage's specification, its texts, and its lists with their members'
texts."""


def demand_sound(event: dict[str, Any]) -> None:
    """Assert what the specification's schema demands of a RunEvent, its datasets and its facets."""
    assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "FAIL")
    assert event["schemaURL"].startswith("https://openlineage.io/spec/")
    uuid.UUID(event["run"]["runId"])
    datasets = [*event.get("inputs", []), *event.get("outputs", [])]
    for one in (event["job"], *datasets):
        assert isinstance(one["namespace"], str)
        assert one["name"]
    for of in (event["run"], event["job"], *datasets):
        for name, facet in of.get("facets", {}).items():
            assert all(urlsplit(facet[field]).scheme for field in ("_producer", "_schemaURL"))
            if name not in FACETS:
                continue
            kind, required, members = FACETS[name]
            assert re.search(rf"#/\$defs/{kind}$", facet["_schemaURL"])
            assert all(isinstance(facet[field], str) for field in required)
            for field, needed in members.items():
                assert all(isinstance(member[inner], str) for member in facet[field] for inner in needed)


def test_a_run_is_started_running_and_complete(tables: Sequence[TableSchema], tmp_path: Path) -> None:
    more = {
        "openlineage.integration.job.namespace": "shops", "openlineage.integration.job.description": "the orders",
        "openlineage.integration.job.tags": "env=test,team=a=b", "openlineage.integration.job.owners": "ann=TEAM",
    }  # fmt: skip
    sink = sinks.open("kafka", {"producer.bootstrap.servers": "PLAINTEXT://k1:9092, k2:9092"})
    found, kept = ran(tmp_path, more, sink=sink)
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    found.end(None)
    assert states(kept) == ["START", "RUNNING", "COMPLETE"]
    for event in kept.events:
        demand_sound(event)
    assert len({event["run"]["runId"] for event in kept.events}) == 1
    running = kept.events[1]
    assert (running["job"]["namespace"], running["job"]["name"]) == ("shops", "p.0")
    facets = running["job"]["facets"]
    assert facets["documentation"]["description"] == "the orders"
    assert [(one["key"], one["value"], one["source"]) for one in facets["tags"]["tags"]] == [
        ("env", "test", "CONFIG"), ("team", "a=b", "CONFIG"),
    ]  # fmt: skip
    assert facets["ownership"]["owners"] == [{"name": "ann", "type": "TEAM"}]
    kinds = {name: facets["jobType"][name] for name in ("processingType", "integration", "jobType")}
    assert kinds == {"processingType": "STREAMING", "integration": "DEBEZIUM", "jobType": "TASK"}
    names = [(one["namespace"], one["name"]) for one in running["inputs"]]
    assert names == [("postgres://db.example:5433", f"shop.public.{table}") for table in ("orders", "persons")]
    orders, persons = running["inputs"]
    assert orders["facets"]["datasetType"]["datasetType"] == "TABLE"
    assert orders["facets"]["schema"]["fields"] == [{"name": "id", "type": "int4"}, {"name": "v", "type": "text"}]
    assert persons["facets"]["schema"]["fields"][0]["description"] == "a number"
    topics = [
        (one["namespace"], one["name"], one["facets"]["datasetType"]["datasetType"]) for one in running["outputs"]
    ]
    assert topics == [("kafka://k1:9092", f"p.public.{table}", "STREAM") for table in ("orders", "persons")]


def test_no_secret_is_in_an_event(tables: Sequence[TableSchema], tmp_path: Path) -> None:
    found, kept = ran(
        tmp_path, {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}
    )
    found.end(SinkError("The target is full.", "Make room."))
    assert SECRET not in json.dumps(kept.events)
    configs = kept.events[0]["run"]["facets"]["debezium_config"]["configs"]
    assert {"database.dbname=shop", "database.password=***"} <= set(configs)


def test_a_failure_is_an_event_with_its_message(tables: Sequence[TableSchema], tmp_path: Path) -> None:
    found, kept = ran(tmp_path)
    found.end(SinkError("The target is full.", "Make room."))
    last = kept.events[-1]
    demand_sound(last)
    assert last["eventType"] == "FAIL"
    assert "The target is full." in last["run"]["facets"]["errorMessage"]["message"]
    assert last["run"]["facets"]["errorMessage"]["programmingLanguage"] == "PYTHON"


def test_a_table_that_is_altered_is_reported_again(tables: list[TableSchema], tmp_path: Path) -> None:
    found, kept = ran(tmp_path)
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    id_ = tables[0].id
    tables[0] = TableSchema(id_, (Column("id", "int8", 20),), ("id",))
    until(lambda: len(kept.events) == 3, "the changed table", 20)
    found.end(None)
    assert states(kept) == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert kept.events[2]["inputs"][0]["facets"]["schema"]["fields"] == [{"name": "id", "type": "int8"}]


# --- names of datasets ------------------------------------------------------------------------------------------------


def test_topics_are_those_after_all_transforms(tables: Sequence[TableSchema], tmp_path: Path) -> None:
    more = {
        "transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": ".*", "transforms.r.replacement": "all",
        "openlineage.integration.dataset.kafka.bootstrap.servers": "broker:1,other:2",
    }  # fmt: skip
    found, kept = ran(tmp_path, more, sink=sinks.open("kafka", {"producer.bootstrap.servers": "k1:9092"}))
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    found.end(None)
    assert [(one["namespace"], one["name"]) for one in kept.events[1]["outputs"]] == [("kafka://broker:1", "all")]


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/lake", "file", "/lake/public.orders"),
        ("s3a://bucket/lake", "s3://bucket", "lake/public.orders"),
        ("abfss://c@a.example/lake", "abfss://c@a.example", "lake/public.orders"),
    ],
)
def test_tables_are_named_by_their_place(
    tables: Sequence[TableSchema], tmp_path: Path, path: str, namespace: str, name: str
) -> None:
    found, kept = ran(tmp_path, sink=sinks.open("tables", {"path": path}))
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    found.end(None)
    orders = kept.events[1]["outputs"][0]
    assert (orders["namespace"], orders["name"]) == (namespace, name)
    assert orders["facets"]["schema"]["fields"][0] == {"name": "id", "type": "int4"}


def test_a_database_without_schemas_has_names_of_two_parts(tmp_path: Path, tables: list[TableSchema]) -> None:
    tables[:] = [TableSchema(TableId("shop", "shop", "orders"), (), ())]
    options = {
        "database.hostname": "db", "database.user": "u", "database.password": SECRET, "topic.prefix": "p",
        "database.server.id": "7",
    }  # fmt: skip
    found, kept = ran(tmp_path, connector="mysql", options=options)
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    found.end(None)
    (one,) = kept.events[1]["inputs"]
    assert (one["namespace"], one["name"]) == ("mysql://db:3306", "shop.orders")


def test_mongodb_is_named_without_login_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "mongodb.connection.string": f"mongodb://u:{SECRET}@h1:1,h2:2/d?replicaSet=r", "topic.prefix": "p",
    }  # fmt: skip
    found, kept = ran(tmp_path, connector="mongodb", options=options)
    until(lambda: len(kept.events) == 2, "the event RUNNING", 20)
    found.end(None)
    (one,) = kept.events[1]["inputs"]
    assert (one["namespace"], one["name"]) == ("mongodb://h1:1,h2:2", "public.a")
    assert SECRET not in json.dumps(kept.events)


# --- receivers and configurations -------------------------------------------------------------------------------------


def test_a_missing_receiver_is_one_warning_and_the_datasets_come_later(
    tables: Sequence[TableSchema], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    kept.is_down = True
    found, _ = ran(tmp_path, kept=kept)
    until(lambda: "could not be sent (OSError)" in caplog.text, "the warning", 20)
    assert SECRET not in caplog.text
    kept.is_down = False
    until(lambda: "RUNNING" in states(kept), "the datasets", 20)
    found.end(None)
    assert caplog.text.count("could not be sent") == 1


def config(**options: str) -> Any:
    named = {name.replace("__", "."): text for name, text in options.items()}
    return registry.parse("postgres", POSTGRES | named)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "cannot be read"),
        ("- a", "is no YAML file"),
        ("{", "is no YAML file"),
        ("transport: {type: http}", "does not take its configuration"),
        (f"transport: {{type: {SECRET}}}", "does not take its configuration"),
        ("transport: {}", "no transport of OpenLineage is named"),
    ],
)
def test_a_configuration_that_sends_nothing_is_refused(
    tmp_path: Path, content: str | None, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    path = tmp_path / "lineage.yml"
    if content is not None:
        path.write_text(content)
    given = config(openlineage__integration__config__file__path=str(path))
    with pytest.raises(ConfigError, match=match) as caught:
        Lineage(given, observation(), lambda *_: None)
    assert SECRET not in str(caught.value)


def test_a_file_names_the_transport(tmp_path: Path, tables: Sequence[TableSchema]) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text(f"transport: {{type: file, log_file_path: {tmp_path}/events.jsonl, append: true}}")
    given = config(openlineage__integration__config__file__path=str(path))
    found = Lineage(given, observation(written(tmp_path)), lambda *_: None)
    found.start()
    found.end(None)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    # a run that has ended before the first look shows its datasets, too
    assert [line["eventType"] for line in lines] == ["START", "RUNNING", "COMPLETE"]
    assert [one["name"] for one in lines[1]["inputs"]] == ["shop.public.orders", "shop.public.persons"]


def test_a_console_shows_the_events(
    tmp_path: Path, tables: Sequence[TableSchema], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text("transport: {type: console}")
    given = config(openlineage__integration__config__file__path=str(path))
    found = Lineage(given, observation(written(tmp_path)), lambda *_: None)
    found.start()
    found.end(None)
    assert "COMPLETE" in caplog.text


def test_a_missing_client_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client.client", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[openlineage\]"):
        Lineage(config(), observation(), lambda *_: None)


@pytest.mark.parametrize("name", ["tags", "owners"])
def test_entries_without_a_value_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"openlineage.integration.job.{name} has entries of the form"):
        config(**{f"openlineage__integration__job__{name}": "alone"})
