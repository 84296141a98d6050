"""The schemas of keys and values: key, row, source block, transaction block, envelope, in every event format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.columns import TableSchema
from tailrace.columns.batch import Marker
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, semantic, struct
from tailrace.events import names
from tailrace.events.form import Form
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import ColumnPlan

_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_OLDER_MARKERS = "true,last,false"
_OPTIONAL_INT64 = INT64.with_optional(True)
_OPTIONAL_STRING = STRING.with_optional(True)


def marker_text(marker: Marker, settings: EventSettings) -> str | None:
    """What `source.snapshot` says; None where the field is null in the event and its default stays unused."""
    if marker is Marker.FALSE:
        return "false" if settings.replace_null_with_default else None
    inner = (Marker.FIRST, Marker.FIRST_IN_DATA_COLLECTION, Marker.LAST_IN_DATA_COLLECTION)
    if not settings.has_nanos and marker in inner:
        return "true"
    return marker.name.lower()


def source_schema(settings: EventSettings, form: Form) -> LogicalType:
    """The source block of a connector's events."""
    allowed = _MARKERS if settings.has_nanos else _OLDER_MARKERS
    if settings.names_schemas and not settings.has_nanos:
        allowed += ",incremental"
    marker = semantic(STRING, "io.debezium.data.Enum", allowed=allowed).with_optional(True).with_default("false")
    fields = [
        Field("version", STRING),
        Field("connector", STRING),
        Field("name", STRING),
        Field("ts_ms", INT64),
        Field("snapshot", marker),
        Field("db", STRING),
    ]
    if settings.has_sequence:
        fields.append(Field("sequence", _OPTIONAL_STRING))
    if settings.has_nanos:
        fields += [Field("ts_us", _OPTIONAL_INT64), Field("ts_ns", _OPTIONAL_INT64)]
    fields += [Field("schema", STRING), Field("table", STRING), *form.source_fields(settings)]
    name = names.schema_name(settings, f"io.debezium.connector.{settings.connector}.Source")
    return struct(*fields, name=name, version=1 if settings.has_nanos else None)


def transaction_schema(settings: EventSettings) -> LogicalType:
    fields = (Field("id", STRING), Field("total_order", INT64), Field("data_collection_order", INT64))
    if not settings.names_schemas:
        return struct(*fields).with_optional(True)
    return struct(*fields, name="event.block", version=1).with_optional(True)


@dataclass(frozen=True, slots=True)
class EventSchemas:
    """A table's schemas: `key` is None where it has no key."""

    key: LogicalType | None
    value: LogicalType


def event_schemas(
    table: TableSchema, plans: Sequence[ColumnPlan], key: Sequence[ColumnPlan], settings: EventSettings, form: Form
) -> EventSchemas:
    """The schemas of a table whose columns are shown as `plans` and whose key is made of `key`."""
    prefix = names.schema_prefix(settings, table.id)
    row = struct(*(Field(plan.name, plan.schema) for plan in plans), name=prefix + ".Value").with_optional(True)
    fields = [Field("before", row), Field("after", row), Field("source", source_schema(settings, form))]
    transaction = Field("transaction", transaction_schema(settings))
    if settings.has_nanos:
        fields += [transaction, Field("op", STRING)]
        fields += [Field(name, _OPTIONAL_INT64) for name in ("ts_ms", "ts_us", "ts_ns")]
    else:
        fields += [Field("op", STRING), Field("ts_ms", _OPTIONAL_INT64)]
        fields += [transaction] if settings.has_transaction_block else []
    version = (2 if settings.has_nanos else 1) if settings.names_schemas else None
    value = struct(*fields, name=prefix + ".Envelope", version=version)
    parts = [Field(plan.name, plan.schema) for plan in key]
    told = names.table_field(settings, table.id)
    if told is not None:
        parts.append(Field(told[0], STRING))
    return EventSchemas(struct(*parts, name=prefix + ".Key") if parts else None, value)
