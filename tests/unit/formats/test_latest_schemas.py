"""Records can use the latest schema of a subject, registered by another program, if they have the
same bytes with it."""

from __future__ import annotations

import json

import pytest

from tailrace import formats
from tailrace.columns.logical import BYTES, INT32, INT64, STRING, Field, array, mapping, semantic, struct
from tailrace.config.formats import Format
from tailrace.errors import RegistryError
from tailrace.formats.registry.schema_ids import forget
from tailrace.values import decimals
from tailrace.values.dates import DATE
from tests.layout_blocks import BARE, unfilled
from tests.servers.registry import Registry

pytest.importorskip("fastavro")
pytest.importorskip("httpx2")

from tests.unit.formats.registered import avro, confluent

SUBJECT = "server.public.t-value"
PLACE = struct(Field("x", INT32.with_optional(True)), name="n.Place")
ROW = struct(
    Field("id", INT32), Field("v", STRING.with_optional(True)), Field("p", PLACE.with_optional(True)),
    Field("l", array(BYTES)), Field("q", PLACE), name="n.R",
)  # fmt: skip
PLAIN = struct(Field("id", INT32), Field("v", STRING), Field("m", mapping(INT32)), name="n.R")


def head(form: Format, kind: object = ROW) -> bytes:
    """Return the bytes before the bytes of records."""
    document = formats.find(form).compile(unfilled(kind), True, BARE)  # type: ignore[arg-type]
    opening: bytes = document.opening  # type: ignore[union-attr]
    return opening[:5]


def own_avro(registry: Registry) -> str:
    """Return the schema that is registered for the records."""
    formats.find(avro(registry)).compile(unfilled(ROW), True, BARE)
    return registry.versions[-1].schema


@pytest.mark.parametrize("kind", ["apicurio", "confluent"])
def test_a_schema_that_says_more_or_less_of_the_same_fields_is_taken(registry: Registry, kind: str) -> None:
    text = own_avro(registry)
    schema = json.loads(text)
    schema["doc"], schema["fields"][0]["doc"], schema["aliases"] = "ours", "the key", ["n.Old"]
    del schema["connect.name"]
    registry.registered(SUBJECT, json.dumps(schema))
    if kind == "apicurio":
        form = avro(registry, **{"apicurio.registry.auto-register": "false", "apicurio.registry.find-latest": "true"})
    else:
        form = confluent(registry, "avro", auto_register_schemas="false", use_latest_version="true")
    assert head(form) == b"\0\0\0\0\2"


@pytest.mark.parametrize(
    ("place", "part"),
    [
        (0, {"name": "id", "type": "long"}),
        (0, {"name": "nr", "type": "int"}),
        (1, {"name": "v", "type": ["string", "null"]}),
        (1, {"name": "v", "type": "string"}),
        (3, {"name": "l", "type": {"type": "array", "items": "string"}}),
    ],
)
def test_a_schema_of_other_fields_is_refused(registry: Registry, place: int, part: dict[str, object]) -> None:
    schema = json.loads(own_avro(registry))
    schema["fields"][place] = part
    registry.registered(SUBJECT, json.dumps(schema))
    form = confluent(registry, "avro", auto_register_schemas="false", use_latest_version="true")
    with pytest.raises(RegistryError, match=r"latest schema of the subject server\.public\.t-value has other fields"):
        head(form)


MOMENT = semantic(INT64, "io.debezium.time.MicroTimestamp")
VALUES = struct(
    Field("n", decimals.decimal_type(2, 9)), Field("at", MOMENT.with_optional(True)), Field("day", DATE), name="n.V",
)  # fmt: skip


@pytest.mark.parametrize(
    ("place", "changes", "taken"),
    [
        (0, {}, True),
        (0, {"scale": 3, "connect.parameters": {"scale": "3"}}, False),
        (0, {"scale": 3, "connect.name": None, "connect.parameters": None}, False),
        (0, {"logicalType": None, "scale": None, "connect.name": None, "connect.parameters": None}, True),
        (1, {"connect.name": None}, True),
        (1, {"connect.name": None, "logicalType": "timestamp-micros"}, True),
        (1, {"connect.name": None, "logicalType": "timestamp-millis"}, False),
        (1, {"connect.name": "io.debezium.time.Timestamp"}, False),
        (2, {"logicalType": "date"}, True),
        (2, {"connect.name": None, "logicalType": "time-millis"}, False),
    ],
)
def test_a_schema_of_another_scale_or_unit_is_refused(
    registry: Registry, place: int, changes: dict[str, object], taken: bool
) -> None:
    formats.find(avro(registry)).compile(unfilled(VALUES), True, BARE)
    schema = json.loads(registry.versions[-1].schema)
    kind = schema["fields"][place]["type"]
    kind = kind[1] if isinstance(kind, list) else kind
    kind.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        kind.pop(name, None)
    registry.registered(SUBJECT, json.dumps(schema))
    form = confluent(registry, "avro", auto_register_schemas="false", use_latest_version="true")
    if taken:
        assert head(form, VALUES)[0] == 0
    else:
        with pytest.raises(RegistryError, match="or other scales or units"):
            head(form, VALUES)


def test_a_message_with_another_scale_is_refused(registry: Registry) -> None:
    formats.find(confluent(registry, "protobuf")).compile(unfilled(VALUES), True, BARE)
    own = registry.versions[-1].schema
    form = confluent(registry, "protobuf", auto_register_schemas="false", use_latest_version="true")
    assert own.count('"scale"') == 1
    for other, taken in ((own, True), (own.replace('value: "2"', 'value: "4"'), False)):
        registry.registered(SUBJECT, other + f"\n// {taken}")
        forget()
        if taken:
            assert head(form, VALUES)[0] == 0
        else:
            assert other != own
            with pytest.raises(RegistryError, match="or other scales or units"):
                head(form, VALUES)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('syntax = "proto3"; package o; /* ours */ message R { string v = 2; int32 id = 1; repeated E m = 3; '
         "message E { string key = 1; int32 value = 2; } }", True),
        ("message R { int32 id = 1; string v = 2; repeated E m = 3; "
         "message E { string key = 1; int64 value = 2; } }", False),
        ("message R { int32 id = 2; string v = 1; repeated E m = 3; "
         "message E { string key = 1; int32 value = 2; } }", False),
        ("message R { int32 id = 1; string v = 2; }", False),
    ],
)  # fmt: skip
def test_messages_of_the_same_fields_are_taken(registry: Registry, text: str, taken: bool) -> None:
    formats.find(confluent(registry, "protobuf")).compile(unfilled(PLAIN), True, BARE)
    own = registry.versions[-1].schema
    entry = own.partition("repeated ")[2].partition(" ")[0]
    registry.registered(SUBJECT, text.replace("E m", f"{entry} m").replace("message E", f"message {entry}"))
    form = confluent(registry, "protobuf", auto_register_schemas="false", use_latest_version="true")
    if taken:
        assert head(form, PLAIN) == b"\0\0\0\0\2"
    else:
        with pytest.raises(RegistryError, match="has other fields than the records"):
            head(form, PLAIN)
