"""Names of topics, schemas and fields, with illegal characters replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from tailrace.columns import TableId
from tailrace.columns.adjustment import adjusted
from tailrace.events.event_settings import EventSettings
from tailrace.records.transform import routed

_Part = TypeVar("_Part")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_ILLEGAL_OR_UNDERSCORE = re.compile(r"[^a-zA-Z0-9.-]")


def topic(settings: EventSettings, table: TableId) -> str:
    """Return the topic of a table's records: prefix, schema and table, with illegal characters as `_`.

    If a query reads several databases, today's format puts the database before the schema. An expression of the naming
    strategy applies to the name without replacements, and its result is used unchanged. Transforms come last; if their
    result depends on the record, this is one of several topics.
    """
    return routed(own_topic(settings, table), table, settings.transforms)[0]


def shared(settings: EventSettings, tables: Iterable[TableId]) -> dict[TableId, str]:
    """Return a topic for each table; tables whose records may share a topic get the same topic.

    One task reads these tables together, to keep the order of their records.
    """
    found = {table: routed(own_topic(settings, table), table, settings.transforms) for table in tables}
    joined = {topic: topic for topics in found.values() for topic in topics}

    def root(topic: str) -> str:
        while joined[topic] != topic:
            topic = joined[topic]
        return topic

    for first, *others in found.values():
        for other in others:
            joined[root(other)] = root(first)
    return {table: root(topics[0]) for table, topics in found.items()}


def by_topic(
    settings: EventSettings, parts: Iterable[_Part], table: Callable[[_Part], TableId]
) -> dict[str, list[_Part]]:
    """Return the parts of tables by topic, in their order. Parts that one task reads together have the same topic."""
    parts = list(parts)
    topics = shared(settings, map(table, parts))
    found: dict[str, list[_Part]] = {}
    for part in parts:
        found.setdefault(topics[table(part)], []).append(part)
    return found


def own_topic(settings: EventSettings, table: TableId) -> str:
    """Return a table's topic before any transform; schemas are named after it."""
    physical = _physical(settings, table)
    name = _escaped(physical) if settings.naming.unicode else _legal(physical)
    made = settings.naming.routed(name)
    return name if made is None else made


def _legal(topic: str) -> str:
    """Return the name of a topic with `_` for each illegal UTF-16 unit (a Java char)."""
    return _ILLEGAL.sub(lambda found: "_" if found[0] <= "\uffff" else "__", topic)


def _escaped(topic: str) -> str:
    """Return the name of a topic with `_uXXXX` for each illegal UTF-16 unit and each underscore."""
    return _ILLEGAL_OR_UNDERSCORE.sub(
        lambda found: "".join(f"_u{unit:04x}" for unit in memoryview(found[0].encode("utf-16-le")).cast("H")), topic
    )


def table_field(settings: EventSettings, table: TableId) -> tuple[str, str] | None:
    """Return the key field that names a record's table, and its value; None if keys have none."""
    naming = settings.naming
    return (naming.key_field, naming.key_value(_physical(settings, table))) if naming.key_field else None


def _physical(settings: EventSettings, table: TableId) -> str:
    # Debezium's connectors that read several databases have the database in their names since 2, except in those of the
    # strategies by schema that have an expression, or escape characters.
    naming = settings.naming
    has_database = settings.several_databases and settings.generation >= (2,)
    if naming.by_schema and (naming.expression is not None or naming.unicode):
        has_database = False
    database = (table.database,) if has_database else ()
    schema = (table.schema,) if naming.by_schema else ()
    return settings.delimiter.join((settings.logical_name, *database, *schema, table.table))


def collection(settings: EventSettings, table: TableId) -> str:
    """Return a table's name in transaction metadata and notifications: with its database if there are several."""
    return f"{table.database}.{table}" if settings.several_databases else str(table)


def transaction_topic(settings: EventSettings) -> str:
    """Return the topic of the records that begin and end transactions."""
    return _legal(settings.delimiter.join((settings.logical_name, settings.transaction_topic)))


def quarantine_topic(settings: EventSettings) -> str:
    """Return the topic of changes that cannot become events: the configured one, or prefix and `quarantine`."""
    name = settings.quarantine_topic or settings.delimiter.join((settings.logical_name, "quarantine"))
    return _legal(name)


def message_topic(settings: EventSettings) -> str:
    """Return the topic of logical messages. It ignores `topic.delimiter` and the naming strategy."""
    return _legal(f"{settings.logical_name}.message")


def schema_change_topic(settings: EventSettings) -> str:
    """Return the topic of schema changes, which is the prefix."""
    return _legal(settings.logical_name)


def heartbeat_topic(settings: EventSettings) -> str:
    """Return the topic of heartbeats: the configured one, or prefix and logical name."""
    if settings.heartbeat_topic:
        return _legal(settings.heartbeat_topic)
    return _legal(settings.delimiter.join((settings.heartbeat_prefix, settings.logical_name)))


def schema_prefix(settings: EventSettings, table: TableId) -> str:
    """Return the prefix of `.Key`, `.Value` and `.Envelope`."""
    return adjusted(own_topic(settings, table), settings.schema_adjustment, dots=True)


def schema_name(settings: EventSettings, name: str) -> str:
    return adjusted(name, settings.schema_adjustment, dots=True)


def field_name(settings: EventSettings, name: str) -> str:
    return adjusted(name, settings.field_name_adjustment_mode, dots=False)
