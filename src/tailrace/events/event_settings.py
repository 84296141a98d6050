"""EventSettings: everything that shapes events, apart from the table and the change. Any process."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tailrace.columns import TableId, TableSchema
from tailrace.columns.blocks import LAST
from tailrace.columns.row import COLUMNS, row_schema
from tailrace.columns.typed import TypedRows, typed_schema
from tailrace.config import columns as options
from tailrace.config.columns import KeyColumns, Treatment
from tailrace.config.config import Config
from tailrace.config.expressions import Expression
from tailrace.config.formats import Format, part_format
from tailrace.config.naming import TopicNaming
from tailrace.config.transforms import transforms
from tailrace.errors import ConfigError
from tailrace.events.table_routing import Routing
from tailrace.records.transform import Transform

# --- columns ----------------------------------------------------------------------------------------------------------

Expressions = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ColumnShaping:
    """The options about columns, as values only: hashable, picklable; made by the driver, used everywhere.

    `included` and `excluded` are the two column lists, at most one of them filled. `treatments` are in order of
    precedence. `annotated_columns` and `annotated_types` select columns whose schemas name the source's type. `keys`
    are the entries of message.key.columns; with `keys_as_in_table` their columns come in the table's order. `comments`:
    whether comments are kept.
    """

    included: Expressions = ()
    excluded: Expressions = ()
    treatments: tuple[Treatment, ...] = ()
    annotated_columns: Expressions = ()
    annotated_types: Expressions = ()
    keys: tuple[KeyColumns, ...] = ()
    comments: bool = False
    keys_as_in_table: bool = False

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> ColumnShaping:
        """Read typed options; absent ones shape nothing."""

        def listed(name: str) -> Expressions:
            return options.expressions(values.get(name) or [])

        return cls(
            included=listed("column.include.list"),
            excluded=listed("column.exclude.list"),
            treatments=options.treatments(values),
            annotated_columns=listed("column.propagate.source.type"),
            annotated_types=listed("datatype.propagate.source.type"),
            keys=options.key_columns(values.get("message.key.columns") or ""),
            comments=bool(values.get("include.schema.comments")),
            keys_as_in_table=values.get("event.format") in ("1.0", "1.1", "1.7"),
        )

    def shows(self, table: TableId, column: str) -> bool:
        """Return True if values show the column."""
        if self.included:
            return _matches(self.included, f"{table}.{column}")
        return not (self.excluded and _matches(self.excluded, f"{table}.{column}"))

    def treatment(self, table: TableId, column: str) -> Treatment | None:
        """Return the first treatment that names the column."""
        name = f"{table}.{column}"
        return next((found for found in self.treatments if _matches(found.columns, name)), None)

    def annotates(self, table: TableId, column: str, type_name: str) -> bool:
        """Return True if the column's schema names its type in the source, as options for columns or types ask."""
        if _matches(self.annotated_columns, f"{table}.{column}"):
            return True
        return bool(self.annotated_types) and any(
            _matches(self.annotated_types, f"{prefix}{table}.{type_name}") for prefix in ("", f"{table.database}.")
        )

    def keyed(self, table: TableSchema) -> TableSchema:
        """Return the table with the key of all entries of message.key.columns that name it, in their order.

        In the formats of 1.x, the key's columns are in the table's order. Raises ConfigError for a column that the
        table does not have.
        """
        names = [
            name for entry in self.keys if entry.table.fullmatch(str(table.id)) for name in _found(entry.columns, table)
        ]
        if self.keys_as_in_table:
            names.sort(key=table.index)
        if not names:
            return table
        own = table.key if table.own is None else table.own
        return replace(table, key=tuple(dict.fromkeys(names)), own=own)

    def read(self, table: TableSchema) -> TableSchema:
        """Return the table with only the columns that events need: the columns of values and of keys."""
        keys = {*table.key, *(table.own or ())}
        kept = tuple(c for c in table.columns if c.name in keys or self.shows(table.id, c.name))
        return table if len(kept) == len(table.columns) else replace(table, columns=kept)


def _matches(expressions: Expressions, name: str) -> bool:
    return any(expression.fullmatch(name) for expression in expressions)


def _found(wanted: Iterable[str], table: TableSchema) -> Iterable[str]:
    """Yield the table's own names of `wanted`: exact matches, else the only column that differs just in case."""
    names = [column.name for column in table.columns]
    for name in wanted:
        alike = [name] if name in names else [other for other in names if other.lower() == name.lower()]
        if len(alike) != 1:
            raise ConfigError(
                f"message.key.columns names the column {name} of {table.id}, which the table does not have, or which "
                "is not captured.",
                "Correct the option, or the columns that are captured: a publication and a capture instance may have a "
                "list of them.",
            )
        yield alike[0]


# --- settings ---------------------------------------------------------------------------------------------------------


TASK_ID = "0"
TODAY = "3"
"""The event format of today's Debezium. Each connector may also have one older format."""

_PLACEHOLDER = "__debezium_unavailable_value"
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
    "schema.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "field.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "event.converting.failure.handling.mode": ("fail", "warn", "skip"),
}


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The settings that turn changes into events. Picklable; made by the driver, used by workers.

    Each field is the option of the same name with `_` for `.`, except:

    - `logical_name`: topic.prefix;
    - `connector`: the connector's name in events;
    - `delimiter`: topic.delimiter;
    - `database`: database.dbname, empty if a query reads several databases;
    - `transaction_topic`: topic.transaction;
    - `notification_topic`: notification.sink.topic.name;
    - `placeholder`: the bytes of unavailable.value.placeholder;
    - `version`: `source.version`;
    - `run_id`: the text of a UUID, one per query;
    - `heartbeat_prefix`, `heartbeat_topic`: topic.heartbeat.prefix, topic.heartbeat.name;
    - `quarantine_topic`: event.quarantine.topic;
    - `converting_failure_mode`, `processing_failure_mode`: event.converting and event.processing.failure.handling.mode;
    - `tolerant`: errors.tolerance=all;
    - `shaping`: the options about columns;
    - `columns`: the columns of the row that tasks make, in order;
    - `key_format`, `value_format`, `header_format`: the formats of key.converter, value.converter and header.converter,
      with their options;
    - `transforms`: the transforms that the option names, made from their options;
    - `several_databases`, `schema_changes_name_database`, `has_schemas`, `skips_changes`: traits of the connector;
    - `own`: the connector's own option that its conversions read;
    - `typed`: None if keys and values are bytes;
    - `blocks`: row.blocks, "" for rows of records;
    - `routing`: the tables whose blocks go into another table;
    - `copy`: row.copy.
    """

    logical_name: str
    database: str
    connector: str
    version: str
    event_format: str = TODAY
    delimiter: str = "."
    tombstones_on_delete: bool = True
    decimal_handling_mode: str = "precise"
    time_precision_mode: str = "adaptive"
    binary_handling_mode: str = "bytes"
    interval_handling_mode: str = "numeric"
    hstore_handling_mode: str = "json"
    placeholder: bytes = _PLACEHOLDER.encode()
    include_unknown_datatypes: bool = False
    skipped_operations: frozenset[str] = frozenset("t")
    truncate_handling_mode: str = "skip"
    money_fraction_digits: int = 2
    extended_headers_enabled: bool = True
    key_schemas_enable: bool = True
    value_schemas_enable: bool = True
    header_schemas_enable: bool = True
    key_format: Format | str = "json"
    value_format: Format | str = "json"
    header_format: Format | str = "json"
    replace_null_with_default: bool = True
    schema_name_adjustment_mode: str = "none"
    field_name_adjustment_mode: str = "none"
    converting_failure_mode: str = "warn"
    processing_failure_mode: str = "fail"
    # records that a transform or a converter cannot process are dropped and counted
    tolerant: bool = False
    quarantine_topic: str = ""
    # a change with more bytes in the log cannot become an event; 0: no limit
    most_change_bytes: int = 0
    run_id: str = ""
    provide_transaction_metadata: bool = False
    transaction_topic: str = "transaction"
    notification_topic: str = ""
    heartbeat_prefix: str = "__debezium-heartbeat"
    heartbeat_topic: str = ""
    several_databases: bool = False
    schema_changes_name_database: bool = True
    has_schemas: bool = True
    own: Hashable = None
    skips_changes: bool = False
    naming: TopicNaming = field(default_factory=TopicNaming)
    shaping: ColumnShaping = field(default_factory=ColumnShaping)
    columns: tuple[str, ...] = COLUMNS
    transforms: tuple[Transform, ...] = ()
    typed: TypedRows | None = None
    blocks: str = ""
    # no other task of the batch has changes of this task's keys
    apart: bool = False
    routing: Routing | None = None
    copy: bool = False

    @property
    def copies(self) -> bool:
        """True if rows are for a table that must equal its source; False if they are only Debezium's events."""
        return self.copy or bool(self.blocks) or self.typed is not None

    def takes_last(self, table: TableSchema) -> bool:
        """Return True if only the last change of each key of the table is wanted, whatever its operation."""
        if self.blocks != LAST or self.skipped_operations & set("cud"):
            return False
        return all(self.shaping.shows(table.id, name) for name in table.key)

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of the rows that tasks make. For typed rows without a declared schema, the schema of rows that
        are not changes."""
        if self.typed is None:
            return row_schema(self.columns)
        return self.typed.schema or typed_schema(self.columns)

    @property
    def key_encoding(self) -> Format | str:
        """The format of the keys of changes."""
        return self.key_format if self.typed is None else "typed"

    @property
    def value_encoding(self) -> Format | str:
        """The format of the values of changes."""
        return self.value_format if self.typed is None else "typed"

    def as_typed(self, typed: TypedRows, columns: tuple[str, ...]) -> EventSettings:
        """Return the settings for typed rows of these columns: no tombstones, and nulls instead of defaults."""
        return replace(self, typed=typed, columns=columns, tombstones_on_delete=False, replace_null_with_default=False)

    @property
    def legacy(self) -> bool:
        """True if events have the connector's older format instead of today's."""
        return self.event_format != TODAY

    @property
    def generation(self) -> tuple[int, ...]:
        """The format's version of Debezium, as numbers: (1, 7) for `1.7`, (3,) for `3`."""
        return _generation(self.event_format)

    @property
    def has_transaction_block(self) -> bool:
        """True if envelopes have a field `transaction`: since 1.1."""
        return self.generation >= (1, 1)

    @property
    def has_sequence(self) -> bool:
        """True if source blocks have a field `sequence`: since 1.7 (exactly 1.5, which is no connector's format)."""
        return self.generation >= (1, 7)

    @property
    def names_schemas(self) -> bool:
        """True if envelopes, heartbeats and parts of transaction metadata have named, versioned schemas: since 2."""
        return self.generation >= (2,)

    @property
    def has_nanos(self) -> bool:
        """True if source blocks and envelopes also show their time in µs and ns: since 3 (exactly 2.6)."""
        return self.generation >= (3,)

    @property
    def tells_schema_changes(self) -> bool:
        """True if connectors over change tables write records of schema changes: since 2."""
        return self.generation >= (2,)

    @property
    def context_headers(self) -> bool:
        """True if records carry the context headers, which only today's format has."""
        return self.extended_headers_enabled and not self.legacy

    @property
    def schema_adjustment(self) -> str:
        """The adjustment of schema names: Avro's before 2, schema.name.adjustment.mode since."""
        return self.schema_name_adjustment_mode if self.generation >= (2,) else "avro"

    @property
    def drops_truncates(self) -> bool:
        """True if truncates are dropped: `skipped.operations`; in older formats by `truncate.handling.mode` too."""
        if "t" in self.skipped_operations:
            return True
        return self.legacy and self.truncate_handling_mode == "skip"

    @classmethod
    def from_options(cls, options: Config, run_id: str = "") -> EventSettings:
        """Read typed options with their defaults applied; `run_id` may also be the option `run.id`.

        Raises ConfigError for a mode that is unknown or not supported.
        """
        traits, versions = options.traits, options.traits.versions
        _check_choices(options)

        def chosen(option: str, default: Any) -> Any:
            """Return the value of an option that not every connector has."""
            value = options.get(option)
            return default if value is None else value

        return cls(
            logical_name=options["topic.prefix"],
            database=chosen("database.dbname", "") or _only(chosen("database.names", ())),
            connector=traits.event_name,
            event_format=options["event.format"],
            version=options.get("event.version.string") or versions[options["event.format"]],
            delimiter=chosen("topic.delimiter", "."),
            tombstones_on_delete=options["tombstones.on.delete"],
            decimal_handling_mode=chosen("decimal.handling.mode", "precise"),
            time_precision_mode=chosen("time.precision.mode", "adaptive"),
            binary_handling_mode=chosen("binary.handling.mode", "bytes"),
            interval_handling_mode=chosen("interval.handling.mode", "numeric"),
            hstore_handling_mode=chosen("hstore.handling.mode", "json"),
            placeholder=placeholder_bytes(chosen("unavailable.value.placeholder", _PLACEHOLDER)),
            include_unknown_datatypes=chosen("include.unknown.datatypes", False),
            skipped_operations=frozenset(chosen("skipped.operations", "t")),
            truncate_handling_mode=chosen("truncate.handling.mode", "skip"),
            money_fraction_digits=chosen("money.fraction.digits", 2),
            extended_headers_enabled=chosen("extended.headers.enabled", True),
            key_schemas_enable=options["key.converter.schemas.enable"],
            value_schemas_enable=options["value.converter.schemas.enable"],
            header_schemas_enable=options["header.converter.schemas.enable"],
            key_format=part_format(options, "key"),
            value_format=part_format(options, "value"),
            header_format=part_format(options, "header"),
            replace_null_with_default=options["replace.null.with.default"],
            schema_name_adjustment_mode=chosen("schema.name.adjustment.mode", "none"),
            field_name_adjustment_mode=chosen("field.name.adjustment.mode", "none"),
            converting_failure_mode=options.get("event.converting.failure.handling.mode") or "warn",
            processing_failure_mode=_processing(options.get("event.processing.failure.handling.mode") or "fail"),
            tolerant=options.get("errors.tolerance") == "all",
            quarantine_topic=options.get("event.quarantine.topic") or "",
            most_change_bytes=chosen("event.max.change.bytes", 0),
            run_id=run_id or str(options.get("run.id") or ""),
            provide_transaction_metadata=chosen("provide.transaction.metadata", False),
            transaction_topic=chosen("topic.transaction", "transaction"),
            notification_topic=options.get("notification.sink.topic.name") or "",
            heartbeat_prefix=chosen("topic.heartbeat.prefix", "__debezium-heartbeat"),
            heartbeat_topic=options.get("topic.heartbeat.name") or "",
            several_databases=traits.several_databases,
            schema_changes_name_database=traits.schema_changes_name_database,
            has_schemas=traits.has_schemas,
            skips_changes=traits.skips_changes,
            own=options.get(traits.value_rules) if traits.value_rules else None,
            naming=TopicNaming.from_options(options),
            shaping=ColumnShaping.from_options(options),
            transforms=transforms(options, traits.transforms).transforms,
            blocks=_blocks(options),
            routing=Routing.of(options.get("row.route")),
            copy=bool(options.get("row.copy")),
        )


def _blocks(options: Config) -> str:
    blocks: str = options.get("row.blocks") or ""
    if blocks and not options.traits.gives_blocks:
        raise ConfigError(f"row.blocks is not supported for the connector {options.connector}.", "Leave it out.")
    return blocks


def _check_choices(options: Config) -> None:
    for option, allowed in (*_CHOICES.items(), ("event.format", tuple(options.traits.versions))):
        value = options.get(option)
        if value is not None and value not in allowed:
            raise ConfigError(f"{option} = {value} is not supported.", f"Use one of: {', '.join(allowed)}.")


def _only(databases: Sequence[str]) -> str:
    return databases[0] if len(databases) == 1 else ""


@lru_cache(maxsize=16)
def _generation(form: str) -> tuple[int, ...]:
    return tuple(map(int, form.split(".")))


def _processing(mode: str) -> str:
    """Return the mode; `ignore` is the older word for `skip`."""
    return "skip" if mode == "ignore" else mode


def placeholder_bytes(text: str) -> bytes:
    """Return the placeholder's bytes; `hex:` before hexadecimal digits gives bytes that no text has."""
    if not text.startswith("hex:"):
        return text.encode()
    try:
        return bytes.fromhex(text[4:])
    except ValueError as error:
        raise ConfigError("unavailable.value.placeholder is not hexadecimal after hex:.") from error
