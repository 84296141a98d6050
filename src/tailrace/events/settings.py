"""EventSettings: everything that shapes events, apart from the table and the change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.naming import TopicNaming
from tailrace.errors import ConfigError
from tailrace.events.shaping import Shaping

CONNECTOR = "postgresql"
TASK_ID = "0"
_VERSIONS = {"1.7": "1.7.2.Final", "3": "3.6.1.Final"}
_CHOICES = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": (
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
        "structured",
    ),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "interval.handling.mode": ("numeric", "string"),
    "hstore.handling.mode": ("json", "map"),
    "truncate.handling.mode": ("skip", "include"),
    "event.format": tuple(_VERSIONS),
    "schema.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "field.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "event.converting.failure.handling.mode": ("fail", "warn", "skip"),
}


@dataclass(frozen=True, slots=True)
class EventSettings:
    """How changes become events. Picklable; made by the driver, used by workers.

    Each field is the option of the same name with `_` for `.`; those that differ: `logical_name` is topic.prefix,
    `delimiter` topic.delimiter, `database` database.dbname, `transaction_topic` topic.transaction,
    `notification_topic` notification.sink.topic.name, `placeholder` the bytes of unavailable.value.placeholder,
    `version` what `source.version` says, `run_id` the text of a UUID that is one per query, `heartbeat_prefix` and
    `heartbeat_topic` are topic.heartbeat.prefix and topic.heartbeat.name, `quarantine_topic` is
    event.quarantine.topic, the two failure modes are those of event.converting and
    event.processing.failure.handling.mode, `shaping` is what the options about columns say.
    """

    logical_name: str
    database: str
    event_format: str = "3"
    version: str = _VERSIONS["3"]
    delimiter: str = "."
    tombstones_on_delete: bool = True
    decimal_handling_mode: str = "precise"
    time_precision_mode: str = "adaptive"
    binary_handling_mode: str = "bytes"
    interval_handling_mode: str = "numeric"
    hstore_handling_mode: str = "json"
    placeholder: bytes = b"__debezium_unavailable_value"
    include_unknown_datatypes: bool = False
    skipped_operations: frozenset[str] = frozenset("t")
    truncate_handling_mode: str = "skip"
    money_fraction_digits: int = 2
    extended_headers_enabled: bool = True
    key_schemas_enable: bool = True
    value_schemas_enable: bool = True
    header_schemas_enable: bool = True
    replace_null_with_default: bool = True
    schema_name_adjustment_mode: str = "none"
    field_name_adjustment_mode: str = "none"
    converting_failure_mode: str = "warn"
    processing_failure_mode: str = "fail"
    quarantine_topic: str = ""
    run_id: str = ""
    provide_transaction_metadata: bool = False
    transaction_topic: str = "transaction"
    notification_topic: str = ""
    heartbeat_prefix: str = "__debezium-heartbeat"
    heartbeat_topic: str = ""
    naming: TopicNaming = field(default_factory=TopicNaming)
    shaping: Shaping = field(default_factory=Shaping)

    @property
    def legacy(self) -> bool:
        """Whether events have the form of Debezium 1.7."""
        return self.event_format == "1.7"

    @property
    def context_headers(self) -> bool:
        """Whether records carry the context headers; the 1.7 form never does."""
        return self.extended_headers_enabled and not self.legacy

    @property
    def drops_truncates(self) -> bool:
        """In the 1.7 form `truncate.handling.mode` decides, in today's `skipped.operations`."""
        if "t" in self.skipped_operations:
            return True
        return self.legacy and self.truncate_handling_mode == "skip"

    @classmethod
    def from_options(cls, options: Mapping[str, Any], run_id: str = "") -> EventSettings:
        """Read typed options with their defaults applied; `run_id` may also be the option `run.id`.

        Raises ConfigError for a mode that is unknown or not supported.
        """
        for option, allowed in _CHOICES.items():
            value = options.get(option)
            if value is not None and value not in allowed:
                raise ConfigError(f"{option} = {value} is not supported.", f"Use one of: {', '.join(allowed)}.")
        form = options["event.format"]
        return cls(
            logical_name=options["topic.prefix"],
            database=options["database.dbname"],
            event_format=form,
            version=options["event.version.string"] or _VERSIONS[form],
            delimiter=options["topic.delimiter"],
            tombstones_on_delete=options["tombstones.on.delete"],
            decimal_handling_mode=options["decimal.handling.mode"],
            time_precision_mode=options["time.precision.mode"],
            binary_handling_mode=options["binary.handling.mode"],
            interval_handling_mode=options["interval.handling.mode"],
            hstore_handling_mode=options["hstore.handling.mode"],
            placeholder=placeholder_bytes(options["unavailable.value.placeholder"]),
            include_unknown_datatypes=options["include.unknown.datatypes"],
            skipped_operations=frozenset(options["skipped.operations"]),
            truncate_handling_mode=options["truncate.handling.mode"],
            money_fraction_digits=options["money.fraction.digits"],
            extended_headers_enabled=options["extended.headers.enabled"],
            key_schemas_enable=options["key.converter.schemas.enable"],
            value_schemas_enable=options["value.converter.schemas.enable"],
            header_schemas_enable=options["header.converter.schemas.enable"],
            replace_null_with_default=options["replace.null.with.default"],
            schema_name_adjustment_mode=options["schema.name.adjustment.mode"],
            field_name_adjustment_mode=options["field.name.adjustment.mode"],
            converting_failure_mode=options.get("event.converting.failure.handling.mode") or "warn",
            processing_failure_mode=_processing(options.get("event.processing.failure.handling.mode") or "fail"),
            quarantine_topic=options.get("event.quarantine.topic") or "",
            run_id=run_id or str(options.get("run.id") or ""),
            provide_transaction_metadata=options["provide.transaction.metadata"],
            transaction_topic=options["topic.transaction"],
            notification_topic=options.get("notification.sink.topic.name") or "",
            heartbeat_prefix=options["topic.heartbeat.prefix"],
            heartbeat_topic=options["topic.heartbeat.name"] or "",
            naming=TopicNaming.from_options(options),
            shaping=Shaping.from_options(options),
        )


def _processing(mode: str) -> str:
    """The mode, `ignore` being the older word for `skip`."""
    return "skip" if mode == "ignore" else mode


def placeholder_bytes(text: str) -> bytes:
    """The bytes of the placeholder; `hex:` before hexadecimal digits names bytes that no text can."""
    if not text.startswith("hex:"):
        return text.encode()
    try:
        return bytes.fromhex(text[4:])
    except ValueError as error:
        raise ConfigError("unavailable.value.placeholder is not hexadecimal after hex:.") from error
