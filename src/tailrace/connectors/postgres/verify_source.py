"""A snapshot to compare with tables, and the keys that changed between two positions. Driver.

The pipeline's slot is copied before the snapshot is taken. The copy is temporary, and begins at or before the position
that the pipeline has committed then. It therefore has every change by which the tables and the snapshot differ.
"""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns.batch import position_text
from tailrace.columns.table import TableSchema
from tailrace.config import Config
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.postgres.consistent_read import HeldSnapshot
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.protocol import pgoutput
from tailrace.connectors.postgres.protocol.position import lsn_text
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup.slots import find_slot
from tailrace.connectors.postgres.snapshot.key_chunks import literal
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, SnapshotTask
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.log.contracts import Task
from tailrace.values.infinite import EARLIEST, LATEST

if TYPE_CHECKING:
    import psycopg

_COPY_SINCE = 120000
_INFINITE = {LATEST: "infinity", EARLIEST: "-infinity"}
_ACTIVE = "select active from pg_catalog.pg_replication_slots where slot_name = %s"
_CHANGES = """
copy (select data from pg_catalog.pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, null,
  'proto_version', '1', 'publication_names', {publication})) to stdout (format binary)
"""


class ComparedSnapshot:
    """See tailrace.connectors.consistent_read."""

    form: SourceForm | None = FORM
    committed: str
    position: str
    tables: Sequence[TableSchema]

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Copy the slot. Raises TailraceError."""
        self._config, self._settings = config, settings
        self._held: HeldSnapshot | None = None
        self._slot, self._publication = str(config["slot.name"]), str(config["publication.name"])
        self._copy = f"tailrace_verify_{secrets.token_hex(8)}"
        self._log: psycopg.Connection[Any] = connections.connect(config, limited=False)
        try:
            if find_slot(self._log, config) is None:
                raise PrerequisiteError(
                    f"There is no replication slot {self._slot}: no pipeline of this configuration has run.",
                    "Start the pipeline first.",
                )
            _copy_slot(self._log, self._slot, self._copy)
            stands = find_slot(self._log, {**config, "slot.name": self._copy})
            self.committed = position_text(max((stands or 0) - 1, 0))
        except BaseException:
            self._log.close()
            raise

    def take(self) -> None:
        taken = connections.explained(lambda: HeldSnapshot(self._config, self._settings, is_told_apart=False))
        self._held = taken()
        self.position, self.tables = self._held.position, self._held.tables

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        assert self._held is not None
        return [task for task in _single(self._held.tasks) if task.table.id == table.id]

    @connections.explained
    def is_running(self) -> bool:
        row = self._log.execute(_ACTIVE, (self._slot,)).fetchone()
        return bool(row and row[0])

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        found = connections.explained(lambda: _touched(self._changes(after, upto), table))()
        return TouchedKeys((), True) if found is None else TouchedKeys(tuple(zip(*sorted(found), strict=True)))

    def is_told(self) -> bool:
        # the snapshot shows nothing after its position
        return True

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        texts = (row for key in keys for row in itertools.product(*map(_texts, key)))
        rows = (", ".join(map(literal, row)) for row in texts)
        listed = ", ".join(rows) if len(names) == 1 else ", ".join(f"({row})" for row in rows)
        columns = ", ".join(map(quoted, names))
        return f"{columns} in ({listed})" if len(names) == 1 else f"({columns}) in ({listed})"

    def _changes(self, after: str, upto: str) -> Iterator[pgoutput.AnyMessage]:
        """Yield the messages of transactions that commit after `after`, up to `upto`; Relation messages of all
        transactions."""
        low, high = int(after, 16), int(upto, 16)
        if low >= high:
            return
        # a commit record at `upto` ends after it
        query = _CHANGES.format(
            slot=literal(self._copy), upto=literal(lsn_text(high + 1)), publication=literal(self._publication)
        )
        counts = False
        with self._log.cursor() as cursor, cursor.copy(query.encode()) as copy:
            copy.set_types(["bytea"])
            for (data,) in copy.rows():
                message = pgoutput.parse(data)
                if isinstance(message, pgoutput.Begin):
                    counts = low < message.final_lsn <= high
                if counts or isinstance(message, pgoutput.Relation):
                    yield message

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        # the copy of the slot goes with its session
        self._log.close()


def compared(config: Config, settings: EventSettings) -> ComparedSnapshot:
    """See tailrace.connectors.consistent_read.Comparing."""
    return connections.explained(lambda: ComparedSnapshot(config, settings))()


def _texts(value: Any) -> tuple[str, ...]:
    """Return the server's values, as text, that a table's value may represent: two days also represent infinities."""
    text = _text(value)
    if not isinstance(value, datetime.date):
        return (text,)
    begins = not isinstance(value, datetime.datetime) or value.time() == datetime.time()
    day = value.date() if isinstance(value, datetime.datetime) else value
    return (text, _INFINITE[day]) if begins and day in _INFINITE else (text,)


def _text(value: Any) -> str:
    """Return a value as text for the server."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return "\\x" + bytes(value).hex()
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)


def _single(tasks: Sequence[Task]) -> Iterator[SnapshotTask]:
    for task in tasks:
        if isinstance(task, Consecutive):
            yield from _single(task.tasks)
        else:
            assert isinstance(task, SnapshotTask)
            yield task


def _copy_slot(connection: psycopg.Connection[Any], slot: str, copy: str) -> None:
    """Copy a slot for as long as the session lasts. Raises PrerequisiteError."""
    import psycopg

    version = connection.info.server_version
    if version < _COPY_SINCE:
        raise PrerequisiteError(
            f"Slots can be copied from PostgreSQL 12 on; this server is version {version // 10000}.",
            "Compare with a newer server.",
        )
    try:
        connection.execute("select pg_catalog.pg_copy_logical_replication_slot(%s, %s, true)", (slot, copy))
    except (psycopg.OperationalError, psycopg.ProgrammingError, psycopg.InternalError) as error:
        raise PrerequisiteError(
            f"The replication slot {slot} cannot be copied: {error.diag.message_primary or error}.",
            "Keep max_replication_slots two above the slots in use, and give the user REPLICATION.",
        ) from None


def _touched(messages: Iterator[pgoutput.AnyMessage], table: TableSchema) -> set[tuple[bytes, ...]] | None:
    """Return the keys of a table that the messages change; None if a change lacks its key, or truncates the table."""
    found: set[tuple[bytes, ...]] = set()
    places: dict[int, _Places | None] = {}
    for message in messages:
        if isinstance(message, pgoutput.Relation):
            is_it = (message.namespace or "pg_catalog", message.name) == (table.id.schema, table.id.table)
            places[message.relation_id] = _Places.of(message, table.key) if is_it else None
        elif isinstance(message, pgoutput.Truncate):
            if any(places.get(one) is not None for one in message.relation_ids):
                return None
        elif isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            of = places.get(message.relation_id)
            if of is None:
                continue
            keys = of.keys(message)
            if keys is None:
                return None
            found.update(keys)
    return found


class _Places:
    """Places of the key's columns in the rows of a relation. `is_told` is True if changed keys are in the old rows."""

    def __init__(self, indexes: tuple[int, ...], is_told: bool) -> None:
        self._indexes, self._is_told = indexes, is_told

    @classmethod
    def of(cls, relation: pgoutput.Relation, key: Sequence[str]) -> _Places:
        named = {column.name: index for index, column in enumerate(relation.columns)}
        indexes = tuple(named[name] for name in key if name in named)
        whole = len(indexes) == len(key)
        logged = relation.replica_identity == "f" or all(relation.columns[index].flags & 1 for index in indexes)
        return cls(indexes, whole and logged)

    def keys(self, change: pgoutput.Insert | pgoutput.Update | pgoutput.Delete) -> list[tuple[bytes, ...]] | None:
        if not self._is_told:
            return None
        rows = [] if isinstance(change, pgoutput.Insert) else [change.old]
        if not isinstance(change, pgoutput.Delete):
            rows.append(change.new)
        found = []
        for row in rows:
            if row is None:
                continue
            key = tuple(row[index] for index in self._indexes)
            if not all(isinstance(value, bytes) for value in key):
                return None
            found.append(tuple(value for value in key if isinstance(value, bytes)))
        return found
