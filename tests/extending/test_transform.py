"""A transform of another package: found by its entry point, it rewrites the layouts of records."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.columns import Column
from tailrace.config import transforms
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.control_records import heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.spark import options, register
from tests.event_settings import event_settings
from tests.extending.reading import read
from tests.unit.events.changes import batch, table

PACKAGES = Path(__file__).parent
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
ROWS = {"transforms": "rows", "transforms.rows.type": "example.Rows"}
TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("item", "text", 25)], "id")
CHANGES = batch(
    TABLE,
    [
        ("c", None, ["1", "rope"]),
        ("c", None, ["2", "bell"]),
        ("u", None, ["2", None]),
        ("d", ["2", None], None),
        ("d", ["1", None], None),
        ("u", ["2", None], ["3", "a key change"]),
    ],
)


@pytest.fixture
def _rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as if it were installed."""
    monkeypatch.syspath_prepend(PACKAGES / "transform")
    yield
    sys.modules.pop("toyrows", None)


def made(**given: str) -> EventSettings:
    options = {f"transforms.rows.{name.replace('_', '.')}": text for name, text in given.items()}
    found = transforms.transforms(ROWS | options | {"transforms": ["rows"]})
    assert not found.faults
    chosen = event_settings(
        "server", "golden", transforms=found.transforms, value_schemas_enable=False, key_schemas_enable=False
    )
    return pickle.loads(pickle.dumps(chosen))


def delivered(chosen: EventSettings) -> list[tuple[str, Any, Any]]:
    rows = [row for part in to_rows(CHANGES, chosen, FORM) for row in part.to_pylist()]
    assert {row["topic"] for row in rows} <= {names.topic(chosen, TABLE.id)}
    return [(row["op"], json.loads(row["key"]), json.loads(row["value"])) for row in rows]


def test_only_an_installed_package_brings_it() -> None:
    with pytest.raises(ConfigError, match=r"transforms\.rows\.type = example\.Rows is not supported: There is no"):
        parse("postgres", POSTGRES | ROWS)


@pytest.mark.usefixtures("_rows")
def test_its_options_are_its_own() -> None:
    assert parse("postgres", POSTGRES | ROWS | {"transforms.rows.field": "id"})["transforms"] == ["rows"]
    other = parse("postgres", POSTGRES | ROWS | {"transforms.other.field": "id"})
    assert "transforms.other.field has no effect: transforms does not name other." in other.notices
    for more, said in (
        ({"transforms.rows.fild": "id"}, "is not supported: It has no option fild"),
        ({"transforms.rows.predicate": "p"}, r"transforms\.rows\.predicate names a predicate that predicates does not"),
        ({"transforms": "rows,more"}, r"transforms\.more\.type is missing"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse("postgres", POSTGRES | ROWS | more)


@pytest.mark.usefixtures("_rows")
def test_a_part_that_is_no_transform_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vain-1.0.dist-info").mkdir()
    (tmp_path / "vain-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vain\nVersion: 1.0\n")
    (tmp_path / "vain-1.0.dist-info" / "entry_points.txt").write_text("[tailrace.transforms]\nodd = vain:Odd\n")
    (tmp_path / "vain.py").write_text("class Odd:\n    def __init__(self, options):\n        pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="It is not a transform: it lacks rewrite"):
        parse("postgres", POSTGRES | {"transforms": "odd", "transforms.odd.type": "odd"})


@pytest.mark.usefixtures("_rows")
def test_it_rewrites_layouts() -> None:
    chosen = made(topic_suffix=".rows")
    assert names.topic(chosen, TABLE.id) == "server.public.t.rows"
    assert delivered(chosen) == [
        ("c", {"id": 1}, {"id": 1, "item": "rope", "__op": "c"}),
        ("c", {"id": 2}, {"id": 2, "item": "bell", "__op": "c"}),
        ("u", {"id": 2}, {"id": 2, "item": None, "__op": "u"}),
        ("d", {"id": 2}, {"id": 2, "item": None, "__op": "d"}),
        ("d", {"id": 1}, {"id": 1, "item": None, "__op": "d"}),
        ("d", {"id": 2}, {"id": 2, "item": None, "__op": "d"}),
        ("c", {"id": 3}, {"id": 3, "item": "a key change", "__op": "c"}),
    ]
    (beat,) = heartbeat_row(5, 7, chosen).to_pylist()
    assert (beat["topic"], beat["value"]) == ("__debezium-heartbeat.server.rows", b'{"ts_ms":5}')


@pytest.mark.usefixtures("_rows")
def test_the_schema_is_that_of_what_is_left() -> None:
    chosen = made()
    rows = next(iter(to_rows(CHANGES, event_settings("server", "golden", transforms=chosen.transforms), FORM)))
    schema = json.loads(rows.column("value")[0].as_py())["schema"]
    assert [field["field"] for field in schema["fields"]] == ["id", "item", "__op"]
    assert (schema["name"], schema["optional"]) == ("server.public.t.Value", False)


@pytest.mark.usefixtures("_rows")
def test_what_depends_on_values_is_computed() -> None:
    assert [key["id"] for _, key, _ in delivered(made(field="id", least="2"))] == [2, 2, 2, 2, 3]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Options of a query whose connector is a separate package too, with two changes in its log."""
    monkeypatch.syspath_prepend(PACKAGES / "database")
    log = tmp_path / "changes.jsonl"
    log.write_text(
        '{"op": "c", "table": "orders", "before": null, "after": {"id": 1, "item": "rope"}, "at_us": 5000}\n'
        '{"op": "d", "table": "orders", "before": {"id": 1, "item": "rope"}, "after": null, "at_us": 5000}\n'
    )
    return ROWS | {"topic.prefix": "s", "log.file": str(log), "converter.schemas.enable": "false",
                   "transforms.rows.topic.suffix": "-rows"}  # fmt: skip


LOGGED = [
    ("c", "s.log.orders-rows", b'{"id":1,"item":"rope","__op":"c"}'),
    ("d", "s.log.orders-rows", b'{"id":1,"item":"rope","__op":"d"}'),
]


@pytest.mark.usefixtures("_rows")
def test_tasks_have_it(logged: dict[str, str]) -> None:
    rows = sorted(read("toylog", logged), key=lambda row: str(row["op"]))
    assert [(row["op"], row["topic"], row["value"]) for row in rows] == LOGGED


@pytest.mark.full
@pytest.mark.usefixtures("_rows")
def test_a_stream_has_it(
    spark: SparkSession, logged: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = [str(PACKAGES / name) for name in ("transform", "database")]
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", ":".join(places))
    register(spark)
    frame = spark.readStream.format("toylog-cdc").options(**options(logged)).load()
    query = (
        frame.writeStream.format("memory")
        .queryName("toyrows_rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180)
    rows = sorted(spark.table("toyrows_rows").collect(), key=lambda row: str(row.op))
    assert [(row.op, row.topic, bytes(row.value)) for row in rows] == LOGGED
