"""Histories of tables with rows and alterations: checks the table that each change shows, and the resulting rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, pairwise
from typing import Any

from tailrace.columns.batch import ChangeBatch
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.protocol import pgoutput
from tailrace.connectors.postgres.snapshot import session, tasks
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, ReadTask, Rehearsal, SnapshotTask
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events import record_assembly
from tailrace.log.rows import small_tables
from tests.simulation.database import NAMES, SIGNALS, Database
from tests.simulation.history import History, Segments
from tests.simulation.log import BEGIN_LSN, UNCHANGED, Reading, Transaction
from tests.simulation.mutants import replaced
from tests.simulation.server import SLOT, Odds
from tests.simulation.sessions import Kept
from tests.simulation.spark import Batch, Row
from tests.simulation.tables import KEY, Column, RowChange, Shape, Version
from tests.simulation.world import Process

CAPTURED = NAMES[:-1]
UNKNOWN = object()
"""A value in a row that no event has shown."""
CHUNK_PAGES = 2
"""Pages of a chunk of a snapshot."""


class Reads(Segments):
    """Interprets offsets and tasks, also of snapshots and windows: `tried` runs a task that reads rows.

    In a row, the new row and the old key of a change take the place of its number. After the ordinal come the table,
    and the facts about its columns.
    """

    def __init__(self, server: Database, tried: Callable[[SnapshotTask | ReadTask], list[Row]]) -> None:
        self._server = server
        self._tried = tried

    def rows(self, tasks: Sequence[Any]) -> Batch:
        logged: list[Any] = []
        reads: Batch = {}
        for task in _each(tasks):
            if isinstance(task, SnapshotTask):
                reads.setdefault(task.table.id.table, []).extend(self._tried(task))
            elif isinstance(task, ReadTask):
                for row in self._tried(task):
                    reads.setdefault(self._topic(row), []).append(("w", *row[1:]))
            else:
                logged.append(task)
        found = super().rows(logged)
        for topic, rows in reads.items():
            found[topic] = found.get(topic, []) + rows
        return found

    def again(self, kept: Batch, rows: Batch) -> Batch:
        super().again(_of_log(kept), _of_log(rows))
        return rows

    def row(self, message: Any, table: TableSchema, commit_lsn: int, ordinal: int) -> Row:
        assert isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete | pgoutput.Truncate)
        new = old = None
        if isinstance(message, pgoutput.Insert | pgoutput.Update):
            new = tuple(_text(value) for value in message.new)
        if isinstance(message, pgoutput.Update | pgoutput.Delete) and message.old is not None:
            key = next(index for index, column in enumerate(table.columns) if column.name in table.key)
            old = _text(message.old[key])
        kind = type(message).__name__[0]
        return kind, (new or (), old), commit_lsn, ordinal, _said(table), _facts(table)

    def _topic(self, row: Row) -> str:
        return next(shape.name for _, shape in self._server.tables.shapes[row[4][0]] if shape is not None)


class RowsHistory(History):
    """A history, drawn from its seed."""

    server: Database
    signalled = 0.6
    """Share of histories that have signals."""
    blocking = 0.2
    """Share of blocking snapshots among those that signals ask for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        server = self.server
        self.seen = self.rng.choice([0.1, 0.02])
        self.faults.kill *= 2
        if self.rng.random() < (0.8 if self.has_signals else 0.5):
            # the query will create the slot
            del server.slots[SLOT]
        for _ in range(self.rng.choice([0, 20, 80])):
            server.act()
        self.state = State()
        # the LSN at which the query's log begins, and the transactions and tables that its snapshot has shown
        self.begins: int | None = None
        self.shown: frozenset[tuple[int, int]] = frozenset()
        self.shown_tables: frozenset[str] | None = None
        self.has_snapshot = False
        # the tables whose columns were known when the log began
        self.known: set[int] = set()
        self.signals = 0

    def _server(self, odds: Odds) -> Database:
        return Database(self.rng, odds, lambda: self.checkpoint.forgettable, self.rng.choice([0.0, 0.05, 0.15]))

    def _options(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "event.order.segments": rng.choice(["1", "2"]),
            "snapshot.mode": rng.choice(["initial", "initial", "no_data"]),
        }
        self.has_signals = rng.random() < self.signalled
        if self.has_signals:
            found |= {
                "snapshot.mode": rng.choice(["initial", "no_data", "no_data"]),
                "signal.data.collection": f"public.{SIGNALS}",
                "incremental.snapshot.chunk.size": rng.choice(["1", "3", "8"]),
                "incremental.snapshot.window.chunks": rng.choice(["1", "2", "3"]),
                "incremental.snapshot.watermarking.strategy": rng.choice(["insert_insert", "insert_delete"]),
                "read.only": rng.choice(["false", "false", "true"]),
            }
        options = super()._options() | found
        if self.has_signals and "max.queue.size.in.bytes" in options:
            # a window needs room for its watermarks, and for the changes between them
            options["max.queue.size.in.bytes"] = "20000"
        return options

    @contextmanager
    def around(self) -> Iterator[None]:
        with super().around(), small_chunks():
            yield

    def planner(self, process: Process) -> PostgresPlanner:
        Kept.process, Kept.server = process, self.server
        return super().planner(process)

    def meaning(self) -> Reads:
        return Reads(self.server, self._tried)

    def run(self) -> None:
        super().run()
        if not (self.is_lost or self.has_diverged or self.pasts):
            self._check_state()

    # --- actions ---

    def act(self) -> None:
        if self.has_signals and self.checkpoint.commits and self.rng.random() < 0.06:
            self._signal()
        if self.server.sessions and self.rng.random() < self.server.odds.fails:
            # also an idle session, whose exported snapshot is lost
            self.rng.choice(self.server.sessions).lose()
            self.server.notice()
        super().act()

    def _signal(self) -> None:
        """Send a signal that executes, pauses, resumes or stops a snapshot."""
        rng = self.rng
        names = [f"public.{name}" for name in CAPTURED if rng.random() < 0.6] or [f"public.{CAPTURED[0]}"]
        kind = rng.choice(["execute"] * 5 + ["pause", "resume", "stop"])
        is_blocking = kind == "execute" and rng.random() < self.blocking
        fields = {"type": "blocking"} if is_blocking else {}
        self._send(f"{kind}-snapshot", json.dumps({"data-collections": names, **fields}))

    def _send(self, kind: str, data: str) -> None:
        self.signals += 1
        self.server.put(SIGNALS, (f"s{self.signals}", kind, data))

    def calm(self) -> None:
        super().calm()
        if self.has_signals and not self.is_lost:
            self._send("resume-snapshot", "{}")
            self.server.unseen.clear()

    def is_expected(self, failure: BaseException) -> bool:
        are_altered = isinstance(failure, PrerequisiteError) and "Tables were altered at each" in failure.message
        return super().is_expected(failure) or are_altered

    # --- reading ---

    def _tried(self, task: SnapshotTask | ReadTask) -> list[Row]:
        """Return the rows of a task; a failed task may be tried again."""
        Kept.process.step()
        try:
            return list(task.read())
        except ConnectionFailed:
            if self.rng.random() < 0.5:
                raise
        return list(task.read())

    # --- checks ---

    def _expected(self) -> dict[str, list[Row]]:
        if self.begins is None:
            if not self.checkpoint.commits:
                return defaultdict(list)
            first = PostgresOffset.from_json(json.loads(self.checkpoint.offsets[0]))
            self.begins, self.has_snapshot = int(first.log.safe_lsn), first.snapshot is not None
            if first.visible is None:
                self.known = {oid for oid, _ in first.schemas.tables}
            else:
                of = first.visible
                text = f"{of.xmin}:{of.xmax}:{','.join(map(str, sorted(of.in_progress)))}"
                self.shown, self.shown_tables = self.server.shown[text], of.tables
        return super()._expected()

    def _rows(self, one: Transaction) -> Iterator[tuple[str, Row]]:
        assert self.begins is not None
        if one.end_lsn <= self.begins:
            return
        is_shown, tables = (one.xid, one.commit_lsn) in self.shown, self.shown_tables
        captured = {*CAPTURED, SIGNALS} if self.has_signals else CAPTURED
        for ordinal, (_, change, _) in enumerate(one.changes):
            if change.kind == "L":
                yield "messages", ("L", change.number, one.commit_lsn, ordinal)
                continue
            assert isinstance(change, RowChange)
            for shape in change.shapes:
                is_left_out = is_shown and (tables is None or f"public.{shape.name}" in tables)
                if shape.name in captured and not is_left_out:
                    yield shape.name, (change.kind, _content(change), one.commit_lsn, ordinal, _table(shape))

    def _logged(self, batch: Batch) -> Batch:
        return {topic: [row[:5] for row in rows] for topic, rows in _of_log(batch).items()}

    def is_delivered(self) -> bool:
        return super().is_delivered() and (self.is_lost or self._has_begun())

    def _has_begun(self) -> bool:
        if not self.checkpoint.commits:
            return False
        last = PostgresOffset.from_json(json.loads(self.checkpoint.offsets[self.checkpoint.commits - 1]))
        progress = last.progress
        is_read = last.snapshot is None or last.snapshot.is_complete
        return is_read and progress.state is None and progress.before is None and not progress.blocking

    def check(self, batch: int) -> None:
        super().check(batch)
        if self.has_diverged:
            return
        for rows in self.checkpoint.sink[batch].values():
            self._check_window(rows)
            for row in rows:
                if row[0] != "L":
                    self._check_facts(row)
                    if row[0] == "w" and not self.pasts:
                        self.state.check(row, self.server, self._is_whole(row[4][0]))
                    self.state.apply(row, self.server)

    def _is_whole(self, oid: int) -> bool:
        """Return True if the table's rows must all be delivered: by a snapshot, or by the log from its creation on."""
        assert self.begins is not None
        return self.has_snapshot or self.begins == BEGIN_LSN or self.server.tables.born[oid] > self.begins

    @staticmethod
    def _check_window(rows: list[Row]) -> None:
        """Check that no row of a window has the key of a change in its batch: their order would be unknown."""
        changed: dict[int, set[Any]] = {}
        for kind, (new, old), _, _, (oid, columns, key), *_ in (row for row in rows if row[0] in "IUDT"):
            keys = changed.setdefault(oid, set())
            keys.add(old)
            if kind in "IU":
                keys.add(new[[name for name, _ in columns].index(key[0])])
            elif kind == "T":
                keys.add("all")
        for row in rows:
            if row[0] == "w":
                oid, columns, key = row[4]
                text = row[1][0][[name for name, _ in columns].index(key[0])]
                assert not {text, "all"} & changed.get(oid, set()), f"{row} beside changes of {changed[oid]}"

    def _check_facts(self, row: Row) -> None:
        """Check nullability and defaults of columns. No message carries them, so those of a column that was renamed or
        dropped meanwhile may be unknown."""
        (oid, columns, _), facts = row[4], row[5]
        present = self.server.tables.present(oid)
        for (name, _), (nullable, default) in zip(columns, facts, strict=True):
            column = None if present is None else present.column(name)
            if column is not None and self._is_known(oid) and not self._was_another(oid, column):
                assert default == column.default, f"{row}: the default of {name} is {default}, and not {column}"
                if not self._was_altered(oid, column):
                    assert nullable == column.nullable, f"{row}: {name} is nullable: {nullable}, unlike {column}"
        if present is not None and self._is_known(oid) and self._is_in_order(oid):
            self._check_owners(row)

    def _check_owners(self, row: Row) -> None:
        """Check that no column shows the facts of another column, even of a dropped one: a column with unknown facts
        must be nullable and without a default."""
        (oid, columns, _), facts = row[4], row[5]
        numbers = self.server.column_numbers(oid)
        shapes = [shape for _, shape in self.server.tables.shapes[oid] if shape is not None]
        for (name, _), (nullable, default) in zip(columns, facts, strict=True):
            own = [one for one in (shape.numbered(numbers[name]) for shape in shapes) if one is not None]
            assert default in {None, *(one.default for one in own)}, f"{row}: {name} has the default of another column"
            assert nullable or not all(one.nullable for one in own), f"{row}: {name} is as nullable as another column"

    def _is_in_order(self, oid: int) -> bool:
        """Return True if the table was altered in the order of transaction ids: a transaction that takes its id early
        and alters late may be taken for an earlier one."""
        return all(before <= after for (before, _), (after, _) in pairwise(self.server.tables.shapes[oid]))

    def _was_another(self, oid: int, column: Column) -> bool:
        """Return True if another column, since dropped or renamed, had the column's name before."""
        shapes = (shape for _, shape in self.server.tables.shapes[oid] if shape is not None)
        return any(one.name == column.name and one.number != column.number for shape in shapes for one in shape.columns)

    def _was_altered(self, oid: int, column: Column) -> bool:
        """Return True if the column's nullability was altered."""
        shapes = (shape for _, shape in self.server.tables.shapes[oid] if shape is not None)
        before = (shape.numbered(column.number) for shape in shapes)
        return any(one is not None and one.nullable != column.nullable for one in before)

    def _is_known(self, oid: int) -> bool:
        """Return True if columns can be identified: the table was known from the start, or no column was dropped."""
        shapes = [shape for _, shape in self.server.tables.shapes[oid] if shape is not None]
        names = [{column.name for column in shape.columns} for shape in shapes]
        return oid in self.known or all(before <= after for before, after in pairwise(names))

    def _check_state(self) -> None:
        """Check that the delivered events lead to the rows of the tables."""
        snapshot, asked = self.server.snapshot(), self._asked()
        for shape in self.server.tables.all_shown(snapshot):
            if shape.name in CAPTURED and (self._is_whole(shape.oid) or shape.name in asked):
                rows = {row.values[KEY]: row for row in self.server.tables.rows(shape.heap, snapshot)}
                self.state.compare(shape, rows, self._is_whole(shape.oid))

    def _asked(self) -> set[str]:
        """Return the tables for which a signal has asked for a snapshot that no later signal has stopped."""
        found: set[str] = set()
        for one in Reading().transactions(self.server.records):
            for _, change, _ in one.changes:
                if not isinstance(change, RowChange) or change.kind != "I" or change.shapes[0].name != SIGNALS:
                    continue
                _, kind, data = change.row()
                if one.end_lsn > (self.begins or 0) and kind in ("execute-snapshot", "stop-snapshot"):
                    names = {name.split(".")[1] for name in json.loads(str(data))["data-collections"]}
                    found = found | names if kind == "execute-snapshot" else found - names
        return found


class State:
    """The rows of each table according to the events so far: values by column number."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[Any, dict[int, Any]]] = {}
        # LSN up to which the log may repeat changes of a row that a snapshot has shown, by table and key
        self._repeated: dict[tuple[int, Any], int] = {}
        # the same, but kept when the log inserts the key again
        self._read: dict[tuple[int, Any], int] = {}

    def apply(self, row: Row, server: Database) -> None:
        kind, (new, old), commit_lsn, _, (oid, columns, _), _ = row
        rows = self._rows.setdefault(oid, {})
        if kind == "T":
            rows.clear()
            return
        if kind == "D":
            rows.pop(old, None)
            return
        numbers = server.column_numbers(oid)
        values = {numbers[name]: value for (name, _), value in zip(columns, new, strict=True)}
        key = values[KEY]
        # a row may have been read with its new key before the log has the change of the key
        other = {} if old is None else rows.pop(old, {})
        if commit_lsn < self._repeated.get((oid, old), 0):
            # and another row with the old key may have been read, which is not the row of this change
            other = dict.fromkeys(other, UNKNOWN)
        if kind == "r":
            self._repeated[oid, key] = self._read[oid, key] = server.end
        elif kind == "I":
            self._repeated.pop((oid, key), None)
        before, missing = rows.get(key, other), UNCHANGED
        if key not in rows and old is not None and commit_lsn < self._read.get((oid, key), 0):
            # The row was read with this key, and was removed when the log deleted the earlier row with the key. It was
            # not read with its old key: a later snapshot showed it, in its later state.
            missing = UNKNOWN
        rows[key] = told = {}
        for number, value in values.items():
            known = before.get(number, UNCHANGED) if value is UNCHANGED else value
            told[number] = missing if known is UNCHANGED else known

    def check(self, row: Row, server: Database, is_whole: bool) -> None:
        """Check that a row read by a window agrees with the events before it."""
        _, (new, _), _, _, (oid, columns, _), _ = row
        rows, numbers = self._rows.get(oid, {}), server.column_numbers(oid)
        values = {numbers[name]: value for (name, _), value in zip(columns, new, strict=True)}
        before = rows.get(values[KEY])
        if before is None:
            assert not is_whole, f"{row} is not there any more"
            return
        for number, value in values.items():
            if number in before and before[number] not in (UNCHANGED, UNKNOWN):
                assert before[number] == value, f"{row} is older than {before}"

    def compare(self, shape: Shape, wanted: dict[Any, Version], is_whole: bool) -> None:
        """Check that the table has these rows. If rows come only from windows, out-of-line (TOAST) values of rows that
        changed during their window are unknown: the change replaced the window's row."""
        found = self._rows.get(shape.oid, {})
        gone, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
        assert not (gone | more), f"{shape.name}: the rows {gone} are missing, the rows {more} are not there"
        for key, version in wanted.items():
            for column in shape.columns:
                # a column added later has its default in earlier rows
                value = version.values.get(column.number, column.default)
                told = found[key].get(column.number, column.default)
                is_known = told is not UNKNOWN and (is_whole or told is not UNCHANGED)
                assert told == value or not is_known, f"{shape.name}: {column.name} of {key} is {told}, and not {value}"


@contextmanager
def small_chunks() -> Iterator[None]:
    """Patch chunks to be small, and tasks to return plain rows from sessions of the simulated server."""
    with ExitStack() as stack:
        for owner, name, value in (
            (session, "CHUNK_PAGES", CHUNK_PAGES),
            (session, "LEAST_CHUNK_PAGES", 1),
            (tasks, "KeptConnection", Kept),
            (record_assembly, "to_rows", lambda batch, settings, form: _reads(batch)),
            (
                small_tables,
                "records_of_reads",
                lambda batches, settings, form: chain.from_iterable(map(_reads, batches)),
            ),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield


def _reads(batch: ChangeBatch) -> Iterator[Row]:
    """Yield the rows of a batch that a snapshot or a window has read."""
    assert batch.after is not None
    columns = [column.to_pylist() for column in batch.after.columns]
    for place in range(len(batch)):
        values = tuple(None if column[place] is None else column[place].decode() for column in columns)
        yield "r", (values, None), 0, int(batch.ordinal[place]), _said(batch.table), _facts(batch.table)


def _each(tasks: Iterable[Any]) -> Iterator[Any]:
    """Yield the tasks, with consecutive ones of one worker unpacked, and without rehearsals."""
    for task in tasks:
        if isinstance(task, Consecutive):
            yield from _each(task.tasks)
        elif not isinstance(task, Rehearsal):
            yield task


def _of_log(batch: Batch) -> Batch:
    """Return the part of a batch that was read from the log."""
    found = {topic: [row for row in rows if row[0] not in "rw"] for topic, rows in batch.items()}
    return {topic: rows for topic, rows in found.items() if rows}


def _table(shape: Shape) -> tuple[Any, ...]:
    """Return the table as an event must show it: oid, columns, key."""
    columns = tuple((column.name, column.type) for column in shape.columns)
    return shape.oid, columns, tuple(column.name for column in shape.columns if column.number == KEY)


def _content(change: RowChange) -> tuple[Any, ...]:
    """Return the new row and the old key."""
    if change.kind == "T":
        return (), None
    return () if change.kind == "D" else change.row(), change.old


def _said(table: TableSchema) -> tuple[Any, ...]:
    """Return the table as an event shows it, in the form of `_table`."""
    return table.oid, tuple((column.name, column.type_oid) for column in table.columns), table.key


def _facts(table: TableSchema) -> tuple[tuple[bool, str | None], ...]:
    return tuple((column.nullable, column.default) for column in table.columns)


def _text(value: Any) -> Any:
    if value is pgoutput.UNAVAILABLE:
        return UNCHANGED
    return None if value is None else bytes(value).decode()
