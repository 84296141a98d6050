"""Histories of tables of MySQL or MariaDB with rows: snapshots and windows beside the log, and the same faults.

Checked beside the changes: a window shows what a row is at the end of its batch, a snapshot nothing older than the log
that follows; and all of it together leads to the rows of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from random import Random
from typing import Any

import pymysql

from tailrace.columns.batch import ChangeBatch, Marker
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.snapshot.tasks import Consecutive, SnapshotTask, WindowTask
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events import record_assembly
from tailrace.log.rows import small_tables
from tailrace.log.rows.segment import Segment
from tests.simulation.binlog import BinlogHistory, Faults, Rows
from tests.simulation.mutants import replaced
from tests.simulation.mysql_tables import SIGNAL_COLUMNS, SIGNALS, TableOdds, TablesServer, TablesSession, relayed
from tests.simulation.mysqld import Odds, Session
from tests.simulation.spark import Batch, Row
from tests.simulation.world import Process

CAPTURED = ("a", "b")
"""The captured tables besides the signal table."""


class RowsBinlogHistory(BinlogHistory):
    """A history, drawn from its seed."""

    server: TablesServer
    altering = True
    signalled = 0.6
    """Share of histories that have signals."""
    blocking = 0.2
    """Share of blocking snapshots among those that signals ask for."""
    modes = ("initial", "initial", "no_data")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.state: dict[str, dict[int, int]] = {name: {} for name in CAPTURED}
        self.sent = 0
        self.turns = 300
        if self.rng.random() < 0.5:
            self.server.odds.alters = 0.0

    def _server(self, odds: Odds, has_names: bool) -> TablesServer:
        rng = self.rng
        more = TableOdds(
            **vars(odds),
            lags=rng.choice([0.0, 0.3]),
            unanswered=rng.choice([0.0, 0.0, 0.01]),
            stops=rng.choice([0.0, 0.0, 0.2]),
        )
        return TablesServer(
            rng, more, lambda: self.world.now, is_mariadb=self.is_mariadb, has_gtids=self.has_gtids,
            has_names=has_names, rights=rng.choice([2, 2, 1, 0]),
        )  # fmt: skip

    def _options(self) -> dict[str, str]:
        options, rng = super()._options(), self.rng
        self.has_signals = rng.random() < self.signalled
        # tasks on other hosts do not reach the planner's sessions
        self.is_remote = rng.random() < 0.1
        mode = rng.choice(self.modes)
        self.takes_snapshot = mode == "initial"
        options |= {
            "snapshot.mode": mode,
            "snapshot.include.collection.list": ",".join(f"d[.]{name}" for name in CAPTURED),
            "snapshot.locking.mode": rng.choice(["minimal", "minimal", "none", "extended"]),
        }
        if self.has_signals:
            options |= {
                "signal.data.collection": f"d.{SIGNALS}",
                "incremental.snapshot.chunk.size": rng.choice(["1", "2", "8"]),
                "incremental.snapshot.window.chunks": rng.choice(["1", "2"]),
                "incremental.snapshot.watermarking.strategy": rng.choice(["insert_insert", "insert_delete"]),
                "read.only": rng.choice(["false", "true"]) if self.has_gtids else "false",
            }
            if "max.queue.size.in.bytes" in options:
                # a window needs room for its watermarks, and for the changes between them
                options["max.queue.size.in.bytes"] = "20000"
        return options

    @contextmanager
    def _all_around(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(super().around())
            stack.enter_context(relayed(self._alone, lambda: self.is_remote))
            for owner, name, value in (
                (record_assembly, "to_rows", lambda batch, settings, form: _reads(batch)),
                (
                    small_tables,
                    "records_of_reads",
                    lambda batches, settings, form: chain.from_iterable(map(_reads, batches)),
                ),
            ):
                stack.enter_context(replaced(owner, name, value))
            yield

    def around(self) -> Any:
        return self._all_around()

    # --- actions ---

    def act(self) -> None:
        if self.has_signals and self.checkpoint.commits and self.server.lock is None and self.rng.random() < 0.04:
            self._signal()
        super().act()

    def _signal(self) -> None:
        """Send a signal that executes, pauses, resumes or stops a snapshot."""
        rng = self.rng
        names = [f"d.{name}" for name in CAPTURED if rng.random() < 0.6] or [f"d.{CAPTURED[0]}"]
        kind = rng.choice(["execute"] * 5 + ["pause", "resume", "stop"])
        is_blocking = kind == "execute" and rng.random() < self.blocking
        fields = {"type": "blocking"} if is_blocking else {}
        self._send(f"{kind}-snapshot", json.dumps({"data-collections": names, **fields}))

    def _send(self, kind: str, data: str) -> None:
        self.sent += 1
        self.server.put(f"s{self.sent}", kind, data)

    def calm(self) -> None:
        odds = self.server.odds
        odds.unanswered = odds.stops = odds.lags = 0.0
        self.server.settle()
        if self.server.lock is not None:
            # writers would wait for it
            self.end()
        super().calm()
        if self.has_signals:
            self._send("resume-snapshot", "{}")

    def ended(self, process: Process) -> None:
        for session in [*self.server.reading, *([] if self.server.lock is None else [self.server.lock])]:
            if session.process is process:
                session.leave()

    def _session(self, process: Process) -> Session:
        return TablesSession(self.server, process)

    def _alone(self, config: Any, **_: Any) -> Session:
        """Return the session of a task."""
        process = self.process
        assert process is not None
        process.step()
        if self.rng.random() < self.server.odds.fails:
            raise ConnectionFailed("The server cannot be reached.", "Start again.")
        try:
            return TablesSession(self.server, process)
        except pymysql.err.OperationalError:
            raise ConnectionFailed("The server has ended the session at its start.", "Start again.") from None

    def meaning(self) -> Reads:
        return Reads(self.server, self._tried, self.rng)

    def _tried(self, task: Any) -> list[Row]:
        """Return the rows of a task; a failed task may be tried again."""
        assert self.process is not None
        self.process.step()
        try:
            return list(task.read())
        except ConnectionFailed:
            if self.rng.random() < 0.5:
                raise
        return list(task.read())

    def is_expected(self, failure: BaseException) -> bool:
        are_altered = isinstance(failure, PrerequisiteError) and "Tables were altered at each" in failure.message
        return super().is_expected(failure) or are_altered

    # --- checks ---

    def _row_of(self, name: str, row: Row) -> Row:
        if name != SIGNALS:
            return row
        op, number, _, columns = row
        id_, kind, _ = self.server.signals[number]
        return op, id_, kind, columns

    def _logged(self, batch: Batch) -> Batch:
        return _of_log(batch)

    def check(self, batch: int) -> None:
        super().check(batch)
        offset = BinlogOffset.from_json(json.loads(self.checkpoint.offsets[batch]))
        upto = self._begun(offset)
        for topic, rows in self.checkpoint.sink[batch].items():
            name = topic.removeprefix("d.")
            if name in CAPTURED:
                self._apply(name, rows, upto)

    def _apply(self, name: str, rows: Sequence[Row], upto: int) -> None:
        """Apply the rows of a batch that ends behind `upto` transactions, and check those of snapshots and windows."""
        server, state = self.server, self.state[name]
        changed = {id_ for op, id_, *_ in rows if op in "cud"}
        for op, id_, number, *_ in rows:
            if op == "w":
                assert id_ not in changed, f"{name}: {id_} of a window has a change in its batch"
                is_ = server.number(name, id_, upto)
                assert is_ == number, f"{name}: a window shows {number} of {id_}, which is {is_}"
            elif op == "s":
                known = server.numbers_since(name, id_, upto)
                assert number in known, f"{name}: a snapshot shows {number} of {id_}, which was {known}"
            if op == "d":
                state.pop(id_, None)
            else:
                state[id_] = number

    def is_delivered(self) -> bool:
        if self.is_lost:
            return True
        committed = self.checkpoint.committed()
        if committed is None:
            return False
        offset = BinlogOffset.from_json(committed)
        progress = offset.progress
        if offset.snapshot is not None and not offset.snapshot.is_complete:
            return False
        if progress.state is not None or progress.before is not None or progress.blocking or progress.held:
            return False
        if not super().is_delivered():
            return False
        self._check_state()
        return True

    def _check_state(self) -> None:
        """Check that the events lead to the rows of the tables: of whole tables, or as far as they are known."""
        asked = self._asked()
        for name in CAPTURED:
            rows, known = self.server.rows_at(name, len(self.server.history)), self.state[name]
            is_whole = self.takes_snapshot or name in asked
            wrong = {id_: number for id_, number in known.items() if rows.get(id_) != number}
            assert not wrong, f"{name}: {wrong} are {[rows.get(id_) for id_ in wrong]}"
            missing = rows.keys() - known.keys()
            assert not (is_whole and missing), f"{name}: {missing} are missing"

    def _asked(self) -> set[str]:
        """Return the tables for which a signal has asked that no later signal has stopped."""
        found: set[str] = set()
        for one in self.server.history[self.begins or 0 :]:
            for name, op, number, *_ in one.changes:
                if name != SIGNALS or op != "c":
                    continue
                _, kind, data = self.server.signals[number]
                if kind in ("execute-snapshot", "stop-snapshot"):
                    names = {entry.split(".")[1] for entry in json.loads(str(data))["data-collections"]}
                    found = found | names if kind == "execute-snapshot" else found - names
        return found


class Reads(Rows):
    """Interprets offsets and tasks, also of snapshots and windows: `tried` runs a task that reads rows. A row that a
    snapshot (s) or a window (w) has read is as one of a change: kind, id, number and names."""

    def __init__(self, server: TablesServer, tried: Callable[[Any], list[Row]], rng: Random) -> None:
        self._server, self._tried, self._rng = server, tried, rng

    def rows(self, tasks: Sequence[Any]) -> Batch:
        reads = [one for one in tasks if isinstance(one, SnapshotTask | WindowTask | Consecutive)]
        found = super().rows([one for one in tasks if one not in reads])
        # tasks run beside each other
        self._rng.shuffle(reads)
        for task in reads:
            for table, *row in self._tried(task):
                found.setdefault(f"d.{table}", []).append(tuple(row))
        return found

    def row(self, segment: Segment[Any, Any], place: int) -> Row:
        if segment.table.id.table != SIGNALS:
            return super().row(segment, place)
        message = segment.data[segment.offsets[place] : segment.offsets[place + 1]].tobytes()
        op = chr(segment.by_row.images[segment.by_row.image[place]].op)
        assert tuple(column.name for column in segment.table.columns) == SIGNAL_COLUMNS
        first = 2 + message[1]
        return op, message[2:first].decode(), message[first + 1 : first + 1 + message[first]].decode(), SIGNAL_COLUMNS

    def again(self, kept: Batch, rows: Batch) -> Batch:
        assert _of_log(kept) == _of_log(rows), "a batch that is read again is another one"
        # the sink may have got the first reading or the second
        return self._rng.choice([kept, rows])


def _of_log(batch: Batch) -> Batch:
    """Return the part of a batch that was read from the log."""
    found = {topic: [row for row in rows if row[0] not in ("s", "w")] for topic, rows in batch.items()}
    return {topic: rows for topic, rows in found.items() if rows}


def _reads(batch: ChangeBatch) -> Iterator[Row]:
    """Yield the rows of a batch that a snapshot or a window has read, each after the name of its table."""
    assert batch.after is not None
    assert batch.marker is not None
    names = tuple(column.name for column in batch.table.columns)
    columns = [column.to_pylist() for column in batch.after.columns]
    for place in range(len(batch)):
        values = {name: int(column[place]) for name, column in zip(names, columns, strict=True)}
        id_, number = values.pop("id"), values.pop("n")
        wrong = {name: value for name, value in values.items() if name != f"x{value}"}
        assert not wrong, f"columns have values of others: {wrong}"
        kind = "w" if batch.marker[place] == Marker.INCREMENTAL else "s"
        yield batch.table.id.table, kind, id_, number, names


class FailoverRowsBinlogHistory(RowsBinlogHistory):
    """A history without other faults, whose server is replaced once, between any two statements of its sessions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        odds = self.server.odds
        odds.act, odds.alters = 0.5, 0.0
        odds.fails = odds.drops = odds.prepares = odds.rotates = odds.unanswered = odds.stops = 0.0
        self.faults = Faults(kill=0.0, fail_over=0.0, purge=0.0, disk=0.0)
        self.server.settles_in_part = self.server.sends_heartbeats = True
        if self.has_gtids:
            self.server.fails_over_at = self.rng.randint(1, 300)


class LaggingRowsBinlogHistory(RowsBinlogHistory):
    """A history without faults, whose transactions are visible long after they are in the log, with many signals."""

    signalled, blocking = 1.0, 0.4
    # many batches end within a transaction
    limits = ((2, 1 << 30), (3, 1 << 30), (5, 1 << 30))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        odds = self.server.odds
        odds.act, odds.lags, odds.alters, self.server.settles = 0.3, 0.9, 0.0, 0.02
        self.server.settles_in_part = self.server.sends_heartbeats = True
        odds.fails = odds.drops = odds.prepares = odds.unanswered = odds.stops = 0.0
        self.faults = Faults(kill=0.0, fail_over=0.0, purge=0.0, disk=0.0)
        self.server.rights, self.server.lag = 2, self.rng.choice([0.05, 3.0, 3.0])

    def _options(self) -> dict[str, str]:
        options = super()._options() | {"snapshot.locking.mode": "minimal"}
        return options | {"read.only": "true"} if self.has_gtids else options
