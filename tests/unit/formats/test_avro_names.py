"""Avro: illegal names stay, or are replaced by `scrub.invalid.names`."""

from __future__ import annotations

import json

import pytest

from tailrace import formats
from tailrace.columns.logical import INT32, STRING, Field, LogicalType, mapping, struct
from tailrace.records.layout import Constant
from tests.layout_blocks import BARE, struct_of, unfilled
from tests.servers.registry import Registry

pytest.importorskip("fastavro")

from tests.unit.formats.registered import avro, read_avro


def names(registry: Registry, kind: LogicalType, **options: str) -> tuple[str, list[str]]:
    """Return the full name of a record, and the names of its fields."""
    formats.find(avro(registry, **options)).compile(unfilled(kind), True, BARE)
    made = json.loads(registry.versions[-1].schema)
    return f"{made['namespace']}.{made['name']}", [part["name"] for part in made["fields"]]


@pytest.mark.parametrize(
    ("name", "scrubbed"),
    [
        ("plain_1", "plain_1"),
        ("_ok", "_ok"),
        ("9lives", "x9lives"),
        ("a-b", "a_b"),
        ("a b", "a_b"),
        ("a.b", "a_b"),
        ("a*b~c", "a_b_7Ec"),
        ("naïve", "na_C3_AFve"),
        ("東", "_E6_9D_B1"),
        ("😀", "_F0_9F_98_80"),
        ("50%", "x50_25"),
    ],
)
def test_names_of_fields_are_scrubbed_as_urls_are_escaped(registry: Registry, name: str, scrubbed: str) -> None:
    """URLEncoder's percent signs become `_`; `x` stands before a digit."""
    kind = struct(Field(name, INT32), name="n.R")
    assert names(registry, kind, scrub_invalid_names="true") == ("n.R", [scrubbed])
    assert names(registry, kind) == ("n.R", [name])


def test_each_part_of_a_records_name_is_scrubbed(registry: Registry) -> None:
    kind = struct(Field("id", INT32), name="my-server.9public.t é.Value")
    assert names(registry, kind, scrub_invalid_names="true")[0] == "my_server.x9public.t__C3_A9.Value"
    assert names(registry, kind)[0] == kind.name


def test_the_values_of_scrubbed_fields_are_found(registry: Registry) -> None:
    form = avro(registry, scrub_invalid_names="true")
    inner = struct(Field("a-b", STRING), name="n.I-1")
    layout = struct_of("n.R-1", **{"x y": Constant({"a-b": "é"}, inner), "m": Constant({"k-1": 7}, mapping(INT32))})
    # The keys of maps are values.
    assert read_avro(registry, formats.find(form).one(layout, True, BARE)) == {"x_y": {"a_b": "é"}, "m": {"k-1": 7}}


def test_a_record_without_a_namespace_has_none(registry: Registry) -> None:
    formats.find(avro(registry)).compile(unfilled(struct(Field("id", INT32), name="Alone")), True, BARE)
    made = json.loads(registry.versions[-1].schema)
    assert (made["name"], "namespace" in made) == ("Alone", False)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("strategy.TopicIdStrategy", "server.public.t-value"),
        ("strategy.SimpleTopicIdStrategy", "server.public.t"),
        ("avro.strategy.QualifiedRecordIdStrategy", "n_1.R"),
    ],
)
def test_a_subject_has_the_name_of_the_scrubbed_record(registry: Registry, strategy: str, subject: str) -> None:
    options = {"apicurio.registry.artifact-resolver-strategy": f"io.apicurio.registry.serde.{strategy}"}
    kind = struct(Field("id", INT32), name="n-1.R")
    formats.find(avro(registry, scrub_invalid_names="true", **options)).compile(unfilled(kind), True, BARE)
    assert registry.versions[-1].subject == subject
