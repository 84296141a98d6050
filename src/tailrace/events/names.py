"""Names of topics, schemas and fields, with the characters that each kind does not allow replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.columns import TableId
from tailrace.columns.adjustment import adjusted
from tailrace.events.settings import EventSettings
from tailrace.records.transform import routed

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


def topic(settings: EventSettings, table: TableId) -> str:
    """The topic of a table's records: prefix, schema and table, illegal characters as `_`.

    Where one query reads several databases, today's format has the database before the schema.

    A strategy by expression starts from the name without them; what it makes of that stands as it is made. Transforms
    come last: where what they do depends on more than that, it is one of several.
    """
    return routed(own_topic(settings, table), table, settings.transforms)[0]


def shared(settings: EventSettings, tables: Iterable[TableId]) -> dict[TableId, str]:
    """A topic for each of the tables, the same one for those whose records may come together in a topic: these are read
    by one task, which keeps their order."""
    found = {table: routed(own_topic(settings, table), table, settings.transforms) for table in tables}
    joined = {topic: topic for topics in found.values() for topic in topics}

    def one(topic: str) -> str:
        while joined[topic] != topic:
            topic = joined[topic]
        return topic

    for first, *others in found.values():
        for other in others:
            joined[one(other)] = one(first)
    return {table: one(topics[0]) for table, topics in found.items()}


def own_topic(settings: EventSettings, table: TableId) -> str:
    """A table's topic before any transform: what schemas are named after."""
    name = _legal(_physical(settings, table))
    made = settings.naming.routed(name)
    return name if made is None else made


def _legal(topic: str) -> str:
    """The name of a topic with `_` for each UTF-16 unit, a Java char, that is illegal in it."""
    return _ILLEGAL.sub(lambda found: "_" if found[0] <= "\uffff" else "__", topic)


def table_field(settings: EventSettings, table: TableId) -> tuple[str, str] | None:
    """The field that says in keys which table a record is of, and its value; None where keys have none."""
    naming = settings.naming
    return (naming.key_field, naming.key_value(_physical(settings, table))) if naming.key_field else None


def _physical(settings: EventSettings, table: TableId) -> str:
    # A connector of Debezium's reads several databases since 2, so its names have the database; but not those that its
    # strategy by schema and expression starts from.
    by_schema = settings.naming.by_schema
    named = settings.several_databases and settings.generation >= (2,)
    database = () if not named or (by_schema and settings.naming.expression is not None) else (table.database,)
    schema = (table.schema,) if by_schema else ()
    return settings.delimiter.join((settings.logical_name, *database, *schema, table.table))


def collection(settings: EventSettings, table: TableId) -> str:
    """What transaction metadata and notifications call a table: with its database where the connector has several."""
    return f"{table.database}.{table}" if settings.several_databases else str(table)


def transaction_topic(settings: EventSettings) -> str:
    """The topic of the records that say where transactions begin and end."""
    return _legal(settings.delimiter.join((settings.logical_name, settings.transaction_topic)))


def quarantine_topic(settings: EventSettings) -> str:
    """The topic of changes that cannot become events: the one that is named, or prefix and `quarantine`."""
    name = settings.quarantine_topic or settings.delimiter.join((settings.logical_name, "quarantine"))
    return _legal(name)


def message_topic(settings: EventSettings) -> str:
    """The topic of logical messages; `topic.delimiter` and the naming strategy have no part in it."""
    return _legal(f"{settings.logical_name}.message")


def schema_change_topic(settings: EventSettings) -> str:
    """The topic of changes of schemas: the prefix alone."""
    return _legal(settings.logical_name)


def heartbeat_topic(settings: EventSettings) -> str:
    """The topic of heartbeats: the one that is named, or prefix and logical name."""
    if settings.heartbeat_topic:
        return _legal(settings.heartbeat_topic)
    return _legal(settings.delimiter.join((settings.heartbeat_prefix, settings.logical_name)))


def schema_prefix(settings: EventSettings, table: TableId) -> str:
    """What `.Key`, `.Value` and `.Envelope` are put behind."""
    return adjusted(own_topic(settings, table), settings.schema_adjustment, dots=True)


def schema_name(settings: EventSettings, name: str) -> str:
    return adjusted(name, settings.schema_adjustment, dots=True)


def field_name(settings: EventSettings, name: str) -> str:
    return adjusted(name, settings.field_name_adjustment_mode, dots=False)
