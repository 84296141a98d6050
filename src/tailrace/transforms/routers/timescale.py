"""TimescaleDb: shows changes of chunks as changes of their hypertable, or of the view whose rows it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.columns import TableId
from tailrace.columns.logical import STRING
from tailrace.records.hypertables import NO_HYPERTABLES, Catalogue, Hypertable, Hypertables
from tailrace.records.layout import Constant, Header, RecordLayout, Struct
from tailrace.records.nodes import is_envelope, with_headers
from tailrace.records.transform import Shared
from tailrace.transforms.option_reader import OptionReader

_HEADER = "__debezium_timescaledb_"
_SECOND = "__debezium.oldkey"
"""The header of the second event of a key change. In Debezium both events share a source block, already changed by the
first event when the second comes: so the second event keeps its topic."""


@dataclass(frozen=True, slots=True)
class TimescaleDb:
    """A records.transform.Transform. For `asks` see records.hypertables; `prefix` is the first part of topics."""

    asks: Catalogue
    prefix: str
    hypertables: Hypertables = NO_HYPERTABLES

    def knowing(self, hypertables: Hypertables) -> TimescaleDb:
        """Return the transform for tasks: with these chunks, and without the login."""
        return replace(self, asks=replace(self.asks, login=()), hypertables=hypertables)

    def routes(self, topic: str, table: TableId) -> tuple[str]:
        """See tailrace.records.transform.Transform."""
        found = self._of(table.schema, table.table)
        return (topic if found is None else self._topic(found),)

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        made = self.rewrite(record)
        return made, made is record

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        value = record.value
        if not is_envelope(record) or not isinstance(value, Struct):
            return record
        source = value.part("source")
        if not isinstance(source, Struct):
            return record
        chunk = source.part("schema"), source.part("table")
        if not isinstance(chunk[0], Constant) or not isinstance(chunk[1], Constant):
            return record
        schema, table = str(chunk[0].value), str(chunk[1].value)
        found = self._of(schema, table)
        if found is None:
            return record
        shown = _shown(found)
        for name, text in zip(("schema", "table"), shown, strict=True):
            source = source.with_part(name, Constant(text, STRING))
        record = replace(record, value=value.with_part("source", source))
        if any(header.name == _SECOND for header in record.headers):
            return record
        headers = [("chunk_table", table), ("chunk_schema", schema)]
        if found.view is not None:
            headers += [("hypertable_table", found.table), ("hypertable_schema", found.schema)]
        added = (Header(_HEADER + name, Constant(text, STRING)) for name, text in headers)
        return with_headers(replace(record, topic=self._topic(found)), *added)

    def _of(self, schema: str, table: str) -> Hypertable | None:
        return self.hypertables.of.get((schema, table)) if schema in self.asks.schemas else None

    def _topic(self, found: Hypertable) -> str:
        return ".".join((self.prefix, *_shown(found)))


def _shown(found: Hypertable) -> tuple[str, str]:
    """Return the schema and the name that events show."""
    if found.view is None or found.view_schema is None:
        return found.schema, found.table
    return found.view_schema, found.view


def timescale_db(options: Mapping[str, str]) -> TimescaleDb:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    login = (
        ("database.hostname", given.required("database.hostname")),
        ("database.port", given.integer("database.port", 5432)),
        ("database.user", given.required("database.user")),
        ("database.password", given.text("database.password")),
        ("database.dbname", given.required("database.dbname")),
    )
    schemas = given.names("schema.list") or ("_timescaledb_internal",)
    made = TimescaleDb(Catalogue(schemas, login), given.text("target.topic.prefix", "timescaledb"))
    given.done()
    return made
