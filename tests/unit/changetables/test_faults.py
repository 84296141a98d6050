"""A connection that is lost at any step of a query does not change what the query delivers.

Each course is run without a fault, and then once for every step at which sessions send a request, with the connection
lost there: the events of all committed batches are the same. After an error that reaches Spark, uncommitted work is
discarded and repeated, by the same planner or by a new one.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from tailrace.connectors.changetables.log.sessions import Retries, close_idle
from tailrace.connectors.changetables.log.tasks import LogTask, SchemaTask, SnapshotTask, WindowTask
from tailrace.connectors.changetables.snapshot import initial
from tailrace.errors import ConnectionFailed
from tailrace.log.contracts import ReaderState
from tailrace.log.control_tasks import BoundaryTask, HeartbeatTask, NotificationTask
from tailrace.process.runtime import Threads
from tests.extent import sized
from tests.unit.changetables.driving import Event, Query, batches_for_rows  # noqa: F401
from tests.unit.changetables.memory import Server

T = TypeVar("T")

PLANNER = "the planner tries again"
SAME = "the query asks the same planner again"
RESTART = "the query starts again"
WRITES = ("write_signal", "delete_signal", "execute")

Phase = tuple[Callable[[Server], object], int | None]
"""An action at the server, and the number of batches that follow it; None: all, until there is nothing new."""


@dataclass
class Course:
    """A query and the events at its server. `ends` runs every phase as a separate query under AvailableNow.

    `windows` is True if positions are not comparable, because repeated watermarks take positions, too.
    """

    server: Callable[[], Server]
    options: dict[str, str]
    phases: Sequence[Phase]
    manners: tuple[str, ...] = (SAME, RESTART)
    ends: bool = False
    windows: bool = False


def rows(count: int, low: int = 0) -> list[tuple[str, str, None, tuple[str, str]]]:
    return [("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(low, low + count)]


def two_tables(*, pairs: bool = False) -> Server:
    made = Server("f", fetch=2, pairs=pairs)
    made.table("dbo.a", ("id", "v"), ("id",))
    made.table("dbo.b", ("id", "v"), ("id",))
    made.commit(*rows(5))
    made.commit(("dbo.b", "c", None, ("1", "x")))
    return made


def paired() -> Server:
    return two_tables(pairs=True)


def nothing(server: Server) -> None:
    pass


def changes(server: Server) -> None:
    server.commit(("dbo.a", "u", ("000", "x"), ("000", "y")), ("dbo.b", "c", None, ("2", "x")))
    server.commit(("dbo.b", "u", ("2", "x"), ("3", "x")), ("dbo.a", "d", ("004", "x"), None))


def more(server: Server) -> None:
    server.commit(*rows(4, 100))
    server.commit(("dbo.b", "c", None, ("9", "x")))


def evolves(server: Server) -> None:
    server.commit(*rows(1, 200))
    server.enable("dbo.a", "_2")
    server.commit(*rows(1, 300))
    server.table("dbo.late", ("id",), ("id",))
    server.commit(("dbo.late", "c", None, ("1",)))


def with_signals() -> Server:
    made = two_tables()
    made.table("dbo.signals", ("id", "type", "data"), ("id",))
    return made


def asks(kind: str) -> Callable[[Server], object]:
    data = {"data-collections": ["db.dbo.a"], "type": kind}
    return lambda server: server.commit(("dbo.signals", "c", None, ("s", "execute-snapshot", json.dumps(data))))


def beside(server: Server) -> None:
    server.commit(("dbo.b", "c", None, ("7", "x")))


NOTICES = {"notification__enabled__channels": "sink", "notification__sink__topic__name": "n"}
WINDOWS = NOTICES | {
    "signal__data__collection": "db.dbo.signals",
    "snapshot__mode": "no_data",
    "incremental__snapshot__chunk__size": "2",
    "incremental__snapshot__window__chunks": "1",
}

COURSES = {
    "the initial snapshot and the log": Course(
        two_tables,
        NOTICES | {"provide__transaction__metadata": "true"},
        [(nothing, 1), (changes, None), (more, None)],
    ),
    "updates in pairs": Course(paired, {"snapshot__mode": "no_data"}, [(nothing, None), (changes, None)]),
    "a snapshot at each start": Course(
        two_tables,
        NOTICES | {"snapshot__mode": "always"},
        [(nothing, 1), (changes, None)],
        manners=(PLANNER, SAME),
    ),
    "change tables that take over": Course(
        two_tables, {"snapshot__mode": "no_data"}, [(nothing, None), (evolves, None), (more, None)]
    ),
    "queries that end at the present": Course(
        two_tables,
        {"max__iteration__transactions": "1"},
        [(changes, None), (more, None)],
        ends=True,
    ),
    "heartbeats": Course(
        two_tables,
        {"heartbeat__interval__ms": "1", "heartbeat__action__query": "insert into h values (1)"},
        [(nothing, 2), (changes, 2), (more, 2)],
    ),
    "windows": Course(
        with_signals,
        WINDOWS,
        [(nothing, None), (asks("incremental"), 3), (beside, None)],
        (PLANNER, SAME, RESTART),
        windows=True,
    ),
    "windows that end by deletion": Course(
        with_signals,
        WINDOWS | {"incremental__snapshot__watermarking__strategy": "insert_delete"},
        [(nothing, None), (asks("incremental"), None)],
        windows=True,
    ),
    "a blocking snapshot": Course(with_signals, WINDOWS, [(nothing, None), (asks("blocking"), None), (more, None)]),
}


class Clock(Threads):
    """A clock that advances by `step` s at each reading, so that the steps of a course do not depend on its speed."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    def time_ns(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def small_and_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set chunks of two rows, a heartbeat at every check, and a single check for each batch."""
    monkeypatch.setattr(initial, "CHUNK_ROWS", 2)
    monkeypatch.setattr(Query, "runtime", Clock(0.002))


class Run:
    """A run of a course. `delivered` holds the output of its committed batches, `offsets` their ends."""

    def __init__(self, course: Course, manner: str) -> None:
        self.course, self.manner = course, manner
        close_idle()
        self.server = course.server()
        tries = "-1" if manner == PLANNER else "0"
        self.query = Query(self.server, **course.options, errors__max__retries=tries)
        self.delivered: list[Any] = []
        self.ended = True

    def run(self) -> None:
        for work, batches in self.course.phases:
            work(self.server)
            if self.course.ends:
                self.query.restart()
                self.ended = False
            self.drain(batches)

    def drain(self, batches: int | None) -> None:
        done = 0
        while batches is None or done < batches:
            end = self.tried(self.plan)
            if end is None:
                break
            self.delivered += self.tried(lambda end=end: list(self.read(end)))
            self.query.start = end
            done += 1
        assert batches is None or done == batches

    def tried(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; after an error that the planner does not handle, the result of another try."""
        while True:
            try:
                return work()
            except ConnectionFailed:
                if self.manner == RESTART:
                    self.query.restart()
                    self.ended = False

    def plan(self) -> dict[str, Any] | None:
        if self.course.ends and not self.ended:
            self.query.planner.stop_at_present()
            self.ended = True
        return self.query.plan(4)

    def read(self, end: dict[str, Any]) -> Iterator[Any]:
        for task in self.query.planner.partitions(self.query.start or {}, end):
            copy = pickle.loads(pickle.dumps(task))
            if isinstance(copy, LogTask | SnapshotTask | WindowTask):
                yield from (comparable(event, self.course.windows) for event in copy.read())  # type: ignore[arg-type]
            elif isinstance(copy, SchemaTask):
                yield from ((one.kind, str(one.table.id), one.table.version) for one in copy.changes)
            elif isinstance(copy, BoundaryTask):
                yield from copy.boundaries
            elif isinstance(copy, NotificationTask):
                # A new planner logs its start, and does not know the number of rows in the snapshot that it continues.
                if self.manner != RESTART:
                    yield from ((one.aggregate, one.type, one.data) for one, _ in copy.notifications)
            else:
                assert isinstance(copy, HeartbeatTask)
                yield "heartbeat"


def comparable(event: Event, windows: bool) -> Event:
    """Return events without the times of a snapshot, and for windows without positions."""
    if windows:
        return replace(event, commit=0, change=None, serial=None, at_us=0, ordinal=0)
    return replace(event, at_us=0) if event.op == "r" else event


def of_tables(delivered: list[Any]) -> Counter[Any]:
    """Return the events of tables other than the signal table, whose watermarks have unique names."""
    return Counter(one for one in delivered if not (isinstance(one, Event) and one.table == "dbo.signals"))


@pytest.mark.parametrize(
    ("name", "manner"), [(name, one) for name, course in COURSES.items() for one in course.manners]
)
def test_a_connection_that_is_lost_at_any_step_changes_nothing(name: str, manner: str) -> None:
    course = COURSES[name]
    clean = Run(course, manner)
    clean.run()
    expected = of_tables(clean.delivered)
    assert sum(expected.values()) > 5
    steps = clean.server.steps
    early = [(step, False) for step in range(1, len(steps) + 1)]
    late = [(step, True) for step, kind in enumerate(steps, 1) if kind in WRITES]
    apart = sized(4, 1)
    for step, is_late in (early + late)[secrets.randbelow(apart) :: apart]:
        faulty = Run(course, manner)
        faulty.server.fault, faulty.server.late = step, is_late
        faulty.run()
        assert len(faulty.server.steps) >= step, "the course met no fault"
        found = of_tables(faulty.delivered)
        if course.windows and manner == RESTART:
            # A new planner cannot know whether the last window was delivered, and reads it again.
            found = Counter({one: min(count, expected[one]) for one, count in found.items()})
        lost = f"the connection was lost {'behind' if is_late else 'at'} step {step}, {steps[step - 1]}"
        assert found == expected, lost
        if not course.windows:
            assert commits(faulty) == commits(clean), lost


def commits(run: Run) -> list[int]:
    """Return the positions of the changes in the order of delivery."""
    return [one.commit for one in run.delivered if isinstance(one, Event) and one.op != "r"]


def test_a_planner_that_has_lost_its_session_is_not_connected_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(two_tables())
    query.drain()
    assert (query.planner.reading().is_connected, query.planner.reading().setbacks) == (True, {})
    seen: list[ReaderState] = []
    monkeypatch.setattr(Retries, "pause", lambda *_: seen.append(query.planner.reading()))
    query.server.fail["newest"] = 2
    query.server.commit(*rows(1, 900))
    assert query.drain()
    assert [(one.is_connected, one.setbacks) for one in seen] == [(False, {"session": 1}), (False, {"session": 2})]
    assert (query.planner.reading().is_connected, query.planner.reading().setbacks) == (True, {"session": 2})
