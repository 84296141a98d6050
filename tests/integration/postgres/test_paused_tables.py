"""Tables whose reading is paused and resumed, with the process killed between any two steps."""

from __future__ import annotations

import pytest

from tailrace.connectors.postgres.live_tables import listed
from tailrace.connectors.registry import parse
from tests.extent import by_day
from tests.fix_postgres import Database
from tests.integration.postgres.live import Make, latest, send, settle, source
from tests.integration.postgres.signalled import SINK, execute, reads
from tests.waiting import until

MANY = "insert into b select i, 'more' from generate_series(100, 180) i"


@pytest.mark.parametrize("killed_after", by_day(range(5), 2))
def test_a_table_is_paused_and_resumed_whenever_the_process_is_killed(
    database: Database, make: Make, killed_after: int
) -> None:
    database.execute(MANY)
    query = make(table_include_list="public.a,public.b,public.debezium_signal", incremental_snapshot_window_chunks="1")
    settle(query)
    query.changes.clear()
    execute(database, "public.b", "public.a")
    until(lambda: (query.step(), len(reads(query, "b")) >= 8)[1], "some rows", 20)
    send(database, "pause-tables", "public.b", id="pause")
    for step in range(5):
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
        database.execute(f"update b set v = 'while paused {step}' where id = {100 + step}")
    settle(query)
    held = query.committed["progress"]["held"]
    assert [one[0][:2] for one in held] == [["public", "b"]]
    assert 0 < len({row[0] for row in reads(query, "b")}) < 60
    # the table behind it was read, and changes of the paused table have arrived
    assert latest(query, "a") == source(database, "a")
    assert len([one for one in query.changes if one[:2] == ("u", "b")]) == 5
    config = parse("postgres", database.options(**query.options))
    assert ("public.b", "by the lists; its reading is paused: tailrace tables resume") in listed(
        config, query.committed
    )
    send(database, "resume-tables", "public.b", id="resume")
    for step in range(5):
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
    settle(query)
    assert "held" not in query.committed["progress"]
    assert latest(query, "b") == source(database, "b")
    # it goes on where it was paused: at most a window is read again for each pause and each kill
    assert len(reads(query, "b")) <= 90 + 3 * 4


def test_what_becomes_of_a_paused_table(database: Database, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.execute(MANY)
    lists = {"table_include_list": "public.a,public.b,public.debezium_signal"}
    query = make(**lists, **SINK, incremental_snapshot_window_chunks="1")
    settle(query)
    send(database, "pause-tables", "public.a", id="c0")
    send(database, "resume-tables", "public.a", id="c1")
    settle(query)
    assert "public.a is not paused, for no incremental snapshot reads it. Its changes go on" in caplog.text
    assert "no paused table is named public.a" in caplog.text
    for number, (kind, told) in enumerate((("stop-snapshot", "ABORTED"), ("remove-tables", "REMOVED"))):
        execute(database, "public.b", id=f"read{number}")
        send(database, "pause-tables", "public.b", id=f"pause{number}")
        until(lambda: (query.step(), "held" in query.committed["progress"])[1], "the pause", 20)
        send(database, kind, "public.b", id=f"end{number}")
        until(lambda: (query.step(), "held" not in query.committed["progress"])[1], kind, 20)
        settle(query)
        assert [one.type for one in query.notifications][-1] == told
    assert "PAUSED" in [one.type for one in query.notifications]


OTHER_KEYS = (
    "alter table b drop constraint b_pkey, alter v set not null, add primary key (v, id)",
    "alter table b drop constraint b_pkey, add n int generated always as (1000 - id) stored, add primary key (n)",
    "alter table b drop constraint b_pkey, alter id type uuid using md5(id::text)::uuid, add primary key (id)",
)


@pytest.mark.parametrize("statement", OTHER_KEYS)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_gets_another_key_while_its_reading_is_paused(
    database: Database, make: Make, is_killed: bool, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(MANY)
    query = make(table_include_list="public.a,public.b,public.debezium_signal", incremental_snapshot_window_chunks="1")
    settle(query)
    query.changes.clear()
    execute(database, "public.b")
    until(lambda: (query.step(), len(reads(query, "b")) >= 8)[1], "some rows", 20)
    send(database, "pause-tables", "public.b", id="pause")
    settle(query)
    assert "held" in query.committed["progress"]
    database.execute(statement)
    query.changes.clear()
    if is_killed:
        query.kill()
    send(database, "resume-tables", "public.b", id="resume")
    settle(query)
    assert set(latest(query, "b")) == set(source(database, "b"))
    assert "public.b has another key than before: it is read again from its beginning" in caplog.text
