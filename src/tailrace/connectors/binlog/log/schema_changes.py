"""Records of schema changes, on the topic named topic.prefix: statements of the log, and the definitions at a snapshot.
Planner and worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns import Marker
from tailrace.connectors.binlog.log.form import FORM
from tailrace.connectors.binlog.log.position import ChangeContext
from tailrace.connectors.binlog.schema.catalog import Created, DatabaseCharset, quoted
from tailrace.connectors.binlog.schema.changes import SchemaRecord, TableChange, record, record_of
from tailrace.connectors.binlog.schema.definition import ColumnDefinition, Default, Name, TableDefinition
from tailrace.connectors.binlog.schema.tables import column_of
from tailrace.connectors.binlog.values import declared_types
from tailrace.events import names
from tailrace.events.control_records import Single, single_rows
from tailrace.events.envelope import marker_text
from tailrace.events.event_settings import EventSettings
from tailrace.events.headers import context
from tailrace.events.schema_changes import OP, key_schema, value_schema
from tailrace.records.layout import RecordLayout, constants

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = "1970-01-01 00:00:00"


@dataclass(frozen=True, slots=True)
class SchemaChangesTask:
    """Records of schema changes, each with its place. With `snapshot` they are the definitions at the start of a
    snapshot; with `ends` the last record also ends the snapshot."""

    records: tuple[tuple[bytes, ChangeContext], ...]
    settings: EventSettings
    snapshot: bool = False
    ends: bool = False

    def read(self) -> Iterator[pa.RecordBatch]:
        schemas = key_schema(self.settings), value_schema(self.settings, FORM)
        now_ms = time.time_ns() // 1_000_000
        yield single_rows(
            (
                _single(record_of(content), place, schemas, now_ms, self.settings, self._marker(number))
                for number, (content, place) in enumerate(self.records, 1)
            ),
            self.settings,
        )

    def _marker(self, number: int) -> Marker:
        if not self.snapshot:
            return Marker.FALSE
        return Marker.LAST if self.ends and number == len(self.records) else Marker.TRUE


def task(records: Sequence[tuple[bytes, ChangeContext]], settings: EventSettings) -> SchemaChangesTask:
    """Return the task for the records of a batch, in log order."""
    return SchemaChangesTask(tuple(records), settings)


def snapshot_records(
    tables: dict[Name, Created], databases: dict[str, DatabaseCharset], charset: str, collation: str
) -> list[bytes]:
    """Return the records of an initial snapshot, in the order in which Debezium sends them.

    `charset` and `collation` are the server's. Databases without tables are not among the records.
    """
    found = [record(f"SET character_set_server={charset}, collation_server={collation}", "", None, [])]
    for name in sorted(tables):
        gone = [TableChange("DROP", name, None)]
        found.append(record(f"DROP TABLE IF EXISTS {quoted(*name)}", name[0], [name], gone))
    for database in sorted({name[0] for name in tables}):
        known = databases.get(database)
        found.append(record(f"DROP DATABASE IF EXISTS {quoted(database)}", database, None, []))
        made = f"CREATE DATABASE {quoted(database)}"
        if known is not None:
            made += f" CHARSET {known.charset} COLLATE {known.collation}"
        found.append(record(made, database, None, []))
        found.append(record(f"USE {quoted(database)}", database, None, []))
        for name in sorted(name for name in tables if name[0] == database):
            one = tables[name]
            found.append(record(one.text, database, [name], [TableChange("CREATE", name, one.table)]))
    return found


def blocking_records(tables: Mapping[Name, Created]) -> list[bytes]:
    """Return the records of the tables of a blocking snapshot, in the order in which Debezium sends them."""
    names = sorted(tables)
    dropped = [record(f"DROP TABLE IF EXISTS {quoted(*name)}", name[0], [name], [TableChange("DROP", name, None)])
               for name in names]  # fmt: skip
    created = [
        record(tables[name].text, name[0], [name], [TableChange("CREATE", name, tables[name].table)]) for name in names
    ]
    return dropped + created


def _single(
    found: SchemaRecord,
    place: ChangeContext,
    schemas: tuple[Any, Any],
    now_ms: int,
    settings: EventSettings,
    marker: Marker,
) -> Single:
    table = None if found.names is None else ",".join(name[1] for name in in_hash_order(found.names))
    source = {
        "version": settings.version,
        "connector": settings.connector,
        "name": settings.logical_name,
        "ts_ms": place.commit_us // 1000,
        "snapshot": marker_text(marker, settings),
        "db": found.database,
        "sequence": None,
        "ts_us": place.commit_us,
        "ts_ns": place.commit_us * 1000,
        "table": table,
        "server_id": place.server_id,
        "gtid": place.gtid or None,
        "file": place.file,
        "pos": place.pos,
        "row": 0,
        "thread": None,
        "query": None,
    }
    value = {
        "source": source,
        "ts_ms": now_ms,
        "databaseName": found.database,
        "schemaName": None,
        "ddl": found.ddl,
        "tableChanges": [_change(one, settings) for one in found.changes],
    }
    layout = RecordLayout(
        OP,
        names.schema_change_topic(settings),
        constants({"databaseName": found.database}, schemas[0]),
        constants(value, schemas[1]),
        context(settings),
    )
    return layout, {
        "database": found.database,
        "schema": found.database,
        "table": table,
        "position": place.position,
        "ordinal": place.ordinal,
        "source_ts": place.commit_us,
        "snapshot": marker.name.lower(),
    }


def in_hash_order(found: Sequence[Name]) -> list[Name]:
    """Return names in the order of Java's HashSet, in which Debezium joins them."""
    size = 16
    while len(found) > size * 3 // 4:
        size *= 2

    def bucket(name: Name) -> int:
        code = 0
        for unit in ".".join(name).encode("utf-16-be").hex(" ", 2).split():
            code = (31 * code + int(unit, 16)) & 0xFFFFFFFF
        return (code ^ code >> 16) & (size - 1)

    return sorted(found, key=bucket)


def _change(one: TableChange, settings: EventSettings) -> dict[str, Any]:
    name = ".".join('"' + part.replace('"', '""') + '"' for part in one.name)
    return {"type": one.kind, "id": name, "table": None if one.table is None else _table(one.table, settings)}


def _table(table: TableDefinition, settings: EventSettings) -> dict[str, Any]:
    # Debezium's connector for MariaDB shows comments whatever the option says
    comments = settings.shaping.comments or settings.connector == "mariadb"
    return {
        "defaultCharsetName": table.charset or None,
        "primaryKeyColumnNames": list(table.key()),
        "columns": [_column(column, place, comments) for place, column in enumerate(table.columns, 1)],
        "comment": table.comment if comments else None,
    }


def _column(column: ColumnDefinition, place: int, comments: bool) -> dict[str, Any]:
    known = column_of(column)
    return {
        "name": column.name,
        "jdbcType": declared_types.jdbc_type(known),
        "nativeType": None,
        "typeName": column.words,
        "typeExpression": column.words,
        "charsetName": None if column.base == "JSON" else column.charset,
        "length": declared_types.shown_length(known),
        "scale": declared_types.shown_scale(known),
        "position": place,
        "optional": column.nullable,
        "autoIncremented": column.automatic,
        "generated": column.automatic,
        "comment": column.comment if comments else None,
        "defaultValueExpression": _expression(column.default),
        "enumValues": list(column.literals) or None,
    }


def _expression(default: Default | None) -> str | None:
    if default is None or default.kind in ("null", "expression"):
        return None
    return _EPOCH if default.kind == "now" else default.text
