"""Signals, incremental and blocking snapshots over change tables, against a database in memory."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.changetables.log.sessions import close_idle
from tailrace.connectors.changetables.snapshot import windows
from tailrace.errors import ConfigError
from tests.extent import examples
from tests.unit.changetables.driving import Event, Query, batches_for_rows, brief  # noqa: F401
from tests.unit.changetables.memory import Row, Server

SIGNALS = {"signal__data__collection": "db.dbo.signals", "snapshot__mode": "no_data"}


def server(**more: object) -> Server:
    made = Server("w", **more)  # type: ignore[arg-type]
    made.table("dbo.a", ("id", "v"), ("id",))
    made.table("dbo.signals", ("id", "type", "data"), ("id",))
    return made


def signal(database: Server, kind: str = "execute-snapshot", name: str = "s1", **data: object) -> None:
    fields = {"data-collections": ["db.dbo.a"], "type": "incremental"} | data
    database.commit(("dbo.signals", "c", None, (name, kind, json.dumps(fields))))


def of_a(events: list[Event]) -> list[Event]:
    return [event for event in events if event.table == "dbo.a"]


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
@pytest.mark.parametrize("pairs", [False, True])
def test_reads_a_table_in_windows(strategy: str, pairs: bool) -> None:
    database = server(pairs=pairs)
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(10)])
    query = Query(
        database,
        **SIGNALS,
        incremental__snapshot__chunk__size="3",
        incremental__snapshot__window__chunks="1",
        incremental__snapshot__watermarking__strategy=strategy,
    )
    query.drain()
    signal(database)
    events = query.drain()
    reads = of_a(events)
    assert [event.after for event in reads] == [(f"{number:03}", "x") for number in range(10)]
    assert {event.marker for event in reads} == {"incremental"}
    # Each window has the positions of its closing watermark.
    closing = [event for event in events if event.op == "d" or (event.after or ("",))[0].endswith("-close")]  # type: ignore[union-attr]
    numbers = [(event.commit, event.change, event.serial) for event in closing if event.table == "dbo.signals"]
    assert [(event.commit, event.change, event.serial) for event in reads] == [
        numbers[row // 3] for row in range(len(reads))
    ]
    kinds = [event.op for event in events if event.table == "dbo.signals"]
    # The last window finds the end of the table.
    assert kinds.count("d") == (5 if strategy == "insert_delete" else 0)
    assert query.start is not None
    assert "state" not in query.start["progress"]


def test_the_log_wins() -> None:
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(6)])
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database)
    first = query.batch()
    assert first is not None
    database.commit(("dbo.a", "u", ("001", "x"), ("001", "y")), ("dbo.a", "d", ("002", "x"), None))
    database.commit(("dbo.a", "u", ("003", "x"), ("103", "x")))
    events = of_a(query.batch() or [])
    read = {event.after[0] for event in events if event.op == "r" and event.after}
    assert read == {"000", "004", "005"}
    assert sorted(event.op for event in events if event.op != "r") == ["c", "d", "d", "u"]


def test_a_change_supersedes_only_its_own_row_where_a_surrogate_key_has_several() -> None:
    database = Server("w")
    database.table("dbo.a", ("id", "v"), ())
    database.table("dbo.signals", ("id", "type", "data"), ("id",))
    database.commit(*[("dbo.a", "c", None, ("1", f"x{number}")) for number in range(4)])
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database, **{"surrogate-key": "id"})
    assert query.batch() is not None
    database.commit(("dbo.a", "u", ("1", "x1"), ("1", "y")), ("dbo.a", "d", ("1", "x2"), None))
    events = of_a(query.batch() or [])
    assert sorted(event.after[1] or "" for event in events if event.op == "r" and event.after) == ["x0", "x3"]


@pytest.mark.parametrize("key", [("id",), ()])
def test_rows_are_read_where_a_surrogate_key_is_null_in_all(key: tuple[str, ...]) -> None:
    database = Server("w")
    database.table("dbo.a", ("id", "v"), key)
    database.table("dbo.signals", ("id", "type", "data"), ("id",))
    database.commit(*[("dbo.a", "c", None, (f"{number}", None)) for number in range(5)])
    query = Query(database, **SIGNALS, incremental__snapshot__chunk__size="2")
    query.drain()
    signal(database, **{"surrogate-key": "v"})
    events = of_a(query.drain())
    assert [(event.op, event.after) for event in events] == [("r", (f"{number}", None)) for number in range(5)]
    assert query.start is not None
    assert "state" not in query.start["progress"]


def test_a_change_supersedes_only_its_own_row_where_a_part_of_the_key_is_captured() -> None:
    database = Server("w", partial=frozenset(("dbo_a",)))
    # the rows of the table differ in the column v, which stands for the rest of the key
    database.table("dbo.a", ("id", "v"), ("id", "v"))
    database.table("dbo.signals", ("id", "type", "data"), ("id",))
    database.commit(*[("dbo.a", "c", None, ("1", f"x{number}")) for number in range(4)])
    query = Query(database, **SIGNALS)
    query.drain()
    assert query.start is not None
    signal(database)
    assert query.batch() is not None
    database.commit(("dbo.a", "u", ("1", "x1"), ("1", "y")), ("dbo.a", "d", ("1", "x2"), None))
    query.restart()
    events = of_a(query.batch() or [])
    assert sorted(event.after[1] or "" for event in events if event.op == "r" and event.after) == ["x0", "x3"]


def test_a_table_of_which_a_part_of_the_key_is_captured_is_read_again_from_the_start_of_a_chunk() -> None:
    database = Server("w", partial=frozenset(("dbo_a",)), failing_rows=(1,))
    database.table("dbo.a", ("id", "v"), ("id", "v"))
    database.commit(*[("dbo.a", "c", None, ("1", f"x{number}")) for number in range(9)])
    query = Query(database)
    assert {event.after for event in query.drain()} == {("1", f"x{number}") for number in range(9)}


@pytest.mark.parametrize("key", [("v",), ("v", "id")])
def test_a_table_that_gets_another_key_while_it_is_read_is_read_from_its_beginning(
    key: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", f"{900 - number:03}")) for number in range(9)])
    limits = {"incremental__snapshot__chunk__size": "2", "incremental__snapshot__window__chunks": "1"}
    query = Query(database, **SIGNALS, **limits)
    query.drain()
    signal(database)
    found: list[Event] = []
    while not found:
        found = [event for event in of_a(query.batch() or []) if event.op == "r"]
    database.tables["dbo.a"].key = key
    database.enable("dbo.a", "_2")
    events = of_a(query.drain())
    assert {event.after for event in events if event.op == "r"} == {
        (f"{number:03}", f"{900 - number:03}") for number in range(9)
    }
    assert "dbo.a has another key than before" in caplog.text


@pytest.mark.parametrize("surrogate", [False, True])
def test_a_key_whose_texts_are_no_bounds_has_no_windows(surrogate: bool, caplog: pytest.LogCaptureFixture) -> None:
    database = Server("w", kinds={"b": "sql_variant"})
    database.table("dbo.a", ("id", "b"), ("id",) if surrogate else ("id", "b"))
    database.table("dbo.signals", ("id", "type", "data"), ("id",))
    database.commit(*[("dbo.a", "c", None, (f"{number}", "x")) for number in range(3)])
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database, **({"surrogate-key": "b"} if surrogate else {}))
    assert of_a(query.drain()) == []
    assert f"ranges of {'b' if surrogate else 'id, b'} cannot be read, because of its type" in caplog.text
    assert "dbo.a is left out: it has no primary key" in caplog.text


def test_an_initial_snapshot_reads_a_table_whose_key_cannot_bound_ranges_as_one() -> None:
    database = Server("w", kinds={"b": "sql_variant"})
    database.table("dbo.a", ("id", "b"), ("id", "b"))
    database.commit(*[("dbo.a", "c", None, (f"{number}", "x")) for number in range(9)])
    events = Query(database).drain(max_rows=2)
    assert sorted(event.after or () for event in events) == [(f"{number}", "x") for number in range(9)]
    assert database.calls.get("boundary") is None


def test_a_restart_reads_an_unfinished_window_again() -> None:
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(9)])
    query = Query(
        database, **SIGNALS, incremental__snapshot__chunk__size="3", incremental__snapshot__window__chunks="1"
    )
    query.drain()
    signal(database)
    assert query.batch() is not None
    end = query.plan()
    assert end is not None
    # The batch is planned, and the query killed before its rows were written: Spark plans the same batch again.
    query.restart()
    assert of_a(query.read(end)) == []
    query.start = end
    assert {event.after[0] for event in of_a(query.drain()) if event.after} == {f"{number:03}" for number in range(9)}


@pytest.mark.parametrize("condition", ["broken", "endless"])
def test_a_filter_and_a_stop(condition: str) -> None:
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(9)])
    query = Query(
        database, **SIGNALS, incremental__snapshot__chunk__size="2", incremental__snapshot__window__chunks="1"
    )
    query.drain()
    signal(database)
    query.batch()
    query.batch()
    signal(database, "stop-snapshot", "s2")
    reads = [event for event in of_a(query.drain()) if event.op == "r"]
    assert len(reads) == 2
    signal(database, name="s3", **{"additional-conditions": [{"data-collection": "db.dbo.a", "filter": condition}]})
    assert of_a(query.drain()) == []
    assert query.start is not None
    assert "state" not in query.start["progress"]


def test_signals_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(
        database,
        **SIGNALS,
        signal__enabled__channels="source,file",
        signal__file=str(path),
        signal__poll__interval__ms="1",
    )
    query.drain()
    path.write_text(json.dumps({"id": "f", "type": "execute-snapshot", "data": {"data-collections": ["dbo.a"]}}))
    assert [event.after for event in of_a(query.drain())] == [("1", "x")]


def test_a_blocking_snapshot_reads_the_tables_of_its_signal() -> None:
    database = server()
    database.table("dbo.b", ("id",), ("id",))
    database.commit(("dbo.a", "c", None, ("1", "x")), ("dbo.b", "c", None, ("1",)))
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database, type="blocking")
    events = [event for event in query.drain() if event.table != "dbo.signals"]
    assert [(event.table, event.op, event.after) for event in events] == [("dbo.a", "r", ("1", "x"))]
    database.commit(("dbo.a", "c", None, ("2", "x")))
    assert brief(query.drain()) == [("dbo.a", "c", None, ("2", "x"))]


def test_a_blocking_snapshot_of_a_query_that_ends_at_the_present_waits_for_no_later_change() -> None:
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database, type="blocking")
    query.planner.stop_at_present()
    database.commit(("dbo.signals", "c", None, ("later", "none", None)))
    assert [event.op for event in of_a(query.drain())] == ["r"]


def test_a_watermark_that_is_not_captured_voids_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_SECONDS", 0.05)
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(database, **SIGNALS)
    query.drain()
    signal(database)
    query.batch()
    database.eager = False
    assert query.drain() == []
    database.eager = True
    database.capture()
    assert [event.after for event in of_a(query.drain())] == [("1", "x")]


def test_a_signal_table_needs_a_change_table() -> None:
    database = server()
    database.disable("dbo_signals")
    with pytest.raises(ConfigError, match="has no change table"):
        Query(database, **SIGNALS).drain()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_every_row_ends_in_its_last_state(seed: int, pairs: bool) -> None:
    """With random transactions between any two calls, restarts and a late capture, consumers end with the table itself,
    and neither a window's row nor a later change is older than what they have seen of its key."""
    close_idle()
    chance = random.Random(seed)
    database = server(pairs=pairs, eager=False)
    query = Query(
        database,
        signal__data__collection="db.dbo.signals",
        incremental__snapshot__chunk__size="2",
        incremental__snapshot__window__chunks=str(chance.randint(1, 3)),
    )
    state: dict[str, str | None] = {}
    seen: dict[str, str] = {}
    version = 0

    def work() -> None:
        nonlocal version
        for _ in range(chance.randint(0, 3)):
            rows = database.tables["dbo.a"].rows
            changes: list[tuple[str, str, Row | None, Row | None]] = []
            touched: set[str] = set()
            for _ in range(chance.randint(1, 3)):
                version += 1
                key = f"{chance.randrange(12):02}"
                if key in touched:
                    continue
                touched.add(key)
                old = rows.get((key,))
                kind = chance.random()
                if old is None:
                    changes.append(("dbo.a", "c", None, (key, f"{version:06}")))
                elif kind < 0.6:
                    changes.append(("dbo.a", "u", old, (key, f"{version:06}")))
                else:
                    changes.append(("dbo.a", "d", old, None))
            if changes:
                database.commit(*changes)
        if chance.random() < 0.8:
            database.capture()

    written = database.__class__.commit

    def commit_and_more(self: Server, *changes: tuple[str, str, Row | None, Row | None]) -> int:
        """Let the capture process run by itself while a watermark is awaited."""
        done = written(self, *changes)
        if changes[0][0] == "dbo.signals":
            self.capture()
        return done

    def apply(events: list[Event]) -> None:
        for event in sorted(of_a(events), key=lambda one: (one.op == "r", one.commit, one.change or 0)):
            # An update of another key becomes a delete and a create.
            if event.before is not None:
                state.pop(event.before[0] or "", None)
            if event.after is not None:
                key, value = event.after[0] or "", event.after[1] or ""
                state[key] = value
                if event.op != "r" or event.marker == "incremental":
                    assert value >= seen.get(key, "")
                    seen[key] = value

    database.commit = commit_and_more.__get__(database)  # type: ignore[method-assign]
    for step in range(12):
        work()
        if step == 2:
            signal(database)
        end = query.plan()
        work()
        if end is not None:
            if chance.random() < 0.2:
                query.restart()
            apply(query.read(end))
            query.start = end
        if chance.random() < 0.15:
            query.restart()
    database.capture()
    apply(query.drain())
    database.capture()
    apply(query.drain())
    assert state == {key[0]: row[1] for key, row in database.tables["dbo.a"].rows.items()}
    assert query.start is not None
    assert "state" not in query.start.get("progress", {})


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_a_condition_that_could_be_more_is_told_and_ignored(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(database, **SIGNALS)
    query.drain()
    stacked = "1=1); delete from dbo.a; select * from (select 1 as x where (1=1"
    conditions = [{"data-collection": "db.dbo.a", "filter": stacked}]
    signal(database, type=kind, **{"additional-conditions": conditions})
    assert of_a(query.drain()) == []
    assert "signal s1 is ignored: its condition is refused: it closes a parenthesis" in caplog.text
    assert "delete" not in caplog.text
    signal(database, name="s2")
    assert [event.op for event in of_a(query.drain())] == ["r"]
