"""The schemas of MongoDB's keys and values, of the 1.1 form and of today's."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.columns.logical import BOOLEAN, INT32, INT64, JSON, STRING, Field, LogicalType, array, semantic, struct
from tailrace.columns.table import TableId
from tailrace.connectors.mongodb.log.chunk import Namespace
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.events import names
from tailrace.events.envelope import transaction_schema

_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_OLD_MARKERS = "true,last,false"
_TEXT, _NUMBER, _DOCUMENT = STRING.with_optional(True), INT64.with_optional(True), JSON.with_optional(True)
_CHANGE_STREAM = "io.debezium.connector.mongodb.changestream"
_UPDATE = struct(
    Field("removedFields", array(STRING).with_optional(True)),
    Field("updatedFields", _DOCUMENT),
    Field(
        "truncatedArrays",
        array(
            struct(Field("field", STRING), Field("size", INT32), name=f"{_CHANGE_STREAM}.truncatedarray", version=1)
        ).with_optional(True),
    ),
    name=f"{_CHANGE_STREAM}.updatedescription",
    version=1,
).with_optional(True)


def table_id(namespace: Namespace) -> TableId:
    """The collection as names of topics and schemas take it."""
    return TableId("", *namespace)


def source_schema(settings: MongoSettings) -> LogicalType:
    """The source block (document 003; `source.struct.version=v1` is that of Debezium before 0.10)."""
    if settings.old_source:
        fields = [
            Field("version", _TEXT), Field("connector", _TEXT), Field("name", STRING), Field("rs", STRING),
            Field("ns", STRING), Field("sec", INT32), Field("ord", INT32), Field("h", _NUMBER),
            Field("initsync", BOOLEAN.with_optional(True).with_default(False)),
        ]  # fmt: skip
        return struct(*fields, name="io.debezium.connector.mongo.Source", version=1)
    allowed = _OLD_MARKERS if settings.legacy else _MARKERS
    marker = semantic(STRING, "io.debezium.data.Enum", allowed=allowed).with_optional(True).with_default("false")
    fields = [
        Field("version", STRING), Field("connector", STRING), Field("name", STRING), Field("ts_ms", INT64),
        Field("snapshot", marker), Field("db", STRING),
    ]  # fmt: skip
    if settings.legacy:
        fields += [Field("rs", STRING), Field("collection", STRING), Field("ord", INT32)]
        fields += [Field("h", _NUMBER), Field("tord", _NUMBER)]
    else:
        fields += [Field("sequence", _TEXT), Field("ts_us", _NUMBER), Field("ts_ns", _NUMBER)]
        fields += [Field("collection", STRING), Field("ord", INT32), Field("lsid", _TEXT)]
        fields += [Field("txnNumber", _NUMBER), Field("wallTime", _NUMBER)]
    name = names.schema_name(settings.events, "io.debezium.connector.mongo.Source")
    return struct(*fields, name=name, version=None if settings.legacy else 1)


@dataclass(frozen=True, slots=True)
class Schemas:
    key: LogicalType
    value: LogicalType


def schemas(namespace: Namespace, settings: MongoSettings) -> Schemas:
    """The schemas of a collection's keys and values."""
    prefix = names.schema_prefix(settings.events, table_id(namespace))
    images = ("after", "patch", "filter") if settings.legacy else ("before", "after")
    fields = [Field(name, _DOCUMENT) for name in images]
    if not settings.legacy:
        fields.append(Field("updateDescription", _UPDATE))
    fields += [Field("source", source_schema(settings)), Field("op", _TEXT), Field("ts_ms", _NUMBER)]
    fields.append(Field("transaction", transaction_schema(settings.events)))
    key = [Field("id", STRING)]
    told = names.table_field(settings.events, table_id(namespace))
    if told is not None:
        key.append(Field(told[0], STRING))
    return Schemas(struct(*key, name=f"{prefix}.Key"), struct(*fields, name=f"{prefix}.Envelope"))
