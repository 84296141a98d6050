"""The transforms that a configuration names, made from their options. No I/O, any process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from tailrace.config.extensions import Extensions
from tailrace.errors import ConfigError

_CONNECT = "org.apache.kafka.connect.transforms."
_DEBEZIUM = "io.debezium.transforms."
_OURS = "tailrace.transforms."
_ANY_CONNECTOR = "io.debezium.connector.*."
_TODAY = "3"


def _of_parts(name: str, room: str, start: str = "of_") -> dict[str, str]:
    """Return the places of a Kafka Connect transform that has one class for keys and one for values."""
    return {f"{_CONNECT}{name}${part}": f"{_OURS}{room}:{start}{part.lower()}" for part in ("Key", "Value")}


KNOWN = Extensions(
    "tailrace.transforms",
    "transform",
    {
        f"{_CONNECT}RegexRouter": f"{_OURS}routers.regex_router:regex_router",
        f"{_CONNECT}TimestampRouter": f"{_OURS}routers.timestamp_router:timestamp_router",
        f"{_CONNECT}ValueToKey": f"{_OURS}fields.value_to_key:value_to_key",
        f"{_CONNECT}InsertHeader": f"{_OURS}headers.record_headers:insert_header",
        f"{_CONNECT}DropHeaders": f"{_OURS}headers.record_headers:drop_headers",
        f"{_CONNECT}Filter": f"{_OURS}routers.connect_filter:connect_filter",
        **_of_parts("ExtractField", "fields.extract_field"),
        **_of_parts("ReplaceField", "fields.replace_field"),
        **_of_parts("InsertField", "fields.insert_field"),
        **_of_parts("HeaderFrom", "headers.record_headers", "header_from_"),
        **_of_parts("MaskField", "fields.mask_field"),
        **_of_parts("Cast", "fields.cast"),
        **_of_parts("TimestampConverter", "conversions.timestamp_converter"),
        **_of_parts("Flatten", "fields.flatten"),
        **_of_parts("HoistField", "fields.hoist_field"),
        **_of_parts("SetSchemaMetadata", "fields.set_schema_metadata"),
        f"{_DEBEZIUM}Filter": f"{_OURS}routers.conditions:script_filter",
        f"{_DEBEZIUM}ContentBasedRouter": f"{_OURS}routers.conditions:content_based_router",
        f"{_DEBEZIUM}ExtractNewRecordState": f"{_OURS}state.record_state:extract_new_record_state",
        f"{_DEBEZIUM}UnwrapFromEnvelope": f"{_OURS}state.record_state:extract_new_record_state",
        f"{_DEBEZIUM}ByLogicalTableRouter": f"{_OURS}routers.logical_tables:by_logical_table_router",
        f"{_DEBEZIUM}ExtractChangedRecordState": f"{_OURS}headers.changed_fields:extract_changed_record_state",
        f"{_DEBEZIUM}HeaderToValue": f"{_OURS}headers.header_to_value:header_to_value",
        f"{_DEBEZIUM}TimezoneConverter": f"{_OURS}conversions.zones:timezone_converter",
        f"{_DEBEZIUM}SchemaChangeEventFilter": f"{_OURS}routers.schema_change_filter:schema_change_event_filter",
        f"{_DEBEZIUM}EnforceRecordSize": f"{_OURS}fields.record_size:enforce_record_size",
        f"{_DEBEZIUM}SwapGeometryCoordinates": f"{_OURS}conversions.geometries:swap_geometry_coordinates",
        f"{_DEBEZIUM}GeometryFormatTransformer": f"{_OURS}conversions.geometries:geometry_format_transformer",
        f"{_DEBEZIUM}VectorToJsonConverter": f"{_OURS}conversions.vectors:vector_to_json_converter",
        f"{_DEBEZIUM}outbox.EventRouter": f"{_OURS}outbox.event_router:event_router",
        f"{_DEBEZIUM}partitions.PartitionRouting": f"{_OURS}routers.partition_routing:partition_routing",
        f"{_ANY_CONNECTOR}transforms.DecodeLogicalDecodingMessageContent": (
            f"{_OURS}outbox.messages:decode_logical_decoding_message_content"
        ),
    },
    ConfigError,
)
"""Transforms by the text of `transforms.<name>.type`; each place holds a function of the options that makes one."""

PREDICATES = Extensions(
    "tailrace.predicates",
    "predicate",
    {
        f"{_CONNECT}predicates.TopicNameMatches": f"{_OURS}routers.predicates:topic_name_matches",
        f"{_CONNECT}predicates.HasHeaderKey": f"{_OURS}routers.predicates:has_header_key",
        f"{_CONNECT}predicates.RecordIsTombstone": f"{_OURS}routers.predicates:record_is_tombstone",
    },
    ConfigError,
)
"""Predicates by the text of `predicates.<name>.type`."""


_REFUSED = {
    f"{_ANY_CONNECTOR}transforms.timescaledb.TimescaleDb": "It is for hypertables, which its database does not have",
    f"{_DEBEZIUM}tracing.ActivateTracingSpan": "No spans are traced here",
    f"{_DEBEZIUM}ExtractSchemaToNewRecord": "It adds a field that tells columns' types, which is not written here",
    f"{_DEBEZIUM}openlineage.OpenLineage": "Lineage is reported without it: see openlineage.integration.enabled",
}
"""Debezium's transforms that are not supported, with the reason."""


class TransformChain(NamedTuple):
    """The transforms in order, their faults, and notices for their users, as sentences.

    Faults, which have no end, and notices name options and never their values.
    """

    transforms: tuple[Any, ...]
    faults: list[str]
    notices: list[str]


def transforms(values: Mapping[str, Any], own: Mapping[str, str] | None = None) -> TransformChain:
    """Return the transforms that a configuration's `values` name; `own` are the connector's own places, by type."""
    faults: list[str] = []
    predicates = _parts(values, "predicates", PREDICATES, ("of_topic", "of"), faults)
    conditions: dict[str, tuple[str, bool]] = {}
    known = KNOWN.beside(own) if own else KNOWN
    made = _parts(values, "transforms", known, ("rewrite",), faults, conditions)
    notices = [
        f"transforms.{name}: {text}" for name, transform in made.items() for text in getattr(transform, "notices", ())
    ]
    for name, (predicate, negate) in conditions.items():
        if predicate not in (values.get("predicates") or []):
            faults.append(f"transforms.{name}.predicate names a predicate that predicates does not name")
        elif name in made and predicate in predicates:
            made[name] = import_module(f"{_OURS}routers.predicates").Conditional(
                made[name], predicates[predicate], negate
            )
    return TransformChain(tuple(made.values()), faults, notices)


def _parts(
    values: Mapping[str, Any],
    area: str,
    known: Extensions,
    methods: tuple[str, ...],
    faults: list[str],
    conditions: dict[str, tuple[str, bool]] | None = None,
) -> dict[str, Any]:
    """Return the transforms or predicates by name, in order; `conditions` receives the predicates of transforms."""
    options = {name: str(values[name]).strip() for name in values if name.lower().startswith(f"{area}.")}
    made: dict[str, Any] = {}
    for name in values.get(area) or []:
        start = f"{area}.{name}."
        own = {option[len(start) :]: options.pop(option) for option in list(options) if option.startswith(start)}
        kind = own.pop("type", "")
        if conditions is not None:
            faults += _condition(name, own, conditions)
        if not kind:
            faults.append(f"{start}type is missing")
            continue
        try:
            part = _made(known, kind, own, methods)
            in_form = getattr(part, "in_form", None)
            part = part if in_form is None else in_form(str(values.get("event.format") or _TODAY))
            with_nulls = getattr(part, "with_nulls", None)
            made[name] = part if with_nulls is None else with_nulls(values.get("replace.null.with.default", True))
        except ConfigError as error:
            faults.append(f"{start}type = {kind} is not supported: {error.message.rstrip('.')}")
    faults += [f"{name} belongs to no {area[:-1]} that {area} names" for name in options]
    return made


def _condition(name: str, own: dict[str, str], conditions: dict[str, tuple[str, bool]]) -> list[str]:
    """Remove a transform's predicate from its options; return the faults."""
    predicate, negate = own.pop("predicate", ""), own.pop("negate", "").lower()
    if negate not in ("", "true", "false"):
        return [f"transforms.{name}.negate must be true or false"]
    if predicate:
        conditions[name] = predicate, negate == "true"
    return [f"transforms.{name}.negate needs a predicate"] if negate and not predicate else []


def _made(known: Extensions, kind: str, options: Mapping[str, str], methods: tuple[str, ...]) -> Any:
    made = _maker(known, kind)(options)
    missing = [part for part in methods if not callable(getattr(made, part, None))]
    if missing:
        raise ConfigError(f"It is not a {known.kind}: it lacks {' and '.join(missing)}.", "Correct its package.")
    return made


def _maker(known: Extensions, kind: str) -> Any:
    """Return the maker of a transform or predicate. `kind` is its Java class, or the last part of an unambiguous one.

    A transform of one of Debezium's connectors is found by its class, whichever connector the class names.
    """
    own = re.sub(r"io\.debezium\.connector\.(v2\.)?\w+\.", _ANY_CONNECTOR, kind)
    if own in known.places:
        # looking for other packages takes 0.1 s
        return known.own(own)
    if own in _REFUSED:
        raise ConfigError(_REFUSED[own], "Leave the transform out.")
    if "." not in kind:
        alike = [name for name in known.places if name.rpartition(".")[2] == kind]
        if len(alike) > 1:
            raise ConfigError(f"It may be one of {' and '.join(alike)}.", "Write one of them.")
        if alike:
            return known.own(alike[0])
    return known.load(kind)
