"""Look-up of current rows by their keys, for a sink of tables. Driver and worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.captured_tables import unread
from tailrace.connectors.binlog.dialect import MARIADB
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.position import number_of, position_text
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.server.connection import connect, dialect_of
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.keys import base
from tailrace.connectors.binlog.snapshot.point import end_of_log, own_place
from tailrace.connectors.binlog.snapshot.result import rows, run
from tailrace.connectors.binlog.snapshot.row_lookup import PresentRows
from tailrace.connectors.row_lookup import Name, Values
from tailrace.errors import ConnectionFailed, PrerequisiteError, SinkError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.packed_changes import stored
from tailrace.events.reselection import UnreadableRows
from tailrace.events.table_plan import table_plan
from tailrace.values.arrow import typed

if TYPE_CHECKING:
    from pymysql.connections import Connection

# The most keys of one query: a row may have many megabytes.
_KEYS = 64
_WAIT_S, _PAUSE_S = 10.0, 0.02
_REMEDY = "Read the table by an incremental snapshot, or set debezium.sink.tables.unknown.values = null."


@dataclass(frozen=True, slots=True)
class BinlogPresentTable:
    """Implements tailrace.connectors.row_lookup.PresentTable."""

    rows: PresentRows
    schema: TableSchema
    settings: EventSettings
    config: Config = field(repr=False)

    def __repr__(self) -> str:
        return f"BinlogPresentTable({self.schema.id})"

    def called(self, columns: Sequence[tuple[str, int]]) -> list[str]:
        # the server does not number columns
        return [name for name, _ in columns]

    def demand(self, columns: Sequence[str]) -> None:
        # columns that were added at the end leave the others where they were
        plans = table_plan(self.schema, self.settings, form_of(dialect_of(self.config))).columns
        now = [plan.name for plan in plans]
        if now[: len(columns)] != list(columns):
            raise SinkError(
                f"The columns of {self.schema.id} were renamed, dropped or moved since the change: a value may be that "
                "of another column.",
                _REMEDY,
            )

    def values(self, key: Sequence[str], keys: Sequence[pa.Array], columns: Sequence[str]) -> Iterator[Values]:
        form = form_of(dialect_of(self.config))
        plans = {plan.name: plan for plan in table_plan(self.schema, self.settings, form).columns}
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
        """Return the values of a key column in the text form of the log.

        Raises SinkError for a type whose text form is not unique.
        """
        column, kind = self.schema.columns[self.schema.index(name)], values.type
        allowed = _FAITHFUL.get(base(column))
        if allowed is None or not allowed(kind):
            raise SinkError(
                f"Rows of {self.schema.id} cannot be read again by the column {name}, of the type {base(column)}.",
                _REMEDY,
            )
        if pa.types.is_binary(kind):
            return ["\\x" + value.hex() for value in values.to_pylist()]
        if pa.types.is_decimal(kind):
            return [format(value, "f") for value in values.to_pylist()]
        if pa.types.is_timestamp(kind):
            plain = values.cast(pa.timestamp(kind.unit, kind.tz)).cast(pa.timestamp(kind.unit))
            return _fractions([str(text) for text in plain.cast(pa.string()).to_pylist()], column.type_name)
        found: list[str] = pc.cast(values, pa.string()).to_pylist()
        return found


def owned_gtids(text: str) -> set[tuple[str, str]]:
    """Return the source and the number of each id in MySQL's `gtid_owned`, which also has the sessions that own
    them."""
    found = set()
    for part in filter(None, (one.strip() for one in text.split(","))):
        pieces = part.split(":")
        source = ":".join(piece for piece in pieces if "#" not in piece)
        found |= {(source, piece.partition("#")[0]) for piece in pieces if "#" in piece}
    return found


def _fractions(texts: list[str], type_name: str) -> list[str]:
    """Return times with the column's number of fractional digits."""
    _, _, rest = type_name.partition("(")
    digits = int(rest.partition(")")[0] or 0)
    found = []
    for text in texts:
        whole, _, fraction = text.partition(".")
        found.append(f"{whole}.{fraction[:digits]:0<{digits}}" if digits else whole)
    return found


def _is_micros(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_string(kind))


_FAITHFUL: dict[str, Any] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), pa.types.is_integer),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), pa.types.is_string),
    **dict.fromkeys(("enum", "uuid", "inet4", "inet6"), pa.types.is_string),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), pa.types.is_binary),
    **dict.fromkeys(("datetime", "timestamp"), _is_micros),
    "date": pa.types.is_date32,
    "decimal": _is_number,
}
"""The types of key columns whose values have exactly one text, each with a test of the values' Arrow type."""


class BinlogPresent:
    """Implements tailrace.connectors.row_lookup.PresentTables."""

    def __init__(self, config: Config, settings: EventSettings, session: Connection[Any]) -> None:
        self._config, self._settings, self._session = config, settings, session
        self._dialect = dialect_of(config)

    @explained
    def table(self, name: Name) -> BinlogPresentTable:
        wanted = TableId(*name)
        own = (wanted.schema, wanted.table)
        try:
            found = catalog.schemas(self._session, [own], self._dialect).get(own)
        except Unparsable as fault:
            raise unread(fault) from None
        if found is None:
            raise SinkError(f"{wanted} no longer exists, so its values cannot be read again.", _REMEDY)
        self._await_visible(wanted)
        schema = Admission(self._settings, form_of(self._dialect)).admit(found)
        return BinlogPresentTable(PresentRows(self._config), schema, self._settings, self._config)

    def _await_visible(self, name: TableId) -> None:
        """Wait until the transactions in the log are visible to every session.

        A server writes a transaction to its log a moment before it commits it. MariaDB shows the place in the log up to
        which a session sees transactions; MySQL, with GTIDs, the ids of unfinished transactions. Raises
        PrerequisiteError for MySQL without GTIDs, ConnectionFailed if the wait takes too long.
        """
        is_over = self._has_passed() if self._dialect is MARIADB else self._are_over(name)
        until = time.monotonic() + _WAIT_S
        while not is_over():
            if time.monotonic() >= until:
                raise ConnectionFailed(
                    f"Transactions of the log have not been visible for more than {_WAIT_S:.0f} s, so rows of {name} "
                    "may be older than the log.",
                    "Start again: the batch is repeated.",
                )
            time.sleep(_PAUSE_S)

    def _has_passed(self) -> Callable[[], bool]:
        """Return a function that returns True once new sessions see the log up to its current end."""
        file, end, _ = end_of_log(self._session)

        def has_passed() -> bool:
            run(self._session, "start transaction with consistent snapshot, read only")
            try:
                place = own_place(self._session)
            finally:
                run(self._session, "rollback")
            return place is None or (number_of(place[0]), place[1]) >= (number_of(file), end)

        return has_passed

    def _are_over(self, name: TableId) -> Callable[[], bool]:
        """Return a function that returns True once the transactions are finished that now have an id and are not
        committed."""
        ((mode, owned),) = rows(self._session, "select @@global.gtid_mode, @@global.gtid_owned")
        # in the permissive modes transactions may have no id
        if mode != "ON":
            raise PrerequisiteError(
                f"Rows of {name} cannot be read again: without GTIDs MySQL does not tell when a transaction that its "
                "log has is visible.",
                f"Set gtid_mode=ON on the server. {_REMEDY}",
            )
        awaited = owned_gtids(owned or "")

        def are_over() -> bool:
            if not awaited:
                return True
            ((now,),) = rows(self._session, "select @@global.gtid_owned")
            return not awaited & owned_gtids(now or "")

        return are_over

    @explained
    def position(self) -> str:
        file, end, _ = end_of_log(self._session)
        return position_text(0, file, end)

    def close(self) -> None:
        self._session.close()


def present(config: Config, settings: EventSettings) -> BinlogPresent:
    """Return the current rows of tables; see tailrace.connectors.row_lookup. Raises ConnectionFailed,
    PrerequisiteError."""
    return BinlogPresent(config, settings, connect(config))
