"""The requests of the sink `tables` to read tables again: kept, sent, asked for again, and forgotten."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tailrace import sinks
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks.tables.positions import Positions, Request
from tailrace.sinks.tables.rereads import Rereads
from tailrace.snapshot import signals
from tailrace.snapshot.incremental import Collection, IncrementalSnapshot, Notifications
from tailrace.snapshot.progress import NO_PROGRESS, Progress
from tailrace.snapshot.signal_handler import SignalHandler
from tailrace.snapshot.signals import Signal

POSTGRES = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.dbname": "d"}
MYSQL = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u"}
SQLSERVER = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.password": "x"}
MONGO = {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"}
SIGNALS = {"signal.data.collection": "s.signals"}


class Kept:
    """The table of positions, which outlives its process. It dies before it keeps anything if `dies`."""

    def __init__(self) -> None:
        self.rereads: Mapping[str, Request] = {}
        self.dies = False

    def keep_rereads(self, session: object, rereads: Mapping[str, Request]) -> None:
        if self.dies:
            raise RuntimeError("killed")
        self.rereads = rereads


class Process:
    """A process of the sink over `kept`, with the signals that it has sent, and the tables that the source has."""

    def __init__(self, kept: Kept, channel_fails: bool = False) -> None:
        self.sent: list[Signal] = []
        self._fails = channel_fails
        self.captured: list[tuple[str, str]] | None = [("s", "t")]
        self.rereads = Rereads(cast(Positions, kept), self._send, self._list)

    def _list(self) -> list[tuple[str, str]]:
        if self.captured is None:
            raise ConnectionFailed("The server is away.", "Start it.")
        return self.captured

    def _send(self, signal: Signal) -> None:
        if self._fails:
            raise RuntimeError("killed")
        self.sent.append(signal)

    def batch(self, progress: Progress = NO_PROGRESS) -> None:
        offset: dict[str, Any] = {"log": {}, "progress": json.loads(json.dumps(progress.to_json()))}
        self.rereads.begin(cast(Any, object()), lambda: offset)

    def ask(self) -> None:
        self.rereads.know("d.s.t", "s", "t")
        self.rereads.ask("d.s.t", "why")


def reading(signal: str) -> IncrementalSnapshot:
    return IncrementalSnapshot(signal, (Collection("s", "t", reread=signal),))


def test_a_request_is_forgotten_when_the_rows_were_in_the_batch_before(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    with caplog.at_level(logging.WARNING, "tailrace"):
        process.ask()
    assert "d.s.t is read again by a snapshot: why" in caplog.text
    (signal,) = process.sent
    process.batch()
    # The snapshot has not begun, so it reads what this batch lacks, too.
    process.ask()
    assert len(process.sent) == 1
    process.batch(Progress(reading(signal.id)))
    process.batch(Progress(None, reading(signal.id), done=("s.t",)))
    assert list(kept.rereads) == ["d.s.t"]
    process.batch()
    assert kept.rereads == {}


def test_rows_that_are_read_once_more_are_waited_for() -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    process.ask()
    (signal,) = process.sent
    process.batch(Progress(None, reading(signal.id), done=("s.t",)))
    process.batch(Progress(reading(signal.id), reading(signal.id)))
    assert kept.rereads
    process.batch(Progress(None, reading(signal.id), done=("s.t",)))
    process.batch()
    assert not kept.rereads


def test_a_table_whose_snapshot_has_begun_is_asked_for_again() -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    process.ask()
    (first,) = process.sent
    process.batch(Progress(reading(first.id)))
    process.ask()
    second = process.sent[1]
    process.batch(Progress(None, reading(first.id), done=("s.t",)))
    process.batch()
    assert kept.rereads["d.s.t"].signal == second.id


def test_the_next_process_asks_again_unless_the_snapshot_goes_on() -> None:
    kept = Kept()
    first = Process(kept, channel_fails=True)
    first.batch()
    with pytest.raises(RuntimeError, match="killed"):
        first.ask()
    second = Process(kept)
    second.batch()
    (signal,) = second.sent
    assert kept.rereads["d.s.t"].signal == signal.id
    third = Process(kept)
    third.batch(Progress(reading(signal.id)))
    third.batch(Progress(None, reading(signal.id), done=("s.t",)))
    third.batch()
    assert third.sent == []
    assert kept.rereads == {}


def test_nothing_is_asked_for_that_is_not_kept() -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    kept.dies = True
    with pytest.raises(RuntimeError, match="killed"):
        process.ask()
    assert process.sent == []


def test_a_snapshot_that_was_given_up_is_told_and_asked_for_at_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    process.ask()
    process.batch(Progress(reading(process.sent[0].id)))
    with caplog.at_level(logging.WARNING, "tailrace"):
        process.batch()
        process.batch()
    assert caplog.text.count("the snapshot that d.s.t needs was given up; remedy: read it by a snapshot") == 1
    assert len(process.sent) == 1
    later = Process(kept)
    later.batch()
    assert len(later.sent) == 1


def test_a_table_that_the_source_has_no_more_waits_until_a_change_of_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    process.ask()
    process.batch(Progress(reading(process.sent[0].id)))
    process.captured = []
    with caplog.at_level(logging.WARNING, "tailrace"):
        process.batch()
        process.batch()
    assert caplog.text.count("d.s.t is not read again, because it is not among the captured tables any more") == 1
    assert not kept.rereads["d.s.t"].signal
    later = Process(kept)
    later.batch()
    later.batch()
    assert later.sent == []
    later.rereads.know("d.s.t", "s", "t")
    later.rereads.know("d.s.t", "s", "t")
    (signal,) = later.sent
    assert kept.rereads["d.s.t"].signal == signal.id
    later.batch(Progress(None, reading(signal.id), done=("s.t",)))
    later.batch()
    assert kept.rereads == {}


def test_a_table_of_which_the_source_tells_nothing_is_asked_for_at_the_next_start() -> None:
    kept = Kept()
    process = Process(kept)
    process.batch()
    process.ask()
    process.batch(Progress(reading(process.sent[0].id)))
    process.captured = None
    process.batch()
    assert kept.rereads["d.s.t"].signal
    later = Process(kept)
    later.batch()
    assert len(later.sent) == 1


def test_the_planner_marks_what_the_pipeline_has_asked_for() -> None:
    """The id fits into a signal table, and a name with dots and quotes names one table."""
    request = Request.new("s", 'a."b')
    assert len(request.signal) <= 42
    tables = [("s", 'a."b'), ("s", "a")]
    handler = SignalHandler(lambda: tables, Notifications("p"), lambda _: "")
    progress, _, _ = handler.handle(request.message(), "0", NO_PROGRESS, None)
    own = Collection("s", 'a."b', reread=request.signal)
    assert progress.state == IncrementalSnapshot(request.signal, (own,))
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress
    data = json.dumps({"data-collections": ["s.a"]})
    progress, _, _ = handler.handle(Signal("by hand", "execute-snapshot", data), "0", progress, None)
    assert progress.state is not None
    assert progress.state.collections == (own, Collection("s", "a"))
    assert signals.read(request.message()) is not None


def test_options_that_ask_for_snapshots_need_a_way_to_ask() -> None:
    reread = {"path": "/x", "added.default": "reread"}
    with pytest.raises(SinkError, match=r"added\.default = reread needs a channel for signals"):
        sinks.open("tables", reread, parse("postgres", POSTGRES))
    sinks.open("tables", reread, parse("postgres", POSTGRES | SIGNALS))
    sinks.open("tables", reread, parse("mysql", MYSQL | SIGNALS))
    for name in ("schema.recreated", "schema.narrow", "unknown.values"):
        given = {"path": "/x", name: "reread"}
        sinks.open("tables", given, parse("postgres", POSTGRES | SIGNALS))
        with pytest.raises(SinkError, match="can be reread only in the modes latest and history"):
            sinks.open("tables", given | {"mode": "log"})
        with pytest.raises(SinkError, match="cannot be reread if tables are routed into one"):
            sinks.open("tables", given | {"route.regex": "a", "route.replacement": "b"})
        with pytest.raises(SinkError, match=f"{name} = reread is not supported for the connector mongodb"):
            sinks.open("tables", given, parse("mongodb", MONGO))
    with pytest.raises(SinkError, match=r"schema\.recreated = reread is not supported for the connector mysql"):
        sinks.open("tables", {"path": "/x", "schema.recreated": "reread"}, parse("mysql", MYSQL | SIGNALS))
    servers = parse("sqlserver", SQLSERVER | {"database.names": "d,e"})
    with pytest.raises(SinkError, match="reread is not supported for several databases in one query"):
        sinks.open("tables", reread, servers)
    with pytest.raises(SinkError, match=r"schema\.recreated must be one of stop, reread"):
        sinks.open("tables", {"path": "/x", "schema.recreated": "evolve"})
