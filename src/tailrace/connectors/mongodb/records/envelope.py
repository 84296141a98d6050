"""The layouts of MongoDB's keys and values, in the formats 1.1 and 3."""

from __future__ import annotations

from tailrace.columns.logical import BOOLEAN, INT32, INT64, STRING, Field, array, semantic, struct
from tailrace.columns.table import TableId
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.events import names
from tailrace.events.envelope import transaction_layout
from tailrace.records.layout import MARKER, BlockColumn, Constant, Member, Struct
from tailrace.values.strings import JSON

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
    """Return the collection's id for the names of topics and schemas."""
    return TableId("", *namespace)


def source_layout(namespace: Namespace, settings: MongoSettings) -> Struct:
    """Return the layout of the source block; with `source.struct.version=v1` the layout of Debezium before 0.10."""
    events, (database, collection) = settings.events, namespace
    if settings.old_source:
        members = [
            Member("version", Constant(events.version, _TEXT)),
            Member("connector", Constant(events.connector, _TEXT)),
            Member("name", Constant(events.logical_name, STRING)),
            Member("rs", Constant(settings.replica_set, STRING)),
            Member("ns", Constant(f"{database}.{collection}", STRING)),
            Member("sec", BlockColumn("seconds", INT32)),
            Member("ord", BlockColumn("increment", INT32)),
            Member("h", BlockColumn("hash", _NUMBER)),
            Member("initsync", BlockColumn("initial", BOOLEAN.with_optional(True).with_default(False))),
        ]
        return Struct(tuple(members), "io.debezium.connector.mongo.Source", 1)
    allowed = _OLD_MARKERS if settings.legacy else _MARKERS
    marker = semantic(STRING, "io.debezium.data.Enum", allowed=allowed).with_optional(True).with_default("false")
    members = [
        Member("version", Constant(events.version, STRING)),
        Member("connector", Constant(events.connector, STRING)),
        Member("name", Constant(events.logical_name, STRING)),
        Member("ts_ms", BlockColumn("wall_ms", INT64)),
        Member("snapshot", BlockColumn("marker", marker, MARKER)),
        Member("db", Constant(database, STRING)),
    ]
    shown, place = Member("collection", Constant(collection, STRING)), Member("ord", BlockColumn("increment", INT32))
    if settings.legacy:
        members += [Member("rs", Constant(settings.replica_set, STRING)), shown, place]
        members += [Member("h", BlockColumn("hash", _NUMBER)), Member("tord", BlockColumn("order", _NUMBER))]
    else:
        members.append(Member("sequence", Constant(None, _TEXT)))
        members += [Member(f"ts_{unit}", BlockColumn(f"wall_{unit}", _NUMBER)) for unit in ("us", "ns")]
        members += [shown, place, Member("lsid", BlockColumn("session", _TEXT))]
        members.append(Member("txnNumber", BlockColumn("transaction_number", _NUMBER)))
        members.append(Member("wallTime", BlockColumn("wall_time", _NUMBER)))
    name = names.schema_name(events, "io.debezium.connector.mongo.Source")
    return Struct(tuple(members), name, None if settings.legacy else 1)


def key_layout(namespace: Namespace, settings: MongoSettings) -> Struct:
    """Return the layout of the key: `_id` as text."""
    members = [Member("id", BlockColumn("id", STRING))]
    further = names.table_field(settings.events, table_id(namespace))
    if further is not None:
        members.append(Member(further[0], Constant(further[1], STRING)))
    return Struct(tuple(members), f"{names.schema_prefix(settings.events, table_id(namespace))}.Key")


def value_layout(namespace: Namespace, settings: MongoSettings, op: str) -> Struct:
    """Return the envelope of an operation."""
    images = ("after", "patch", "filter") if settings.legacy else ("before", "after")
    members = [Member(name, BlockColumn(name, _DOCUMENT)) for name in images]
    if not settings.legacy:
        members.append(Member("updateDescription", BlockColumn("update", _UPDATE)))
    members.append(Member("source", source_layout(namespace, settings)))
    members += [Member("op", Constant(op, _TEXT)), Member("ts_ms", BlockColumn("made_ms", _NUMBER))]
    members.append(Member("transaction", BlockColumn("transaction", transaction_layout(settings.events).type)))
    return Struct(tuple(members), f"{names.schema_prefix(settings.events, table_id(namespace))}.Envelope")
