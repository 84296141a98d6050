"""The rows of the captured tables at one position, for tasks of spark.read. Holder process.

The position is the commit of a row that is written to the signal table: once it is captured, so are all earlier
commits. The tasks are in `snapshot/consistent_tasks.py`; nothing is kept open for them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors import registry
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod
from tailrace.connectors.changetables.coverage import carried
from tailrace.connectors.changetables.dialect import Key, KeyRange, Position, Session
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.sessions import Retries
from tailrace.connectors.changetables.log.tasks import TaskSource
from tailrace.connectors.changetables.snapshot.consistent_tasks import HeldPart, HeldTask, SignalTable, is_ordered
from tailrace.connectors.changetables.snapshot.initial import with_columns
from tailrace.connectors.changetables.snapshot.windows import signal_table
from tailrace.connectors.findings import listed
from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.captured_form import position_of
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.snapshot.selection import overrides, selected

log = logging.getLogger("tailrace")

# The minimum number of rows of a part, the tasks per core, and the maximum number of retries of a lost connection.
PART_ROWS, _TASKS, _TRIES = 50_000, 2, 8


class HeldTables:
    """Implements ConsistentRead. `position` is the log position, as the column `position` shows it."""

    position: str
    tables: tuple[TableSchema, ...]

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Fix the position and plan the tasks. Raises TailraceError."""
        self._config = config
        dialect, form = loading.dialect(config), loading.form(config.connector)
        _demand(config, dialect.databases)
        (name,) = dialect.databases
        lists, self._names = TableFilter(config), Admission(settings, form)
        self._settings = settings
        signals = signal_table(_signals(config), (name,))
        assert signals is not None

        def includes(table: TableId) -> bool:
            return _is(table, signals) or lists.includes(table.schema, table.table)

        database = Database(dialect, name, includes, self._names.admit, 0)
        most = config["errors.max.retries"]
        retries = Retries(
            _TRIES if most < 0 else min(most, _TRIES), config["retriable.restart.connector.wait.ms"] / 1000
        )

        def lost() -> bool:
            database.lose()
            return database.was_connected

        try:
            self._position, eras, written = retries.run(lambda: self._begun(database, signals), lost)
            self.position = position_of(self._position)
            chosen = self._chosen(eras, signals)
            self.tables = tuple(self._shown(era.table) for era in chosen)
            planned = retries.run(lambda: list(self._parts(database.session, chosen)), lost)
        finally:
            database.lose()
        source = TaskSource(dialect, settings, retries, time.time_ns() // 1000)
        self.tasks: tuple[Task, ...] = tuple(
            HeldTask(source, name, group, written, self._position) for group in planned
        )
        log.info("read of %d tables in %d tasks at %s", len(chosen), len(self.tasks), self.position)

    def _begun(self, database: Database, table: TableId) -> tuple[Position, CaptureHistory, SignalTable]:
        """Return the position, the change tables at it, and the signal table."""
        reached = database.begin()
        guard_number(self._config, sum(not _is(era.table.id, table) for era in reached.eras.latest()))
        era = next((one for one in reached.eras.latest() if _is(one.table.id, table)), None)
        if era is None:
            raise ConfigError(
                f"The signal table {table} of {table.database} has no change table.",
                "Enable capture for it like for any other table: spark.read finds its position by a row in it.",
            )
        deletes = self._config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        signals = SignalTable(table, era, deletes)
        position = signals.mark(database.session, reached.position)
        return position, database.observe(reached)[1], signals

    def _chosen(self, eras: CaptureHistory, signals: TableId) -> list[CapturePeriod]:
        """Return the tables to read, in order. Raises TailraceError for tables that cannot be read at one position."""
        by_name = {str(era.table.id): era for era in eras.at(self._position) if not _is(era.table.id, signals)}
        chosen = [by_name[name] for name in selected(self._config, sorted(by_name))]
        late = [str(era.table.id) for era in chosen if era.capture.start > self._position]
        if late:
            raise PrerequisiteError(f"Changes of {', '.join(late)} are not captured yet.", "Read again in a moment.")
        bare = [str(era.table.id) for era in chosen if not era.table.key or era.capture.is_partial]
        if bare:
            raise PrerequisiteError(
                f"spark.read needs keys, and {', '.join(bare)} has none: changes during the read could not be undone.",
                "Leave it out by table.exclude.list, or give it a primary key. Or read a stream: spark.readStream with "
                "snapshot.mode=initial_only ends after the snapshot.",
            )
        left_out = [f"{era.table.id} ({', '.join(made)})" for era in chosen if (made := self._left_out(era.table))]
        if left_out:
            log.warning(
                "spark.read leaves out computed columns, since change tables have no values of them: %s",
                listed(left_out),
            )
        statements = overrides(self._config, list(by_name))
        if statements:
            raise ConfigError(
                "snapshot.select.statement.overrides is not supported by spark.read: a statement cannot be applied to "
                "the earlier states of rows that change during the read.",
                "Leave it out, and filter the DataFrame.",
            )
        return chosen

    def _shown(self, table: TableSchema) -> TableSchema:
        """Return the table with the columns that events show, and its key."""
        shown = self._settings.shaping.read(carried(self._names.admit(table), copies=True))
        return with_columns(shown, table, table.key)

    def _left_out(self, table: TableSchema) -> list[str]:
        shown = {column.name for column in self._shown(table).columns}
        return [
            column.name
            for column in self._settings.shaping.read(table).columns
            if column.generated and column.name not in shown
        ]

    def _parts(self, session: Session, chosen: Sequence[CapturePeriod]) -> Iterator[tuple[HeldPart, ...]]:
        """Yield the parts of the tables, grouped by task."""
        counts = [session.row_count(era.table.id) for era in chosen]
        size = max(PART_ROWS, -(-sum(counts) // (_TASKS * (os.cpu_count() or 1))))
        group: list[HeldPart] = []
        rows = number = 0
        for era, count in zip(chosen, counts, strict=True):
            shown = self._shown(era.table)
            for bounds in _ranges(session, era.table, size):
                number += 1
                group.append(HeldPart(shown, era, bounds, number))
                rows += min(count, size)
                if rows >= size:
                    yield tuple(group)
                    group, rows = [], 0
        if group:
            yield tuple(group)

    def is_read(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _ranges(session: Session, table: TableSchema, rows: int) -> Iterator[KeyRange]:
    """Yield key ranges of about `rows` rows each; one range if Python cannot compare the table's keys as the database
    does."""
    last: Key | None = None
    while is_ordered(table, table.key):
        end = session.boundary(table, KeyRange(table.key, last), rows)
        if end is None:
            break
        yield KeyRange(table.key, last, end)
        last = end
    yield KeyRange(table.key, last)


def _demand(config: Config, databases: Sequence[str]) -> None:
    """Raise ConfigError for options with which the rows would not be from one position."""
    name = f"spark.read.format('{registry.find(config.connector).format}')"
    if len(databases) > 1:
        raise ConfigError(
            f"{name} reads one database: the positions of two databases have no common order.",
            "Load each database separately.",
        )
    if not _signals(config):
        raise ConfigError(
            f"{name} needs read.signal.data.collection: it finds its position by a row that it writes there.",
            "Name a captured table of three columns, like that of incremental snapshots. Or read a stream: "
            "spark.readStream with snapshot.mode=initial_only ends after the snapshot.",
        )
    if config["snapshot.isolation.mode"] == "read_uncommitted":
        raise ConfigError(
            f"{name} cannot read with snapshot.isolation.mode = read_uncommitted: the log does not contain changes "
            "that are rolled back.",
            "Set another mode.",
        )
    if config.get("data.query.mode") == "function":
        raise ConfigError(
            f"{name} cannot read with data.query.mode = function: it does not tell the order of changes within a "
            "transaction.",
            "Set data.query.mode = direct.",
        )


def _signals(config: Config) -> str | Sequence[str] | None:
    """Return the name of the signal table for reads."""
    found: str | Sequence[str] | None = config["read.signal.data.collection"] or config["signal.data.collection"]
    return found


def _is(one: TableId, other: TableId) -> bool:
    return (one.schema, one.table) == (other.schema, other.table)


def held(config: Config, settings: EventSettings) -> HeldTables:
    """Implements tailrace.connectors.consistent_read.Reading."""
    return HeldTables(config, settings)
