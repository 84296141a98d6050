"""The transforms and encodings that are measured beside plain JSON, over the rows of the table bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_CONNECT = "org.apache.kafka.connect.transforms."
_DEBEZIUM = "io.debezium.transforms."
_AVRO = "io.confluent.connect.avro.AvroConverter"


@dataclass(frozen=True, slots=True)
class Chain:
    """A case: the source's options, and the delivered share of the rows, one of `one_of`."""

    options: Mapping[str, str]
    one_of: int = 1


def _step(kind: str, **options: str) -> Mapping[str, str]:
    """Return the options of one transform; the names of `options` have `_` in place of dots."""
    named = {name.replace("_", "."): text for name, text in {"type": kind, **options}.items()}
    return {"transforms": "t", **{f"transforms.t.{name}": text for name, text in named.items()}}


def _outbox(**more: str) -> Mapping[str, str]:
    """Return the options that deliver the rows as an outbox: to ten topics, with their documents as payloads."""
    columns = {"id": "id", "key": "code", "payload": "doc"}
    return _step(
        f"{_DEBEZIUM}outbox.EventRouter",
        **{f"table_field_event_{name}": column for name, column in columns.items()},
        route_by_field="code",
        route_topic_regex="code-([0-9]).*",
        route_topic_replacement="bench.$1",
        **more,
    )


def _where(condition: str) -> Mapping[str, str]:
    return _step(f"{_DEBEZIUM}Filter", language="jsr223.groovy", condition=condition)


def _to(expression: str) -> Mapping[str, str]:
    return _step(f"{_DEBEZIUM}ContentBasedRouter", language="jsr223.groovy", topic_expression=expression)


CHAINS: Mapping[str, Chain] = {
    "unwrap": Chain(_step(f"{_DEBEZIUM}ExtractNewRecordState")),
    "unwrap_fields": Chain(_step(f"{_DEBEZIUM}ExtractNewRecordState", add_fields="op,table,lsn,source.ts_ms")),
    "regex_router": Chain(_step(f"{_CONNECT}RegexRouter", regex="(.*)[.]bench", replacement="$1.all")),
    "logical_router": Chain(
        _step(f"{_DEBEZIUM}ByLogicalTableRouter", topic_regex="(.*)[.]bench", topic_replacement="$1.all")
    ),
    "outbox": Chain(_outbox()),
    "outbox_expanded": Chain(_outbox(table_expand_json_payload="true")),
    "filter": Chain(_where("value.op == 'c' && value.after.n >= 0")),
    "filter_half": Chain(_where("value.after.id % 2 == 0"), one_of=2),
    "filter_text": Chain(_where("value.after.code.matches('code-[0-9]+')")),
    "content_router": Chain(_to("value.after.flag ? 'bench.yes' : 'bench.no'")),
    "content_router_many": Chain(_to("'bench.' + value.after.code")),
    "time_zone": Chain(_step(f"{_DEBEZIUM}TimezoneConverter", converted_timezone="Europe/Berlin")),
}
"""Transforms by the names of their cases."""

SCHEMAS = {f"{part}.converter.schemas.enable": "true" for part in ("key", "value")}
"""Records with their schemas, which is the converters' default."""

WITH_SCHEMAS: Mapping[str, Chain] = {
    f"{name}_schemas": Chain({**CHAINS[name].options, **SCHEMAS}) for name in ("unwrap", "logical_router", "outbox")
}
"""Some of the transforms, on records with schemas."""

AVRO = "avro"
"""The case of Confluent's encoding of keys and values."""


def avro(registry: str) -> Chain:
    """Return the options for keys and values in Avro, with schemas in the registry at this address."""
    parts = ("key", "value")
    return Chain(
        {f"{part}.converter": _AVRO for part in parts}
        | {f"{part}.converter.schema.registry.url": registry for part in parts}
    )
