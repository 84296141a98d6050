"""Look-up of current rows by their keys, for a sink of tables. Driver and workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import position_text
from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config
from tailrace.connectors.postgres.captured_tables import end_of_log
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.postgres.snapshot.row_lookup import PresentRows
from tailrace.connectors.row_lookup import Name, Values
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.packed_changes import stored
from tailrace.events.reselection import UnreadableRows
from tailrace.events.table_plan import table_plan
from tailrace.values.arrow import typed

if TYPE_CHECKING:
    import psycopg

# The most keys of one query: a row may have many megabytes.
_KEYS = 64
_WAIT_S = 10.0
_PAUSE_S = 0.02
_REMEDY = "Read the table by an incremental snapshot, or set debezium.sink.tables.unknown.values = null."

# A transaction that writes to the table holds a lock until its rows are visible, even if its commit waits for a
# standby. A prepared transaction has no process.
_WRITERS = """
select distinct virtualtransaction from pg_catalog.pg_locks
where locktype = 'relation' and relation = %s and granted and pid is distinct from pg_catalog.pg_backend_pid()
  and mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
_STANDBYS = "select pg_catalog.current_setting('synchronous_standby_names') <> ''"


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """See tailrace.connectors.row_lookup.PresentTable."""

    rows: PresentRows
    schema: TableSchema
    settings: EventSettings

    def __repr__(self) -> str:
        return f"PostgresTable({self.schema.id})"

    def called(self, columns: Sequence[tuple[str, int]]) -> list[str]:
        plans = table_plan(self.schema, self.settings, FORM).columns
        numbers = {self.schema.columns[self.schema.index(plan.source_name)].number: plan.name for plan in plans}
        return [numbers.get(number, name) if number else name for name, number in columns]

    def demand(self, columns: Sequence[str]) -> None:
        """Columns are found by number."""

    def values(self, key: Sequence[str], keys: Sequence[pa.Array], columns: Sequence[str]) -> Iterator[Values]:
        plans = {plan.name: plan for plan in table_plan(self.schema, self.settings, FORM).columns}
        missing = [name for name in (*key, *columns) if name not in plans]
        if missing:
            raise SinkError(f"{self.schema.id} has no column {missing[0]} any more.", _REMEDY)
        named = [plans[name].source_name for name in key]
        texts = [self._texts(name, values) for name, values in zip(named, keys, strict=True)]
        wanted = list(zip(*texts, strict=True))
        shown = [plans[name] for name in columns]
        try:
            for low in range(0, len(wanted), _KEYS):
                part = wanted[low : low + _KEYS]
                for places, found in self.rows.of_keys(self.schema, named, part, [one.source_name for one in shown]):
                    given = [typed(plan, column, None)[0] for plan, column in zip(shown, found, strict=True)]
                    yield [low + place for place in places], [stored(one) for one in given]
        except UnreadableRows as fault:
            raise SinkError(f"tailrace {fault.reason}.", _REMEDY) from None

    def _texts(self, name: str, values: pa.Array) -> list[str]:
        """Return the values of a key column as texts for the server.

        Raises SinkError for a type whose values cannot be converted back exactly.
        """
        column, kind = self.schema.columns[self.schema.index(name)], values.type
        allowed = _FAITHFUL.get("enum" if column.kind == "enum" else column.type_name)
        if allowed is None or not allowed(kind):
            raise SinkError(
                f"Rows of {self.schema.id} cannot be read again by the column {name}, of the type {column.type_name}.",
                _REMEDY,
            )
        if pa.types.is_binary(kind):
            return ["\\x" + value.hex() for value in values.to_pylist()]
        if pa.types.is_decimal(kind):
            return [format(value, "f") for value in values.to_pylist()]
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            plain = values.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
            return [f"{value}+00" for value in plain.cast(pa.string()).to_pylist()]
        found: list[str] = pc.cast(values, pa.string()).to_pylist()
        return found


def _is_micros(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_string(kind))


_FAITHFUL: dict[str, Any] = {
    **dict.fromkeys(("int2", "int4", "int8"), pa.types.is_integer),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "uuid", "enum"), pa.types.is_string),
    **dict.fromkeys(("timestamp", "timestamptz"), _is_micros),
    "bool": pa.types.is_boolean,
    "bytea": pa.types.is_binary,
    "date": pa.types.is_date32,
    "numeric": _is_number,
}
"""The types of key columns whose values have exactly one text, each with a test of the values' Arrow type."""


class PostgresPresent:
    """See tailrace.connectors.row_lookup.PresentTables."""

    def __init__(self, config: Config, settings: EventSettings, connection: psycopg.Connection[Any]) -> None:
        self._config, self._settings, self._connection = config, settings, connection
        self._catalog = Catalog(connection, config["database.dbname"], settings.shaping.comments)

    @connections.explained
    def table(self, name: Name) -> PostgresTable:
        wanted = TableId(*name)
        oids = [oid for oid, one, _ in self._catalog.tables() if one == wanted]
        found = self._catalog.schemas(oids) if oids else {}
        if not found:
            raise SinkError(f"{wanted} no longer exists, so its values cannot be read again.", _REMEDY)
        self._await_writers(oids[0], wanted)
        schema = Admission(self._settings, FORM).admit(found[oids[0]])
        return PostgresTable(PresentRows(Address.of(self._config, self._connection)), schema, self._settings)

    def _await_writers(self, oid: int, name: TableId) -> None:
        """Wait until transactions that may have committed already are visible to every session. Raises
        ConnectionFailed.

        Without a synchronous standby a commit is visible at once, and a transaction that still holds its lock after the
        time limit has not committed.
        """
        waiting, until = self._writers(oid), time.monotonic() + _WAIT_S
        while waiting and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            waiting &= self._writers(oid)
        (standbys,) = self._connection.execute(_STANDBYS).fetchone() or (False,)
        if waiting and standbys:
            raise ConnectionFailed(
                f"Transactions have been writing to {name} for more than {_WAIT_S:.0f} s. They may wait for a "
                "synchronous standby, so it is not known whether the log is ahead of what others see.",
                "Start again: the batch is repeated.",
            )

    def _writers(self, oid: int) -> set[str]:
        return {row[0] for row in self._connection.execute(_WRITERS, (oid,)).fetchall()}

    @connections.explained
    def position(self) -> str:
        return position_text(end_of_log(self._connection))

    def close(self) -> None:
        self._connection.close()


def present(config: Config, settings: EventSettings) -> PostgresPresent:
    """See tailrace.connectors.row_lookup. Raises ConnectionFailed, PrerequisiteError."""
    return PostgresPresent(config, settings, connections.connect(config))
