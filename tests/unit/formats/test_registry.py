"""Schemas are registered once per subject; a registry that refuses or does not answer ends the batch."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace.columns import ChangeBatch, Column
from tailrace.config.formats import Format
from tailrace.connectors.mongodb.records.records import numbered_rows
from tailrace.connectors.mongodb.records.segment import read_documents
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, RegistryError
from tailrace.events.control_records import heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.events.table_plan import table_plan
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.registry import schema_ids
from tailrace.formats.registry.apicurio import Client
from tailrace.formats.registry.base import RegistryUnanswered
from tailrace.formats.registry.confluent import Client as ConfluentClient
from tailrace.formats.registry.options import apicurio
from tailrace.formats.registry.options import confluent as confluent_registry
from tailrace.formats.registry.schema_ids import shape
from tests.event_settings import event_settings
from tests.golden.avro import opened
from tests.servers.registry import Registry
from tests.unit.events.changes import batch, table
from tests.unit.mongodb.test_placing import packed
from tests.unit.mongodb.test_placing import settings as mongodb_settings

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES = batch(TABLE, [("c", None, ("1", "a")), ("u", None, ("1", "b")), ("d", ("1", None), None)])
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
AVRO = "io.confluent.connect.avro.AvroConverter"
APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"


def settings(registry: Registry, *parts: str, **options: str) -> EventSettings:
    """Return settings with Avro for these parts, as with Apicurio, with further options."""
    given = {
        "url": registry.apicurio,
        "headers.enabled": "false",
        "auto-register": "true",
        "as-confluent": "true",
        "use-id": "contentId",
    } | {name.replace("_", "-"): value for name, value in options.items()}
    named = tuple(sorted((f"apicurio.registry.{name}", value) for name, value in given.items()))
    formats: dict[str, Any] = {f"{part}_format": Format("avro-apicurio", part, named) for part in parts}
    return event_settings("server", "golden", value_schemas_enable=False, **formats)


def confluent(registry: Registry, **options: str) -> EventSettings:
    """Return settings with Avro for values, as with Confluent."""
    pytest.importorskip("httpx2")
    named = {"schema.registry.url": registry.address} | {name.replace("_", "."): text for name, text in options.items()}
    return event_settings("server", "golden", value_format=Format("avro", "value", tuple(sorted(named.items()))))


def rows(part: ChangeBatch, chosen: EventSettings) -> list[dict[str, Any]]:
    return [row for found in to_rows(part, chosen, FORM) for row in found.to_pylist()]


def test_a_schema_is_registered_once_and_not_for_each_record(registry: Registry) -> None:
    chosen = settings(registry, "key", "value")
    found = [row for _ in range(3) for row in rows(CHANGES, chosen)]
    assert len(registry.requests) == 2
    assert [version.subject for version in registry.versions] == ["server.public.t-key", "server.public.t-value"]
    assert [row["value"] is None for row in found[:4]] == [False, False, False, True]
    assert {bytes(row["key"]) for row in found} == {b"\0\0\0\0\x01\x02"}
    assert all(row["value"][:5] == b"\0\0\0\0\x02" for row in found if row["value"])


def test_another_version_of_a_table_has_another_schema(registry: Registry) -> None:
    chosen = settings(registry, "value")
    wider = table("t", [*TABLE.columns, Column("w", "int8", 20)], "id")
    rows(CHANGES, chosen)
    rows(batch(wider, [("c", None, ("1", "a", "2"))]), chosen)
    assert [(version.subject, version.number) for version in registry.versions] == [
        ("server.public.t-value", 1),
        ("server.public.t-value", 2),
    ]


@pytest.mark.parametrize(("use_id", "width"), [("globalId", 9), ("contentId", 9)])
def test_apicurios_own_ids_have_eight_bytes(registry: Registry, use_id: str, width: int) -> None:
    chosen = settings(registry, "key", as_confluent="false", use_id=use_id)
    assert rows(CHANGES, chosen)[0]["key"] == b"\0" + b"\x01".rjust(width - 1, b"\0") + b"\x02"


def test_a_registry_that_does_not_answer_is_an_error_with_the_option(registry: Registry) -> None:
    registry.refusal = 503
    with pytest.raises(RegistryError, match=r"of key\.converter\.apicurio\.registry\.url does not answer: HTTP 503"):
        rows(CHANGES, settings(registry, "key"))
    assert len(registry.requests) == 3
    registry.refusal = 0
    assert len(rows(CHANGES, settings(registry, "key"))) == 4


def test_a_refused_schema_names_the_subject(registry: Registry) -> None:
    registry.refusal = 409
    with pytest.raises(RegistryError, match=r"refuses the schema of the subject server\.public\.t-value \(HTTP 409\)"):
        rows(CHANGES, settings(registry, "value"))
    assert len(registry.requests) == 1


def test_a_login_is_sent_and_never_shown(registry: Registry) -> None:
    registry.login = "user:secret"
    chosen = settings(registry, "value")
    with pytest.raises(RegistryError, match="refuses the login"):
        rows(CHANGES, chosen)
    given = parse(
        "postgres",
        POSTGRES
        | {
            "value.converter": APICURIO,
            "value.converter.apicurio.registry.url": registry.apicurio,
            "value.converter.apicurio.registry.headers.enabled": "false",
            "value.converter.apicurio.registry.auto-register": "true",
            "value.converter.apicurio.auth.username": "user",
            "value.converter.apicurio.auth.password": "secret",
        },
    )
    chosen = EventSettings.from_options(given)
    assert "secret" not in repr(chosen)
    assert "secret" not in repr(given)
    assert len(rows(CHANGES, chosen)) == 4


def test_a_program_gives_the_token_of_each_request(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    given = {
        "schema.registry.url": registry.address,
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token.command": f"cat {file}",
        "bearer.auth.logical.cluster": "lsrc-1",
    }
    chosen = confluent_registry("value", OptionReader("value.converter.", given))
    client = ConfluentClient(chosen.access)
    client.register(chosen, "a", '"string"', "AVRO")
    file.write_text("two")
    client.register(chosen, "b", '"bytes"', "AVRO")
    assert registry.logins == ["Bearer one", "Bearer two"]
    file.unlink()
    with pytest.raises(
        RegistryUnanswered, match=r"value\.converter\.bearer\.auth\.token\.command ended with exit code 1"
    ):
        client.register(chosen, "c", '"int"', "AVRO")
    assert str(file) not in repr(chosen)
    for wrong in ({"bearer.auth.token": "x"}, {"bearer.auth.token.command": "'"}):
        with pytest.raises(ConfigError, match=r"bearer\.auth\.token\.command (stands beside|has a quotation)"):
            confluent_registry("value", OptionReader("value.converter.", given | wrong))


def test_schemas_are_registered_by_confluents_client(registry: Registry) -> None:
    found = rows(CHANGES, confluent(registry))
    assert [version.subject for version in registry.versions] == ["server.public.t-value"]
    assert found[0]["value"][:5] == b"\0\0\0\0\x01"
    rows(CHANGES, confluent(registry))
    assert len(registry.requests) == 1


def test_schemas_may_have_to_be_there(registry: Registry) -> None:
    chosen = confluent(registry, auto_register_schemas="false")
    with pytest.raises(RegistryError, match=r"does not have the schema of the subject server\.public\.t-value"):
        rows(CHANGES, chosen)
    rows(CHANGES, confluent(registry))
    schema_ids.forget()
    assert rows(CHANGES, chosen)[0]["value"][:5] == b"\0\0\0\0\x01"


def test_the_latest_schema_has_to_have_the_fields_of_the_records(registry: Registry) -> None:
    chosen = confluent(registry, use_latest_version="true", auto_register_schemas="false")
    registry.registered("server.public.t-value", '"string"')
    with pytest.raises(RegistryError, match=r"latest schema of the subject server\.public\.t-value has other fields"):
        rows(CHANGES, chosen)
    rows(CHANGES, confluent(registry))
    own = registry.versions[-1]
    registry.registered(own.subject, own.schema.replace('"connect.version":2,', ""))
    assert rows(CHANGES, chosen)[0]["value"][:5] == b"\0\0\0\0\x03"


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "server.public.t-value"),
        ("RecordNameStrategy", "server.public.t.Envelope"),
        ("TopicRecordNameStrategy", "server.public.t-server.public.t.Envelope"),
    ],
)
def test_subjects_follow_their_strategy(registry: Registry, strategy: str, subject: str) -> None:
    name = f"io.confluent.kafka.serializers.subject.{strategy}"
    rows(CHANGES, confluent(registry, value_subject_name_strategy=name))
    assert [version.subject for version in registry.versions] == [subject]


@pytest.mark.parametrize(
    ("strategy", "group", "subject"),
    [
        ("avro.strategy.RecordIdStrategy", "server.public.t", "Envelope"),
        ("avro.strategy.TopicRecordIdStrategy", "server.public.t", "server.public.t-Envelope"),
        ("avro.strategy.QualifiedRecordIdStrategy", "default", "server.public.t.Envelope"),
        ("strategy.SimpleTopicIdStrategy", "default", "server.public.t"),
    ],
)
def test_artifacts_are_in_the_group_that_their_strategy_makes(
    registry: Registry, strategy: str, group: str, subject: str
) -> None:
    options = {"artifact_resolver_strategy": f"io.apicurio.registry.serde.{strategy}"}
    rows(CHANGES, settings(registry, "value", **options))
    assert [version.subject for version in registry.versions] == [subject]
    assert registry.requests[-1].startswith(f"POST /apis/registry/v2/groups/{group}/artifacts?")
    schema_ids.forget()
    table_plan.cache_clear()
    rows(CHANGES, settings(registry, "value", **options, **{"artifact.group_id": "mine"}))
    assert "/groups/mine/" in registry.requests[-1]


def test_the_latest_versions_of_two_artifacts_have_ids_of_their_own(registry: Registry) -> None:
    text = '{"type":"record","name":"R","fields":[]}'
    for artifact in ("a", "b"):
        registry.registered(artifact, text)
    given = {
        "apicurio.registry.url": registry.apicurio,
        "apicurio.registry.headers.enabled": "false",
        "apicurio.registry.find-latest": "true",
        "apicurio.registry.artifact-resolver-strategy": "io.apicurio.registry.serde.strategy.SimpleTopicIdStrategy",
    }
    chosen = apicurio("value", OptionReader("value.converter.", given))
    assert [schema_ids.schema_id(chosen, topic, text, "R") for topic in ("a", "b", "a")] == [1, 2, 1]


@pytest.mark.parametrize("name", ["apicurio.registry.url", "apicurio.registry.request.headers.Authorization"])
def test_a_login_in_a_url_or_a_header_is_never_shown(name: str) -> None:
    given = {
        "value.converter": APICURIO,
        "value.converter.apicurio.registry.url": "http://r/apis/registry/v2",
        "value.converter.apicurio.registry.headers.enabled": "false",
        f"value.converter.{name}": "http://user:pa55@r/apis/registry/v2",
    }
    if name.endswith("url"):
        with pytest.raises(ConfigError, match=r"apicurio\.registry\.url holds a user or a password") as error:
            parse("postgres", POSTGRES | given)
        assert "pa55" not in str(error.value)
        given = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://user:pa55@r"}
    found = parse("postgres", POSTGRES | given)
    assert "pa55" not in repr(found)
    assert "pa55" not in repr(EventSettings.from_options(found))


def test_what_is_no_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_mumble, args=(server,))
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/apis/registry/v2"
        given = {"apicurio.registry.url": address, "apicurio.registry.headers.enabled": "false"}
        client = Client(apicurio("value", OptionReader("value.converter.", given)).access)
        with pytest.raises(RegistryUnanswered, match="its answer is not HTTP"):
            client.find(apicurio("value", OptionReader("value.converter.", given)), "a", "{}", "AVRO")
        thread.join()


def test_a_login_stays_with_the_server_that_it_is_for(registry: Registry) -> None:
    registry.registered("a", "{}")
    given = {
        "apicurio.registry.headers.enabled": "false",
        "apicurio.auth.username": "user",
        "apicurio.auth.password": "secret",
        "apicurio.registry.artifact-resolver-strategy": "io.apicurio.registry.serde.strategy.SimpleTopicIdStrategy",
    }
    with Registry(moved=registry.address) as old:
        chosen = apicurio("value", OptionReader("value.converter.", {**given, "apicurio.registry.url": old.apicurio}))
        assert Client(chosen.access).latest(chosen, "a") == (1, "{}")
        assert None not in old.logins
        assert registry.logins == [None] * len(old.logins)
    # The same server may redirect within itself.
    chosen = apicurio("value", OptionReader("value.converter.", {**given, "apicurio.registry.url": registry.apicurio}))
    Client(chosen.access).latest(chosen, "a")
    assert registry.logins[-1] is not None


def _mumble(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"220 mail.example.org\r\n\r\n")


def test_an_address_may_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse("postgres", POSTGRES | {"value.converter": AVRO, "value.converter.max.schemas.per.subject": "9"})
    assert "value.converter.max.schemas.per.subject has no effect: it has no effect here." in found.notices
    assert any(notice.startswith("value.converter.schema.registry.url is missing") for notice in found.notices)
    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url is missing"):
        rows(CHANGES, EventSettings.from_options(found))
    monkeypatch.setenv("CONNECT_VALUE_CONVERTER_SCHEMA_REGISTRY_URL", "http://registry")
    found = parse("postgres", POSTGRES | {"value.converter": AVRO})
    assert not any("missing" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("converter", "option", "words"),
    [
        (AVRO, "auto.register.schemas=maybe", "value.converter.auto.register.schemas must be true or false"),
        (
            AVRO,
            "value.subject.name.strategy=com.example.Own",
            "value.converter.value.subject.name.strategy = com.example.Own is not supported",
        ),
        (AVRO, "basic.auth.credentials.source=SASL_INHERIT", "credentials.source = SASL_INHERIT is not supported"),
        (AVRO, "schema.registry.ssl.truststore.location=/t.jks", "schema.registry.ssl.truststore is a Java key store"),
        (AVRO, "generalized.sum.type.support=true", "generalized.sum.type.support = true is not supported"),
        (PROTOBUF, "wrapper.for.nullables=maybe", "value.converter.wrapper.for.nullables must be true or false"),
        (PROTOBUF, "skip.known.types=false", "value.converter.skip.known.types = false is not supported"),
        (PROTOBUF, "schema.format=serialized", "value.converter.schema.format is not supported"),
        (PROTOBUF, "apicurio.registry.url=http://r", "value.converter has options of Apicurio's registry"),
    ],
)
def test_what_would_change_bytes_is_refused_by_name(converter: str, option: str, words: str) -> None:
    name, _, text = option.partition("=")
    given = {
        "value.converter": converter,
        "value.converter.schema.registry.url": "http://r",
        f"value.converter.{name}": text,
    }
    with pytest.raises(ConfigError) as error:
        parse("postgres", POSTGRES | given)
    assert words in error.value.message


def test_ids_may_be_in_headers(registry: Registry) -> None:
    chosen = settings(registry, "key", "value", **{"headers.enabled": "true"}, as_confluent="false")
    found = rows(CHANGES, chosen)
    number = b"\x01".rjust(8, b"\0")
    key = [("apicurio.key.contentId", number), ("apicurio.key.encoding", b"BINARY")]
    value = [("apicurio.value.contentId", b"\x02".rjust(8, b"\0")), ("apicurio.value.encoding", b"BINARY")]
    shown = [[(one["key"], one["value"]) for one in row["headers"]] for row in found]
    assert [headers[-4:] for headers in shown[:3]] == [[*key, *value]] * 3
    # A tombstone has no value.
    assert shown[3][-2:] == key
    assert {row["key"] for row in found} == {b"\x02"}
    payloads: list[Any] = [opened(b"\0\0\0\0\x02" + row["value"], registry.schemas) for row in found[:3]]
    assert [one["payload"]["op"] for one in payloads] == ['"c"', '"u"', '"d"']
    schema_ids.forget()
    named = rows(CHANGES, settings(registry, "key", **{"headers.enabled": "true"}, use_id="globalId"))
    assert ("apicurio.key.globalId", number) in [(one["key"], one["value"]) for one in named[0]["headers"]]


def test_a_heartbeat_has_its_ids_in_headers(registry: Registry) -> None:
    chosen = settings(registry, "key", "value", **{"headers.enabled": "true"})
    (row,) = heartbeat_row(1, "0" * 16, chosen).to_pylist()
    assert [one["key"] for one in row["headers"]][-4:] == [
        "apicurio.key.contentId", "apicurio.key.encoding", "apicurio.value.contentId", "apicurio.value.encoding",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value.converter": APICURIO, "value.converter.apicurio.registry.headers.value.globalId.name": "id"},
         r"headers\.value\.globalId\.name is not supported"),
        ({"value.converter": "io.apicurio.registry.utils.converter.ExtJsonConverter"},
         r"headers\.enabled is true, its default, and ids in headers are not written by this converter"),
        ({"value.converter": "io.debezium.converters.BinaryDataConverter",
          "value.converter.delegate.converter.type": APICURIO,
          "value.converter.delegate.converter.type.apicurio.registry.url": "http://r/apis/registry/v2"},
         r"AvroConverter puts ids into headers, which is not supported"),
    ],
)  # fmt: skip
def test_ids_in_headers_are_refused_where_they_would_be_lost(options: dict[str, str], words: str) -> None:
    given = {"value.converter.apicurio.registry.url": "http://r/apis/registry/v2"}
    with pytest.raises(ConfigError, match=words):
        parse("postgres", POSTGRES | given | options)


def test_ids_in_headers_cannot_depend_on_values(registry: Registry) -> None:
    given = {f"value.converter.apicurio.registry.{name}": text for name, text in (
        ("url", registry.apicurio), ("auto-register", "true"))}  # fmt: skip
    unwrap = {"transforms": "a", "transforms.a.type": "ExtractNewRecordState", "transforms.a.route.by.field": "v"}
    chosen = EventSettings.from_options(parse("postgres", POSTGRES | {"value.converter": APICURIO} | given | unwrap))
    with pytest.raises(ConfigError, match="are not written where the topic"):
        rows(CHANGES, chosen)


def test_documents_are_written(registry: Registry) -> None:
    named = {
        f"{part}_converter_apicurio_registry_{name}": text
        for part in ("key", "value")
        for name, text in (("url", registry.apicurio), ("auto-register", "true"), ("headers_enabled", "false"),
                           ("as-confluent", "true"))
    }  # fmt: skip
    converter = APICURIO
    given = mongodb_settings(key_converter=converter, value_converter=converter, **named)
    segment = read_documents(("d", "a"), *packed([{"_id": 1, "v": 'a "text"'}]), 1 << 40, 1)
    ((found, _),) = numbered_rows(segment, given)
    (row,) = found.to_pylist()
    key, value = (opened(row[part], registry.schemas) for part in ("key", "value"))
    assert isinstance(key, dict)
    assert isinstance(value, dict)
    assert key["payload"] == {"id": '"1"'}
    assert value["payload"]["after"].string == '{"_id": 1,"v": "a \\"text\\""}'
    assert value["payload"]["updateDescription"] == "null"


def test_nulls_may_stay_where_a_column_has_a_default() -> None:
    given = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://r"}
    assert parse("postgres", POSTGRES | given)["replace.null.with.default"] is True
    given["value.converter.ignore.default.for.nullables"] = "true"
    assert parse("postgres", POSTGRES | given)["replace.null.with.default"] is False


def test_schemas_are_alike_that_write_the_same_bytes() -> None:
    record = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":%s}]}'
    assert shape(record % '{"type":"int","connect.default":1}') == shape(record % '"int"')
    assert shape(record % '["null","R"]') == shape(record % '["null","n.R"]')
    assert shape(record % '"int"') != shape(record % '"long"')
    assert shape(record % '["null","int"]') != shape(record % '["int","null"]')
