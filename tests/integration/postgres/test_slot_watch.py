"""The log that slots keep: how much, why, for how long there is room, and what a pipeline does about it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.command import cli
from tailrace.connectors.postgres.log import retention
from tailrace.connectors.postgres.log.retention import Rate, SlotLog, size
from tailrace.connectors.postgres.log.slot_watch import SlotWatch
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.server.connection import connect
from tailrace.connectors.postgres.setup import slot_report
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.retention import PAUSED, duration
from tailrace.process.runtime import Threads
from tailrace.spark.measures import PlannerMeasures
from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.signalled import SIGNALS, execute
from tests.waiting import until

MB = 1 << 20


class Clock(Threads):
    """A runtime whose time the test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def config(database: Database, **options: str) -> Any:
    return parse("postgres", database.options(topic_prefix="p", slot_name=slot(database), **options))


def slot(database: Database) -> str:
    return f"kept_{database.name}"[:60]


@pytest.fixture
def kept(database: Database) -> Iterator[Database]:
    """Yield a database with a slot that nobody reads."""
    database.execute(f"select pg_create_logical_replication_slot('{slot(database)}', 'pgoutput')")
    yield database
    database.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active and database = "
        f"'{database.name}'"
    )


def write(database: Database, megabytes: int) -> None:
    message = f"pg_logical_emit_message(true, '', repeat('x', {MB}))"
    database.execute(f"select {message} from generate_series(1, {megabytes})")


def test_the_limit_is_the_lower_one_of_the_server_and_the_option(kept: Database) -> None:
    with closing(connect(config(kept))) as connection:
        assert [one.limit for one in retention.read(connection, config(kept), slot(kept))] == [None]
        limited = config(kept, **{"slot.limit.bytes": str(8 * MB)})
        write(kept, 2)
        (found,) = retention.read(connection, limited, slot(kept))
        assert (found.limit, found.pid, found.reason) == (8 * MB, None, "")
        assert 2 * MB <= found.retained < 4 * MB
        assert found.room == 8 * MB - found.retained


def test_the_forecast_is_the_room_at_the_rate_of_five_minutes(kept: Database) -> None:
    rate, per_s = Rate(), 1000.0
    found = SlotLog("s", "logical", "d", 1, False, 600_000, 0, 1_000_000, 400_000, "", None)
    assert rate.seconds_left(found) is None
    # a burst that is longer ago does not count
    rate.note(-1000.0, 0)
    for second in range(0, 301, 15):
        rate.note(second, 300_000 + int(per_s * second))
    left = rate.seconds_left(found)
    assert left is not None
    assert abs(left - 400) < 20
    assert "it is full in 7 minutes" in retention.told(found, rate)
    for second in range(315, 700, 15):
        rate.note(second, 100)
    assert rate.seconds_left(found) is None


def test_levels_come_and_go_with_what_the_slot_keeps(kept: Database, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    given = config(kept, **{"slot.limit.bytes": str(10 * MB), "slot.warn.ahead.ms": "0", "slot.stop.percent": "95"})
    watch = SlotWatch(given, lambda: connect(given), clock)

    def look(megabytes: int) -> str:
        write(kept, megabytes)
        clock.now += 15
        caplog.clear()
        watch.look(connection)
        return caplog.text

    with closing(connect(given)) as connection:
        assert look(0) == ""
        assert "% of the 10 MB that there is room for; nobody has read it" in look(6)
        assert not watch.holds_back
        assert "incremental snapshots wait (slot.pause.percent)" in look(2)
        assert watch.holds_back
        watch.demand()
        look(2)
        with pytest.raises(PrerequisiteError, match=r"slot\.stop\.percent is 95") as caught:
            watch.demand()
        assert "pg_drop_replication_slot" in caught.value.remedy
        assert "start again with the same checkpoint" in caught.value.remedy
        # a new start with the same slot goes on while it catches up
        again = SlotWatch(given, lambda: connect(given), clock)
        again.look(connection)
        kept.execute(f"select pg_replication_slot_advance('{slot(kept)}', pg_current_wal_lsn())")
        with closing(connect(given)) as session:
            session.execute("checkpoint")
        kept.execute(f"select pg_replication_slot_advance('{slot(kept)}', pg_current_wal_lsn())")
        again.look(connection)
        again.demand()
        assert "snapshots go on" in look(0)
        assert not watch.holds_back
    assert [one.type for one in watch.news()] == ["WARNED", "PAUSED", "STOPPED", "FINE"]


def test_an_open_transaction_is_what_holds_a_slot_back(kept: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_MUCH", 0)
    kept.execute("create table t (id int)")
    with kept.connect(autocommit=False) as holder:
        holder.execute("insert into t values (1)")
        pid = holder.info.backend_pid
        write(kept, 2)
        read = SlotLog(slot(kept), "logical", kept.name, 1, False, 3 * MB, MB, None, None, "", None)
        with closing(connect(config(kept))) as connection:
            found = list(retention.causes(connection, read))
    assert any(f"(process {pid}), which is idle in it, has been open" in text for text, _ in found)
    assert any(f"pg_terminate_backend({pid})" in remedy for _, remedy in found)


def test_a_planner_ends_before_the_limit_and_its_snapshots_wait(database: Database) -> None:
    database.execute("create table t (id int primary key)", "insert into t select generate_series(1, 9)", SIGNALS)
    query = Query(database, **{
        "signal.data.collection": "public.debezium_signal",
        "snapshot.mode": "no_data",
        "slot.watch.interval.ms": "0",
        "slot.limit.bytes": str(MB),
        "slot.stop.percent": "90",
    })  # fmt: skip
    watch: SlotWatch = query.planner._source._watch  # type: ignore[attr-defined]
    try:
        query.until(0)
        watch._level = PAUSED
        execute(database, "t")
        query.until(0, seconds=1)
        assert [change for change in query.changes if change[0] == "r"] == []
        watch._level = 0
        until(lambda: query.step() or len([one for one in query.changes if one[0] == "r"]) == 9, "the snapshot", 20)
        write(database, 2)
        with database.connect() as connection:
            watch.look(connection)
            watch.look(connection)
        with pytest.raises(PrerequisiteError, match=r"slot\.stop\.percent"):
            query.step()
    finally:
        query.planner.close()


def test_the_thread_looks_while_nobody_calls_the_planner(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.execute("create table t (id int primary key)")
    options = {"snapshot.mode": "no_data", "slot.watch.interval.ms": "100", "slot.limit.bytes": str(MB)}
    query = Query(database, **options)
    try:
        query.until(0)
        write(database, 2)
        until(lambda: "% of the 1.0 MB that there is room for" in caplog.text, "the warning", 20)
        # a lost session is replaced at the next look
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tailrace' and "
            f"datname = '{database.name}'"
        )
        query.until(0)
    finally:
        query.planner.close()


def test_the_command_lists_and_explains_and_drops_what_no_checkpoint_owns(
    kept: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name = tmp_path / "application.properties", slot(kept)
    given = kept.options(**{"slot.name": name, "topic.prefix": "p", "name": "n"})
    given["checkpoint.location"] = str(tmp_path / "checkpoint")
    lines = [f"debezium.source.{key}={text}" for key, text in given.items()]
    lines += ["debezium.source.connector.class=PostgresConnector", "debezium.sink.type=console"]
    file.write_text("\n".join(lines))
    write(kept, 2)
    assert cli.main(["slots", str(file), "--seconds", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert f"The replication slot {name} keeps" in shown
    assert "for this pipeline, which has no checkpoint here; nobody has read it" in shown
    # it asks, and without a terminal says how to answer
    assert cli.main(["slots", str(file), "--drop", name]) == 2
    assert "Add --yes" in capsys.readouterr().err
    assert cli.main(["slots", str(file), "--drop", "other", "--yes"]) == 4
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    assert cli.main(["slots", str(file), "--drop", name, "--yes"]) == 4
    assert "The checkpoint of this pipeline needs" in capsys.readouterr().err
    (tmp_path / "checkpoint" / "offsets").rmdir()
    assert cli.main(["slots", str(file), "--drop", name, "--yes"]) == 0
    assert f"The slot {name} was dropped." in capsys.readouterr().out
    with kept.connect() as connection:
        count = "select count(*) from pg_replication_slots where slot_name = %s"
        assert connection.execute(count, (name,)).fetchone() == (0,)


def test_a_slot_that_is_read_is_not_dropped(kept: Database) -> None:
    name = slot(kept)
    with closing(psycopg.connect(f"{kept.dsn} replication=database", autocommit=True)) as reader:
        reader.pgconn.exec_(
            f"START_REPLICATION SLOT {name} LOGICAL 0/0 (proto_version '1', publication_names 'none')".encode()
        )
        with pytest.raises(PrerequisiteError, match="is being read by the server process"):
            slot_report.droppable(config(kept), name, has_checkpoint=False)
        (found,) = [one for one in slot_report.report(config(kept), 0, has_checkpoint=True) if one.subject == name]
        assert found.level == "ok"


def test_numbers_in_words() -> None:
    assert [size(number) for number in (5, 2048, 5 * MB, 3 << 40)] == ["5 B", "2.0 kB", "5.0 MB", "3.0 TB"]
    assert [duration(seconds) for seconds in (9, 600, 8000, 200_000)] == ["9 s", "10 minutes", "2 hours", "2 days"]


def test_metrics_have_what_the_watch_has_seen(kept: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    given = config(kept, **{"slot.limit.bytes": str(8 * MB), "slot.warn.percent": "10"})
    watch = SlotWatch(given, lambda: connect(given), Clock())
    assert watch.seen is None
    write(kept, 2)
    with closing(connect(given)) as connection:
        watch.look(connection)
        (seen,) = [one for one in watch.seen.slots if one.is_own]
        assert (watch.seen.level, seen.limit_bytes, seen.is_active) == (1, 8 * MB, False)
        asked = {one.name: replace(one, inactive_s=seen.inactive_s) for one in retention.retention(given).slots}
        assert asked[seen.name] == seen
    # the planner's numbers are these, and nobody else logs in
    planner = PostgresPlanner(given, EventSettings.from_options(given, "run"))
    measures = PlannerMeasures(given, planner)
    monkeypatch.setattr(retention, "connect", lambda *_: pytest.fail("a second session"))
    monkeypatch.setattr(planner, "retention", lambda: watch.seen)
    measures.sample()
    assert measures._content()["retention"]["level"] == 1
    assert seen.name in {one["name"] for one in measures._content()["retention"]["slots"]}
    measures.close()
    planner.close()


def test_a_watch_that_nobody_closes_ends_with_its_planner(kept: Database) -> None:
    given = config(kept, **{"slot.watch.interval.ms": "100"})
    before = set(threading.enumerate())
    watches = [SlotWatch(given, lambda: connect(given), Threads())]
    watches[0].start()
    until(lambda: watches[0].seen is not None, "a look", 10)
    (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "tailrace-slot"]
    watches.clear()
    gc.collect()
    until(lambda: not thread.is_alive(), "the thread's end", 10)
