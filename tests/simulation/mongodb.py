"""Histories of a query over a replica set: writers, elections, an oplog that loses entries, and random faults.

Checked: each topic gets the changes that a majority has, in order, once; with the documents that snapshots and windows
read, the events lead to the documents of the collections; the position is lost only if the server has forgotten needed
entries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from bson import decode

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.log import feed
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.planner import Environment, MongoPlanner
from tailrace.connectors.mongodb.records import partition, records
from tailrace.connectors.mongodb.records.segment import OPLOG, READ, Segment
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.connectors.mongodb.snapshot.chunks import SnapshotTask
from tailrace.errors import ConnectionFailed, PositionLost, SpoolFailed
from tailrace.log.contracts import Offset
from tailrace.log.control_tasks import BoundaryTask
from tests.simulation.course import TURNS, Course, configured
from tests.simulation.disk import Disk
from tests.simulation.mongo_client import Client
from tests.simulation.mongod import CAPTURED, SIGNALS, Odds, Server
from tests.simulation.mutants import replaced
from tests.simulation.oplog import LETTERS, Namespace, Oplog
from tests.simulation.spark import Batch, Checkpoint, Row
from tests.simulation.world import Process

_LETTERS = {name: letter for letter, name in LETTERS.items()}
TRANSACTIONS = "transactions"
"""The topic of transaction markers."""
IDLE_SECONDS = 10
"""Seconds after which an idle primary writes an entry by itself."""


@dataclass
class Faults:
    """The faults of a history, as probabilities."""

    kill: float
    elect: float
    drop: float
    signal: float
    forget: float
    ahead: float
    disk: float

    @classmethod
    def drawn(cls, rng: Random) -> Faults:
        return cls(
            kill=rng.choice([0.0, 0.01, 0.04]),
            elect=rng.choice([0.0, 0.0, 0.01, 0.04]),
            drop=rng.choice([0.0, 0.0, 0.0, 0.05]),
            signal=rng.choice([0.03, 0.1]),
            forget=rng.choice([0.0, 0.1]),
            ahead=rng.choice([0.0, 0.0, 0.02]),
            disk=rng.choice([0.0, 0.0, 0.2, 0.6]),
        )


class MongoHistory(Course[Checkpoint]):
    """A history, drawn from its seed."""

    expected = (ConnectionFailed, SpoolFailed)
    persistence = 0.4
    oplogs = 0.4
    """Share of histories that read the oplog."""
    signalled = 0.5
    """Share of the other histories that have signals."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Checkpoint())
        rng = self.rng
        self.faults = Faults.drawn(rng)
        odds = Odds(
            fails=rng.choice([0.0, 0.002, 0.02]),
            dies=rng.choice([0.0, 0.0, 0.05]),
            act=rng.choice([0.2, 0.5, 0.9]),
            replicates=rng.choice([0.1, 0.6, 1.0]),
            prepares=rng.choice([0.0, 0.5]),
        )
        self.interruption = rng.choice([0.0, 0.05, 0.2])
        self.server = Server(rng, odds, lambda: self.world.now)
        self.reads_oplog = rng.random() < self.oplogs
        self.target: Namespace = (
            ("", "") if self.reads_oplog else rng.choice([("", ""), ("", ""), ("d", ""), ("d", "a")])
        )
        self.has_signals = not self.reads_oplog and not self.target[1] and rng.random() < self.signalled
        self.takes_snapshot = rng.random() < 0.5
        self.config, self.settings = configured("mongodb", self._options())
        self.begins: tuple[int, int] | None = None
        self.state: dict[Namespace, dict[int | str, int]] = {name: {} for name in CAPTURED}
        self.asked: dict[Namespace, set[int | str]] = {}
        """Documents that signals have asked for, by collection, without those delivered since."""
        # often only one signal: a lost window shows only if no later window reads the same documents
        self.signals = rng.choice([1, 1, 3, 10]) if self.has_signals else 0
        self.turns = 300 if self.has_signals else TURNS
        self._known: tuple[int, dict[Namespace, list[Row]]] = 0, {}
        for _ in range(rng.choice([0, 5, 30])):
            self.server.act()
        self._patches = rng.choice([1 << 20, 300]), rng.choice([4096, 2]), rng.choice([1, 2, 5])
        # limits of the backlog in memory and on disk, in bytes, without options for them
        self._limits = rng.choice([(1 << 27, 1 << 29), (1, 1 << 29), (300, 3000)])

    def _options(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "mongodb.hosts": "rs/h:1", "poll.interval.ms": "100", "event.order.segments": rng.choice(["1", "3"]),
            "collection.exclude.list": "d.left", "retriable.restart.connector.wait.ms": rng.choice(["200", "10000"]),
            "errors.max.retries": rng.choice(["-1", "-1", "3"]),
            "cursor.max.await.time.ms": rng.choice(["0", "50", "500"]),
        }  # fmt: skip
        if rng.random() < 0.5:
            found["max.queue.size.in.bytes"] = str(rng.choice([1, 300, 3000]))
        if rng.random() < 0.2:
            found["provide.transaction.metadata"] = "true"
        if self.reads_oplog:
            return found | {"mongodb.name": "s", "snapshot.mode": "initial" if self.takes_snapshot else "never"}
        mode = rng.choice(["change_streams", "change_streams_update_full"])
        found |= {"topic.prefix": "s", "snapshot.mode": "initial" if self.takes_snapshot else "no_data",
                  "capture.mode": mode}  # fmt: skip
        if self.target[0]:
            found["capture.scope"] = "collection" if self.target[1] else "database"
            found["capture.target"] = ".".join(filter(None, self.target))
        if rng.random() < 0.3:
            found["cursor.oversize.handling.mode"] = "split"
        if self.has_signals:
            found |= {
                "signal.data.collection": ".".join(SIGNALS), "read.only": rng.choice(["false", "false", "true"]),
                "incremental.snapshot.chunk.size": rng.choice(["1", "3", "100"]),
                "incremental.snapshot.window.chunks": rng.choice(["1", "2"]),
                "incremental.snapshot.watermarking.strategy": rng.choice(["insert_insert", "insert_delete"]),
            }  # fmt: skip
        return found

    def around(self) -> ExitStack:
        """Patch limits and sizes to be small, and tasks to return their segments."""
        stack = ExitStack()
        backlog, small, chunk = self._patches
        memory, disk = self._limits
        stack.enter_context(Disk(self.rng, lambda: self.faults.disk))
        for owner, name, value in (
            (feed, "_BACKLOG_ANSWER", backlog),
            (feed, "MEMORY_LIMIT", memory),
            (feed, "DISK_LIMIT", disk),
            (partition, "SMALL", small),
            (chunks, "plan", partial(chunks.plan, chunk_documents=chunk)),
            (chunks, "connect", lambda address: Client(self.server, self.running())),
            (records, "to_rows", lambda segment, settings: iter([segment])),
        ):
            stack.enter_context(replaced(owner, name, value))
        return stack

    def running(self) -> Process:
        assert self.process is not None
        return self.process

    # --- actions ---

    def act(self) -> None:
        rng, server, faults = self.rng, self.server, self.faults
        if rng.random() < server.odds.act:
            server.act(faults.drop)
        if rng.random() < 0.1:
            server.replicate()
        if self.world.now - server.log.written_at > IDLE_SECONDS:
            server.log.idle()
        if self.signals and self.begins is not None and rng.random() < faults.signal:
            self.signals -= 1
            self._signal()
        if rng.random() < faults.elect:
            server.elect()
        if rng.random() < faults.forget:
            self._forget()
        if rng.random() < faults.kill:
            self.end()

    def _signal(self) -> None:
        kind = self.rng.choice(["execute-snapshot", "execute-snapshot", "stop-snapshot", "pause-snapshot"])
        names = self.rng.sample([".".join(one) for one in CAPTURED], self.rng.randint(1, 2))
        self._ask(kind, names)
        if kind == "pause-snapshot":
            self._ask("resume-snapshot", [])

    def _ask(self, kind: str, names: Sequence[str]) -> None:
        is_blocking = kind == "execute-snapshot" and not self.is_calm and self.rng.random() < 0.2
        data = {"data-collections": list(names), "type": "blocking" if is_blocking else "incremental"}
        id_ = f"signal {len(self.server.log.entries)} {self.server.log.term}"
        self.server.insert(SIGNALS, {"_id": id_, "type": kind, "data": data})

    def _forget(self) -> None:
        """Let the oplog lose its oldest entries: mostly committed ones, rarely more."""
        position, log = self._position(), self.server.log
        place = 0 if position is None else log.place(position.time)
        # a transaction is needed from its first entry on
        upto = log.place(log.entries[place].first) if place < len(log.entries) else place
        if self.rng.random() < self.faults.ahead:
            upto += self.rng.randint(1, 10)
        log.forget(upto)

    def _position(self) -> ChangePosition | None:
        """Return the position that Spark has committed; before the first commit, the planned one."""
        offsets = self.checkpoint.offsets
        found = offsets[max(0, self.checkpoint.commits - 1)] if offsets else None
        return None if found is None else MongoOffset.from_json(json.loads(found)).log

    def calm(self) -> None:
        odds = self.server.odds
        self.faults.disk = odds.fails = odds.dies = self.server.away_until = 0.0
        self.server.finish()
        if self.has_signals:
            self._ask("resume-snapshot", [])

    def calm_act(self) -> None:
        log = self.server.log
        log.replicate(len(log.entries))
        if self.world.now - log.written_at > IDLE_SECONDS:
            log.idle()

    def planner(self, process: Process) -> MongoPlanner:
        return MongoPlanner(self.config, self.settings, Environment(lambda address: self._client(process), process))

    def _client(self, process: Process) -> Any:
        return Client(self.server, process)

    def meaning(self) -> Documents:
        return Documents(self.server.log, self.rng)

    def note_present(self) -> None:
        log = self.server.log
        self.present = log.entries[log.shown - 1].at

    # --- checks ---

    def is_captured(self, name: Namespace) -> bool:
        is_in_scope = self.target[0] in ("", name[0]) and self.target[1] in ("", name[1])
        return is_in_scope and (name in CAPTURED or (name == SIGNALS and self.has_signals))

    def _expected(self) -> dict[Namespace, list[Row]]:
        """Return the rows that each topic must get from the majority's entries after the query's first position."""
        log, (read, found) = self.server.log, self._known
        if self.begins is None:
            return {}
        for entry in log.entries[read : log.majority]:
            number = 0
            for change in entry.changes:
                is_captured = self.is_captured(change.namespace)
                number += is_captured or self.reads_oplog
                if is_captured and (entry.at, number) > self.begins:
                    value = None if change.op == "d" or change.namespace == SIGNALS else change.number
                    row = change.op, change.id, value, entry.at, number
                    found.setdefault(change.namespace, []).append(row)
        self._known = log.majority, found
        return found

    def check(self, batch: int) -> None:
        offset = MongoOffset.from_json(json.loads(self.checkpoint.offsets[batch]))
        if self.begins is None:
            self.begins = offset.log.key
        expected = self._expected()
        for topic, rows in self.checkpoint.sink[batch].items():
            if topic == TRANSACTIONS:
                continue
            name = topic.split(".")
            namespace = name[0], name[1]
            first = self.delivered.get(topic, 0)
            changes = [row for row in rows if row[0] in LETTERS]
            self.delivered[topic] = first + len(changes)
            wanted = expected.get(namespace, [])[first : first + len(changes)]
            assert changes == wanted, f"{topic}: {changes} where {wanted} come next"
            if namespace != SIGNALS:
                self._apply(namespace, rows, offset)
        for row in self.checkpoint.sink[batch].get(".".join(SIGNALS), []):
            self._obey(row, offset)

    def _obey(self, row: Row, offset: MongoOffset) -> None:
        """Note the documents that a signal in the batch asks for: later batches must read them."""
        log = self.server.log
        signal = next(filter(None, log.versions(SIGNALS, row[1], 0, log.majority)))
        names = [one for one in CAPTURED if ".".join(one) in signal.get("data", {}).get("data-collections", [])]
        for name in filter(self.is_captured, names):
            documents = log.documents(name, log.place(offset.log.time + 1))
            is_asked = signal["type"] == "execute-snapshot"
            self.asked[name] = {one["_id"] for one in documents} if is_asked else set()

    def _apply(self, namespace: Namespace, rows: Sequence[Row], offset: MongoOffset) -> None:
        """Apply the rows of a batch to a consumer's state, and check rows of snapshots and windows."""
        log, state = self.server.log, self.state[namespace]
        for kind, id_, number, *_ in rows:
            self.asked.get(namespace, set()).discard(id_)
            if kind == "s":
                since = log.place(offset.log.time)
                known = [one and one["n"] for one in log.versions(namespace, id_, since, log.majority)]
                assert number in known, f"{namespace}: a snapshot shows {number} of {id_}, which was {known}"
            elif kind == "w":
                upto = log.place(offset.log.time + 1)
                one = log.version(namespace, id_, upto)
                holds = log.was_dropped(namespace, id_, upto) if one is None else one["n"] == number
                assert holds, f"{namespace}: a window shows {number} of {id_}, which is {one}"
            if kind == "d":
                state.pop(id_, None)
            else:
                state[id_] = number

    def is_delivered(self) -> bool:
        if self.is_lost:
            return True
        committed = self.checkpoint.committed()
        if committed is None:
            return False
        offset = MongoOffset.from_json(committed)
        if offset.snapshot is not None and not offset.snapshot.is_complete:
            return False
        if offset.progress.state is not None or offset.progress.blocking:
            return False
        if self.server.log.majority < len(self.server.log.entries):
            return False
        expected = self._expected().items()
        if any(self.delivered.get(".".join(name), 0) < len(rows) for name, rows in expected):
            return False
        self._check_state()
        return True

    def _check_state(self) -> None:
        """Check that the consumer's state agrees with the collections, and that requested documents were delivered."""
        log = self.server.log
        for namespace, ids in self.asked.items():
            left = ids & {one["_id"] for one in log.documents(namespace, len(log.entries))}
            assert not left, f"{namespace}: {left} were asked for"
        for namespace in CAPTURED if self.takes_snapshot else ():
            if not self.is_captured(namespace):
                continue
            known = self.state[namespace]
            documents = {one["_id"]: one["n"] for one in log.documents(namespace, len(log.entries))}
            missing = {id_: number for id_, number in documents.items() if known.get(id_) != number}
            assert not missing, f"{namespace}: {missing} are {[known.get(id_) for id_ in missing]}"
            more = [id_ for id_ in known if id_ not in documents]
            gone = all(log.was_dropped(namespace, id_, len(log.entries)) for id_ in more)
            assert gone, f"{namespace}: some of {more} are gone"

    def check_present(self) -> None:
        for namespace, rows in self._expected().items():
            left = [row for row in rows[self.delivered.get(".".join(namespace), 0) :] if row[3] <= self.present]
            assert not left, f"{namespace}: an AvailableNow query leaves out {left}"

    def check_lost(self, failure: PositionLost) -> None:
        position = self._position()
        gone = position is not None and self.server.log.is_gone(position.time)
        assert gone, f"the position is not lost: {failure}"


class Documents:
    """Interprets the planner's offsets and tasks. A row is a change: operation, `_id`, number, timestamp and place; or
    a document read by a snapshot (s) or a window (w): `_id` and number; or a transaction marker (T)."""

    def __init__(self, log: Oplog, rng: Random) -> None:
        self._log = log
        self._rng = rng

    def check(self, start: Offset, end: Offset) -> None:
        before, after = MongoOffset.from_json(start).log, MongoOffset.from_json(end).log
        assert not after.is_before(before), "a planned position goes back"
        ahead = [one.at for one in self._log.entries[self._log.majority :]]
        behind = after.time + (after.number > 0)
        assert not ahead or ahead[0] >= behind, f"{after} is ahead of what a majority has"

    def rows(self, tasks: Sequence[Any]) -> Batch:
        found: Batch = {}
        for task in tasks:
            if isinstance(task, BoundaryTask):
                found[TRANSACTIONS] = [("T", one) for one in task.boundaries]
                continue
            assert isinstance(task, LogTask | SnapshotTask), f"an unknown task: {task}"
            segments: Any = task.segments if isinstance(task, LogTask) else task.read()
            for segment in segments:
                rows = found.setdefault(".".join(segment.namespace), [])
                rows += [_row(segment, place) for place in range(len(segment))]
        return found

    def again(self, kept: Batch, rows: Batch) -> Batch:
        assert _log(kept) == _log(rows), "a batch that is read again is another one"
        # the sink may have got the first reading or the second
        return self._rng.choice([kept, rows])


def _log(batch: Batch) -> Batch:
    """Return the part of a batch that was read from the log."""
    found = {topic: [row for row in rows if row[0] not in "sw"] for topic, rows in batch.items()}
    return {topic: rows for topic, rows in found.items() if rows}


def _row(segment: Segment, place: int) -> Row:
    start = int(segment.starts[place])
    size = int.from_bytes(segment.data[start : start + 4].tobytes(), "little")
    document = decode(segment.data[start : start + size].tobytes())
    if segment.kind == READ:
        assert segment.markers is not None
        is_window = segment.markers[place] == Marker.INCREMENTAL
        return "w" if is_window else "s", document["_id"], document["n"]
    op, id_, value = _of_entry(document) if segment.kind == OPLOG else _of_event(document)
    return op, id_, value, int(segment.time[place]), int(segment.number[place])


def _of_entry(document: dict[str, Any]) -> Row:
    op, content = document["op"], document["o"]
    if op == "u":
        patch = content.get("$set")
        return "u" if patch else "r", document["o2"]["_id"], (patch or content)["n"]
    return op, content["_id"], content.get("n")


def _of_event(document: dict[str, Any]) -> Row:
    op, id_ = _LETTERS[document["operationType"]], document["documentKey"]["_id"]
    if op == "u":
        return op, id_, document["updateDescription"]["updatedFields"]["n"]
    return op, id_, (document.get("fullDocument") or {}).get("n")
