"""Options about columns: the columns of values, the columns of keys, the parameters of schemas."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailrace.columns import Column, TableSchema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.values import declared_types
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.events.admission import Admission, doubts
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.event_settings import event_settings
from tests.unit.events.changes import Change, batch, table

REQUIRED = {
    "database.hostname": "db",
    "database.user": "u",
    "database.dbname": "golden",
    "topic.prefix": "server",
    "key.converter.schemas.enable": "false",
}
TABLE = table(
    "people",
    [
        Column("id", "int4", 23, nullable=False),
        Column("Name", "varchar", 1043, modifier=24, nullable=False),
        Column("email", "text", 25),
        Column("born", "date", 1082),
        Column("uid", "uuid", 2950),
    ],
    "id",
)
ROW = ("1", "Sally Thomas", "sally@acme.com", "1980-01-02", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")


def settings(options: dict[str, str]) -> EventSettings:
    return EventSettings.from_options(parse("postgres", REQUIRED | options), "run")


def shown(options: dict[str, str], *changes: Change, of: TableSchema = TABLE) -> list[tuple[Any, Any]]:
    """Return the key and value payloads of the records of `changes`."""
    chosen = settings(options | {"value.converter.schemas.enable": "false"})
    schema = Admission(chosen, FORM).admit(of)
    rows = [
        row
        for found in to_rows(batch(schema, changes or [("c", None, ROW)]), chosen, FORM)
        for row in found.to_pylist()
    ]
    return [
        (json.loads(row["key"]) if row["key"] else None, json.loads(row["value"]) if row["value"] else None)
        for row in rows
    ]


def after(options: dict[str, str]) -> dict[str, Any]:
    value: dict[str, Any] = shown(options)[0][1]["after"]
    return value


def parameters(options: dict[str, str], column: str) -> dict[str, str]:
    chosen = settings(options)
    row = next(iter(to_rows(batch(TABLE, [("c", None, ROW)]), chosen, FORM))).to_pylist()[0]
    fields = json.loads(row["value"])["schema"]["fields"][1]["fields"]
    found: dict[str, str] = next(field for field in fields if field["field"] == column).get("parameters", {})
    return found


@pytest.mark.seed("000-14")
@pytest.mark.parametrize(
    "options",
    [
        {"column.exclude.list": r"public\.people\.(id|EMAIL|born|uid)"},
        {"column.include.list": r"public\.people\.name"},
        {"column.whitelist": r".*\.NAME"},
    ],
)
def test_lists_choose_the_columns_of_values_and_keys_keep_theirs(options: dict[str, str]) -> None:
    key, value = shown(options)[0]
    assert key == {"id": 1}
    assert value["after"] == {"Name": "Sally Thomas"}


def test_a_column_that_is_left_out_is_not_read_by_snapshots_unless_the_key_needs_it() -> None:
    chosen = settings({"column.include.list": r".*\.email"})
    assert [column.name for column in chosen.shaping.read(TABLE).columns] == ["id", "email"]
    assert event_settings("s", "d").shaping.read(TABLE) is TABLE


def test_the_first_option_that_names_a_column_shapes_it() -> None:
    options = {
        "column.propagate.source.type": ".*",
        "column.mask.hash.SHA-256.with.salt.x": r".*\.(name|email)",
        "column.mask.with.4.chars": r".*\.(name|email)",
        "column.truncate.to.5.chars": r".*\.name",
    }
    row = after(options)
    assert (row["Name"], row["email"]) == ("Sally", "****")
    assert parameters(options, "Name") == {"truncateLength": "5"}
    assert parameters(options, "email") == {"masked": "true"}
    assert parameters(options, "born")["__debezium.source.column.type"] == "DATE"


def test_hashes_are_cut_to_the_length_of_the_column_and_keep_the_case_of_the_salt() -> None:
    lower, upper = (after({f"column.mask.hash.v2.md5.with.salt.{salt}": r".*\.name"})["Name"] for salt in ("a", "A"))
    assert len(lower) == len(upper) == 20
    assert lower != upper


def test_masks_cover_nulls_and_leave_keys_alone() -> None:
    options = {"column.mask.with.0.chars": r".*\.(id|email)", "message.key.columns": "public.people:email"}
    key, value = shown(options, ("c", None, ("1", "n", None, None, None)))[0]
    assert key == {"email": None}
    assert value["after"]["email"] == ""
    assert value["after"]["id"] == 1
    assert shown(options)[0][0] == {"email": "sally@acme.com"}


def test_what_stands_for_a_value_that_was_not_carried_is_shaped_too() -> None:
    deletion: Change = ("d", ("1", None, None, None, None), None)
    assert shown({}, deletion)[0][1]["before"]["Name"] == ""
    hashed = shown({"column.mask.hash.v2.MD5.with.salt.s": r".*\.name"}, deletion)[0][1]["before"]["Name"]
    assert hashed == "03c7c0ace395d80182db"


def test_cuts_reach_every_type_that_is_written_as_a_string() -> None:
    row = after({"column.truncate.to.3.chars": ".*", "time.precision.mode": "isostring"})
    assert row == {"id": 1, "Name": "Sal", "email": "sal", "born": "198", "uid": "a0e"}


def test_bytes_are_cut_as_bytes_or_as_the_text_that_they_are_written_as() -> None:
    schema = table("t", [Column("b", "bytea", 17)])
    change: Change = ("c", None, ("\\x010203040506",))
    for mode, text in (("bytes", "AQID"), ("hex", "010"), ("base64", "AQI")):
        options = {"column.truncate.to.3.chars": ".*", "binary.handling.mode": mode}
        assert shown(options, change, of=schema)[0][1]["after"] == {"b": text}
    part = batch(schema, [("u", None, (None,))])
    assert part.after is not None
    part.after.unavailable[0] = np.array([True])
    value = next(iter(to_rows(part, settings({"column.truncate.to.3.chars": ".*"}), FORM))).to_pylist()[0]["value"]
    assert json.loads(value)["payload"]["after"] == {"b": "X19k"}


def test_a_short_column_is_not_cut() -> None:
    assert parameters({"column.truncate.to.20.chars": ".*"}, "Name") == {}
    assert parameters({"column.truncate.to.20.chars": ".*"}, "email") == {"truncateLength": "20"}


def test_types_are_told_for_columns_and_for_types() -> None:
    told = {"__debezium.source.column.type": "VARCHAR", "__debezium.source.column.length": "20"}
    told |= {"__debezium.source.column.scale": "0"}
    name = {"__debezium.source.column.name": "Name"}
    assert parameters({"column.propagate.source.type": r"public\.people\.name"}, "Name") == told | name
    assert parameters({"datatype.propagate.source.type": r".*\.VARCHAR"}, "Name") == told | name
    assert parameters({"datatype.propagate.source.type": r".*\.varchar"}, "email") == {}
    legacy = {"datatype.propagate.source.type": r"golden\.public\.people\.varchar", "event.format": "1.7"}
    assert parameters(legacy, "Name") == told


@pytest.mark.parametrize(
    ("column", "length", "scale"),
    [
        (Column("c", "int2", 21), 5, 0),
        (Column("c", "float4", 700), 8, 8),
        (Column("c", "numeric", 1700, modifier=(5 << 16 | 2) + 4), 5, 2),
        (Column("c", "numeric", 1700, modifier=(5 << 16 | 2046) + 4), 5, -2),
        (Column("c", "numeric", 1700), 131_089, 0),
        (Column("c", "time", 1083), 15, 6),
        (Column("c", "time", 1083, modifier=0), 8, 0),
        (Column("c", "time", 1083, modifier=1), 11, 1),
        (Column("c", "timestamptz", 1184, modifier=3), 32, 3),
        (Column("c", "interval", 1186), 49, 6),
        (Column("c", "bit", 1560), 1, 0),
        (Column("c", "bit", 1560, modifier=3), 3, 0),
        (Column("c", "_varchar", 1015, modifier=11, kind="array", element=Column("c", "varchar", 1043, 11)), 7, 0),
    ],
)
def test_lengths_and_scales_are_those_of_the_jdbc_driver(column: Column, length: int, scale: int) -> None:
    assert (declared_types.length(column), declared_types.scale(column)) == (length, scale)


def test_keys_are_made_of_the_columns_that_all_matching_entries_name() -> None:
    options = {"message.key.columns": r"public\.p.*:EMAIL;(.*).people:id,email; public.other:x"}
    assert shown(options)[0][0] == {"email": "sally@acme.com", "id": 1}


def test_a_key_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="names the column nope of"):
        shown({"message.key.columns": "public.people:id,nope"})


def test_two_columns_that_become_one_field_are_an_error_unless_one_is_left_out() -> None:
    schema = table("t", [Column("a-b", "text", 25), Column("a_b", "text", 25)])
    avro = {"field.name.adjustment.mode": "avro"}
    with pytest.raises(ConfigError, match=r"columns a-b and a_b of .* both become the field a_b"):
        shown(avro, ("c", None, ("1", "2")), of=schema)
    with pytest.raises(ConfigError, match="both become"):
        shown({"sanitize.field.names": "true"}, ("c", None, ("1", "2")), of=schema)
    assert shown({}, ("c", None, ("1", "2")), of=schema)[0][1]["after"] == {"a-b": "1", "a_b": "2"}
    one = shown(avro | {"column.exclude.list": ".*_b"}, ("c", None, ("1", "2")), of=schema)
    assert one[0][1]["after"] == {"a_b": "1"}


def test_columns_that_differ_in_case_are_both_shown_with_a_warning() -> None:
    schema = table("t", [Column("A", "text", 25), Column("a", "text", 25)])
    admission = Admission(settings({}), FORM)
    admission.admit(schema)
    admission.admit(schema)
    assert len(admission.warnings) == 1
    assert "columns A and a of public.t differ only in case" in admission.warnings[0]
    assert shown({}, ("c", None, ("1", "2")), of=schema)[0][1]["after"] == {"A": "1", "a": "2"}


def test_a_copy_that_gets_null_for_unchanged_large_values_is_told() -> None:
    """Events have no placeholder for arrays of floats, numbers and bits; blocks and full identities need none."""
    floats = Column("f", "_float8", 1022, kind="array", element=Column("", "float8", 701))
    numbers = Column("n", "_int4", 1007, kind="array", element=Column("", "int4", 23))
    within = Column("d", "vector", 9, kind="domain", element=floats)
    exact = [Column("e", "numeric", 1700), Column("m", "numeric", 1700, modifier=(9 << 16) + 2 + 4)]
    bits = [Column("b", "bit", 1560, modifier=4000), Column("s", "bit", 1560, modifier=8)]
    rest = [Column("x", "text", 25), Column("p", "point", 600), Column("at", "timestamptz", 1184)]
    schema = table("t", [Column("id", "int4", 23), floats, numbers, within, *exact, *bits, *rest])
    told = [
        list(doubts(schema, settings(options), FORM)) for options in ({"row.copy": "true"}, {"row.blocks": "last"}, {})
    ]
    assert [[level for level, _, _ in found] for found in told] == [["warning"], [], []]
    assert "gets null, or zero where null is not allowed, for a large value in f, d, e, b when" in told[0][0][1]
    assert list(doubts(replace(schema, replica_identity="f"), settings({"row.copy": "true"}), FORM)) == []


@pytest.mark.seed("000-09")
def test_tables_that_share_a_topic_are_told() -> None:
    admission = Admission(settings({}), FORM)
    for name in ("a b", "a_b", "a?b", "c"):
        admission.admit(table(name, [Column("id", "int4", 23)]))
    assert [warning.split(" share")[0] for warning in admission.warnings] == [
        "the tables public.a b and public.a_b",
        "the tables public.a b and public.a?b",
    ]


@pytest.mark.seed("000-09")
def test_tables_whose_schemas_share_a_name_are_told() -> None:
    admission = Admission(settings({"schema.name.adjustment.mode": "avro"}), FORM)
    for name in ("a-b", "a_b"):
        admission.admit(table(name, [Column("id", "int4", 23)]))
    assert admission.warnings == [
        "the schemas of the tables public.a-b and public.a_b share the name server.public.a_b"
    ]


def test_a_mask_over_a_type_that_is_no_text_is_told() -> None:
    admission = Admission(settings({"column.mask.with.3.chars": r".*\.(born|email)"}), FORM)
    admission.admit(TABLE)
    assert [warning.split(" is to be")[0] for warning in admission.warnings] == ["column born of public.people"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"column.include.list": "a", "column.exclude.list": "b"}, "exclude each other"),
        ({"column.exclude.list": "a("}, "is not a regular expression"),
        ({"column.propagate.source.type": "*"}, "is not a regular expression"),
        ({"column.mask.with.3.chars": "["}, "column.mask.with.3.chars"),
        ({"column.truncate.to.0.chars": "a"}, "must leave at least one character"),
        ({"column.mask.hash.MD2.with.salt.pepper": "a"}, "names the digest MD2, which is not supported"),
        ({"message.key.columns": "public.t"}, "must list table:column"),
        ({"message.key.columns": "public.(:id"}, "is not a regular expression"),
        ({"sanitize.field.names": "true", "field.name.adjustment.mode": "none"}, "contradicts"),
    ],
)
def test_faults_are_told_and_salts_are_not(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(options)
    assert reason in str(caught.value)
    assert "pepper" not in str(caught.value)


def test_a_configuration_shows_no_salt() -> None:
    config = parse("postgres", REQUIRED | {"column.mask.hash.MD5.with.salt.pepper": "a"})
    assert "pepper" not in repr(config)
    assert "pepper" not in repr(EventSettings.from_options(config))
