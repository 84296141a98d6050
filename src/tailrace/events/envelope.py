"""The schemas of keys and values: key, row, source block, transaction block, envelope, in both event formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.columns import TableSchema
from tailrace.columns.batch import Marker
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, semantic, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import ColumnPlan

_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_LEGACY_MARKERS = "true,last,false"
_OPTIONAL_INT64 = INT64.with_optional(True)
_OPTIONAL_STRING = STRING.with_optional(True)


def marker_text(marker: Marker, settings: EventSettings) -> str | None:
    """What `source.snapshot` says; None where the field is null in the event and its default stays unused."""
    if marker is Marker.FALSE:
        return "false" if settings.replace_null_with_default else None
    if settings.legacy and marker in (Marker.FIRST, Marker.FIRST_IN_DATA_COLLECTION, Marker.LAST_IN_DATA_COLLECTION):
        return "true"
    return marker.name.lower()


def source_schema(settings: EventSettings) -> LogicalType:
    """The source block of PostgreSQL events."""
    allowed = _LEGACY_MARKERS if settings.legacy else _MARKERS
    marker = semantic(STRING, "io.debezium.data.Enum", allowed=allowed).with_optional(True).with_default("false")
    fields = [
        Field("version", STRING),
        Field("connector", STRING),
        Field("name", STRING),
        Field("ts_ms", INT64),
        Field("snapshot", marker),
        Field("db", STRING),
        Field("sequence", _OPTIONAL_STRING),
    ]
    if not settings.legacy:
        fields += [Field("ts_us", _OPTIONAL_INT64), Field("ts_ns", _OPTIONAL_INT64)]
    fields += [Field("schema", STRING), Field("table", STRING)]
    fields += [Field(name, _OPTIONAL_INT64) for name in ("txId", "lsn", "xmin")]
    if not settings.legacy:
        fields += [Field("origin", _OPTIONAL_STRING), Field("origin_lsn", _OPTIONAL_INT64)]
    name = names.schema_name(settings, "io.debezium.connector.postgresql.Source")
    return struct(*fields, name=name, version=None if settings.legacy else 1)


def transaction_schema(settings: EventSettings) -> LogicalType:
    fields = (Field("id", STRING), Field("total_order", INT64), Field("data_collection_order", INT64))
    if settings.legacy:
        return struct(*fields).with_optional(True)
    return struct(*fields, name="event.block", version=1).with_optional(True)


@dataclass(frozen=True, slots=True)
class EventSchemas:
    """A table's schemas: `key` is None where it has no key."""

    key: LogicalType | None
    value: LogicalType


def event_schemas(
    table: TableSchema, plans: Sequence[ColumnPlan], key: Sequence[ColumnPlan], settings: EventSettings
) -> EventSchemas:
    """The schemas of a table whose columns are shown as `plans` and whose key is made of `key`."""
    prefix = names.schema_prefix(settings, table.id)
    row = struct(*(Field(plan.name, plan.schema) for plan in plans), name=prefix + ".Value").with_optional(True)
    fields = [Field("before", row), Field("after", row), Field("source", source_schema(settings))]
    transaction = Field("transaction", transaction_schema(settings))
    if settings.legacy:
        fields += [Field("op", STRING), Field("ts_ms", _OPTIONAL_INT64), transaction]
    else:
        fields += [transaction, Field("op", STRING)]
        fields += [Field(name, _OPTIONAL_INT64) for name in ("ts_ms", "ts_us", "ts_ns")]
    value = struct(*fields, name=prefix + ".Envelope", version=None if settings.legacy else 2)
    parts = [Field(plan.name, plan.schema) for plan in key]
    told = names.table_field(settings, table.id)
    if told is not None:
        parts.append(Field(told[0], STRING))
    return EventSchemas(struct(*parts, name=prefix + ".Key") if parts else None, value)
