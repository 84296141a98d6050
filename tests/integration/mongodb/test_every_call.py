"""Whichever call to the server fails, the events are those of a run without a failure.

Each case is run once without a fault, to count its calls, and then once for each of them: the n-th call is refused, or
executed while its answer is lost. A short run has one of both, by the day. It disturbs every eleventh call, from a
random one, and each command at least once. A failed step is repeated by the same planner, whose state must not have
changed, or by a new planner from the checkpoint, with the planned batch first, as after a crash.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.errors import ConnectionFailed
from tailrace.log.contracts import Offset
from tests.extent import sized
from tests.fix_mongodb import Mongo, MongoDatabase, running, through
from tests.integration.mongodb.capture import COMMENT, Capture, Event, after
from tests.servers.mongo_proxy import Change, Document, Proxy, error
from tests.servers.secantus import Secantus

_QUIET = frozenset({"hello", "ismaster", "isMaster", "endSessions", "killCursors"})
READS = ("getMore",)
FEW = 3
"""Number of getMore calls that are disturbed; how many there are depends on time."""
STRIDE = sized(11, 1)
"""Distance between disturbed calls. It is odd, so that a new planner and the same one take turns."""
REFUSED = error(262, "ExceededTimeLimit", "operation exceeded time limit")


class Nth(Change):
    """A proxy that counts the commands and disturbs one: with `lost` the server executes it before the connection ends.

    getMore calls are counted separately, and so are those of a `named` command.
    """

    def __init__(self, *, lost: bool) -> None:
        self.lost = lost
        self.reads = False
        self.named: str | None = None
        self._lock = threading.Lock()
        self.arm(0)

    def arm(self, at: int) -> None:
        """Count from now on: the calls `named`, or getMore calls if `reads`, else the others.

        0 disturbs nothing.
        """
        self.at, self.count = at, 0
        self.spoiled: str | None = None
        self.seen: set[str] = set()

    def _is_next(self, document: Document) -> bool:
        command = next(iter(document))
        if document.get("comment") == COMMENT or command in _QUIET:
            return False
        with self._lock:
            self.seen.add(command)
            if command != self.named if self.named else (command in READS) != self.reads:
                return False
            self.count += 1
            if self.count != self.at:
                return False
            self.spoiled = command
            return True

    def answer(self, document: Document) -> Document | None:
        return REFUSED if not self.lost and self._is_next(document) else None

    def loses(self, document: Document) -> bool:
        return self.lost and self._is_next(document)


@dataclass
class Run:
    """A query through the faults. `events` holds the events of batches that were read completely and committed."""

    nth: Nth
    options: dict[str, str]
    restarts: bool
    ends: bool = False
    events: list[Event] = field(default_factory=list)
    crashed: bool = False

    def __post_init__(self) -> None:
        self._planned: Offset | None = None
        self._capture = self._new(None)

    def _new(self, offset: Offset | None) -> Capture:
        made = Capture(offset, **self.options)
        self._is_aimed = False
        return made

    def step(self) -> bool:
        """Run one trigger. Return False if nothing was new. With `restarts`, the first trigger
        after the fault crashes."""
        try:
            if self.ends and not self._is_aimed:
                self._capture.planner.stop_at_present()
                self._is_aimed = True
            start = self._capture.offset
            if self._planned is None:
                self._planned = self._capture.plan(None, 64 << 20)
            if self.restarts and self.nth.spoiled is not None and not self.crashed:
                self._crash()
                return True
            if self._planned is None:
                return False
            found = self._capture.read(start, self._planned)
        except ConnectionFailed:
            assert self.nth.spoiled is not None
            if self.restarts:
                self._crash()
            return True
        self.events += found
        self._capture.offset, self._planned = self._planned, None
        return True

    def _crash(self) -> None:
        """Create a planner from the checkpoint, with the batch that was planned."""
        self.crashed = True
        self._capture.close()
        self._capture = self._new(self._capture.offset)

    def until_begun(self) -> None:
        """Trigger until the query has its first position."""
        initial = self._capture.offset
        while self._capture.offset == initial:
            self.step()

    def until(self, key: str) -> None:
        """Trigger until the event of a document has come."""
        while not any(event["key"] == key for event in self.events):
            self.step()

    def close(self) -> None:
        self._capture.close()


Begin = Callable[..., Run]


@pytest.fixture
def database(make_secantus: Callable[..., Secantus]) -> Iterator[MongoDatabase]:
    """Return a database of a fresh server, because each run reads its oplog anew."""
    server = running(make_secantus("--enable-test-commands"))
    with server.client() as client:
        yield MongoDatabase(server, client["shop"])


@pytest.fixture
def begin(database: MongoDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Yield a factory of queries of the database."""
    monkeypatch.setattr(chunks.plan, "__defaults__", ((), 10))
    made: list[Run] = []

    def make(server: Mongo, nth: Nth, restarts: bool, ends: bool = False, **options: str) -> Run:
        old = options.pop("old", "") == "yes"
        named = (
            {"mongodb.hosts": server.hosts, "mongodb.name": "p"}
            if old
            else {"mongodb.connection.string": server.uri, "topic.prefix": "p"}
        )
        plain = {"database.include.list": database.name, "event.order.segments": "1",
                 "connect.max.attempts": "100", "connect.backoff.initial.delay.ms": "1",
                 "connect.backoff.max.delay.ms": "20", "poll.interval.ms": "20"}  # fmt: skip
        made.append(Run(nth, {**named, **plain, **options}, restarts, ends))
        return made[-1]

    yield make
    for one in made:
        one.close()


def told(events: list[Event]) -> Counter[tuple[str, str, str]]:
    """Return the parts of the events that do not depend on the run."""
    return Counter(
        (event["op"], event["key"], json.dumps(event["value"] and (after(event) or event["value"].get("patch"))))
        for event in events
        if event["topic"] and not event["topic"].endswith(".signals")
    )


def state(events: list[Event]) -> dict[str, Any]:
    """Return a consumer's final state."""
    found: dict[str, Any] = {}
    for event in events:
        if event["op"] in ("d", "tombstone"):
            found.pop(event["key"], None)
        elif not event["topic"].endswith(".signals"):
            found[event["key"]] = after(event)
    return found


Case = Callable[[Begin, Mongo, MongoDatabase, Nth, bool, int], Run]


def initial(
    begin: Begin, server: Mongo, database: MongoDatabase, nth: Nth, restarts: bool, at: int, **more: str
) -> Run:
    """Run a snapshot of several batches, with changes beside it, and the log after it."""
    database["c"].insert_many([{"_id": number, "v": 0} for number in range(45)])
    database["e"].insert_one({"_id": 100})
    nth.arm(at)
    run = begin(server, nth, restarts, **more)
    while not run.events:
        run.step()
    # A collection unknown to the snapshot: its documents come only with the log.
    database["f"].insert_many([{"_id": number, "v": 1} for number in range(200, 205)])
    database["f"].delete_one({"_id": 201})
    run.until("204")
    database["f"].insert_one({"_id": 300})
    run.until("300")
    return run


def streaming(
    begin: Begin, server: Mongo, database: MongoDatabase, nth: Nth, restarts: bool, at: int, **more: str
) -> Run:
    """Run changes of the log in several batches."""
    nth.arm(0)
    run = begin(server, nth, restarts, **{"snapshot.mode": "never" if "old" in more else "no_data"}, **more)
    # The log is opened with the first position.
    nth.arm(at)
    run.until_begun()
    for first in (0, 10, 20):
        database["c"].insert_many([{"_id": number, "v": first} for number in range(first, first + 9)])
        database["c"].delete_one({"_id": first})
        database["c"].insert_one({"_id": first + 9, "v": first})
        run.until(str(first + 9))
    return run


def window(begin: Begin, server: Mongo, database: MongoDatabase, nth: Nth, restarts: bool, at: int, **more: str) -> Run:
    """Run an incremental snapshot of several windows, with changes between them."""
    database["c"].insert_many([{"_id": number, "v": 0} for number in range(10)])
    database.database.create_collection("signals")
    nth.arm(0)
    run = begin(
        server, nth, restarts,
        **{"snapshot.mode": "no_data", "signal.data.collection": f"{database.name}.signals",
           "incremental.snapshot.chunk.size": "4", "incremental.snapshot.window.chunks": "1"}, **more,
    )  # fmt: skip
    run.step()
    data = {"data-collections": [f"{database.name}.c"]}
    database["signals"].insert_one({"_id": "s", "type": "execute-snapshot", "data": data})
    nth.arm(at)
    run.until("3")
    database["c"].update_one({"_id": 2}, {"$set": {"v": 7}})
    run.until("9")
    while (run._capture.offset.get("progress") or {}).get("state") is not None:
        run.step()
    database["c"].insert_one({"_id": 99})
    run.until("99")
    return run


def present(
    begin: Begin, server: Mongo, database: MongoDatabase, nth: Nth, restarts: bool, at: int, **more: str
) -> Run:
    """Run a query that ends at the present: a snapshot the first time, then the changes."""
    database["c"].insert_many([{"_id": number, "v": 0} for number in range(25)])
    nth.arm(at)
    run = begin(server, nth, restarts, True, **more)
    while run.step():
        pass
    database["c"].insert_many([{"_id": number, "v": 1} for number in range(100, 110)])
    run._capture.close()
    run._capture = run._new(run._capture.offset)
    while run.step():
        pass
    return run


OPLOG = {
    "initial snapshot": lambda *args: initial(*args, old="yes"),
    "streaming": lambda *args: streaming(*args, old="yes"),
}
TODAY = date.today().toordinal()
CASES = [
    *[
        pytest.param(case, lost, id=f"{case.__name__}, {'lost' if lost else 'refused'}")
        for number, case in enumerate((initial, streaming, window, present), TODAY)
        for lost in sized((number % 2 == 0,), (False, True))
    ],
    *[
        pytest.param(OPLOG[name], False, id=f"{name} of an oplog, refused")
        for name in sized((list(OPLOG)[TODAY % 2],), tuple(OPLOG))
    ],
]


@pytest.mark.parametrize(("case", "lost"), CASES)
def test_no_failing_call_changes_what_is_delivered(
    database: MongoDatabase, begin: Begin, case: Case, lost: bool
) -> None:
    nth = Nth(lost=lost)
    with Proxy(database.server.address, nth) as proxy:
        server = through(database.server, proxy)

        def run(at: int, restarts: bool) -> Run:
            for name in database.database.list_collection_names():
                database[name].drop()
            made = case(begin, server, database, nth, restarts, at)
            made.close()
            return made

        whole = run(0, False)
        wanted = told(whole.events)
        assert state(whole.events) == {
            str(one["_id"]): one for name in ("c", "e", "f") for one in database[name].find()
        }
        missed = set(nth.seen)
        assert len(missed) > 1

        def spoil(at: int) -> bool:
            """Run once with a fault at the n-th call. Return False if there is no such call."""
            # Each call meets both over the two kinds of faults.
            restarts = (at % 2 == 0) == lost
            made = run(at, restarts)
            if nth.spoiled is None:
                return False
            missed.discard(nth.spoiled)
            where = (at, nth.spoiled, restarts)
            if case is window and made.crashed:
                # The last window is read again, and later changes may replace its rows.
                assert state(made.events) == state(whole.events), where
                assert wanted - told(made.events) == Counter(), where
            else:
                assert told(made.events) == wanted, where
            return True

        for nth.reads in (False, True):
            # A run with fewer calls than requested has met them all.
            for at in range(1, FEW + 1) if nth.reads else itertools.count(1 + secrets.randbelow(STRIDE), STRIDE):
                if not spoil(at):
                    break
        # Two threads call. Their order changes from run to run, and so does the number of a call.
        for nth.named in sorted(missed):
            assert spoil(1), nth.named
        assert not missed
