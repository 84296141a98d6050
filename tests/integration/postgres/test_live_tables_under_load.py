"""A table among fifty others is added, paused, read again and removed under load, with the process killed now and then.

The kills, the writes and the order of commands depend on the seed in the name of the case.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.extent import sized
from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.live import Make, latest, send, settle, source, state
from tests.integration.postgres.signalled import execute
from tests.waiting import until

TABLES = 50
PAUSE_S = 0.025
"""A transaction of some fifty changes follows each such pause: 2,000 changes a second."""

# Rows are inserted, updated and deleted in five tables of a transaction.
_BURST = f"""
create function burst(step int) returns void language plpgsql as $$
begin
  for i in 0..4 loop
    execute format('insert into t%s select g, $1::text from generate_series(($1 * 7) %% 90, ($1 * 7) %% 90 + 7) g
                    on conflict (id) do update set v = excluded.v', (step * 11 + i * 7) % {TABLES}) using step;
    execute format('delete from t%s where id in (($1 * 13) %% 97, ($1 * 17) %% 97)', (step * 11 + i * 7) % {TABLES})
      using step;
  end loop;
end $$
"""


@contextmanager
def load(database: Database) -> Iterator[list[int]]:
    """Write beside the test; the list's only number counts the transactions."""
    ended, steps = threading.Event(), [0]

    def write() -> None:
        with database.connect() as connection:
            while not ended.wait(PAUSE_S):
                steps[0] += 1
                connection.execute("select burst(%s)", (steps[0],))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield steps
    finally:
        ended.set()
        thread.join()


class Run:
    """Steps of a query, each of which a kill may interrupt."""

    def __init__(self, query: Query, seed: int) -> None:
        self.query, self._chance = query, random.Random(seed)
        self.kills = 0

    def steps(self, count: int) -> None:
        for _ in range(count):
            fate = self._chance.random()
            if fate < 0.1:
                # planned and read, and not committed
                self.query.step(commit=False)
            if fate < 0.2:
                self.query.kill()
                self.kills += 1
            self.query.step()


@pytest.mark.parametrize("seed", range(sized(1, 12)))
def test_nothing_is_lost_in_any_table(database: Database, make: Make, seed: int) -> None:
    for number in range(TABLES):
        database.execute(
            f"create table t{number} (id int primary key, v text)",
            f"insert into t{number} select i, 'first' from generate_series(1, 60) i",
        )
    database.execute(_BURST)
    listed = ",".join(f"public.t{number}" for number in range(TABLES - 1))
    query = make(
        table_include_list=f"{listed},public.debezium_signal", incremental_snapshot_window_chunks="1",
        incremental_snapshot_chunk_size="16",
    )  # fmt: skip
    run = Run(query, seed)
    last = f"public.t{TABLES - 1}"
    settle(query)
    with load(database) as written:
        run.steps(3)
        send(database, "add-tables", last, id="add")
        run.steps(4)
        send(database, "pause-tables", last, id="pause")
        run.steps(4)
        execute(database, "public.t3", id="again")
        run.steps(4)
        send(database, "resume-tables", last, id="resume")
        run.steps(6)
        send(database, "remove-tables", "public.t7", id="remove")
        until(lambda: (run.steps(1), "public.t7" in removed(query))[1], "the removal", 20)
        run.steps(3)
        send(database, "add-tables", "public.t7", id="back")
        run.steps(4)
        until(lambda: written[0] > 40, "some writes", 20)
    settle(query)
    query.step()
    settle(query)
    assert run.kills
    assert state(query)["added"] == [["public", f"t{TABLES - 1}"]]
    for number in range(TABLES):
        # rows that were deleted while t7 was removed are in no event
        whole, found = source(database, f"t{number}"), latest(query, f"t{number}")
        assert {key: found.get(key) for key in whole} == whole, number
        assert number == 7 or found == whole, number


def removed(query: Query) -> set[str]:
    return {".".join(one) for one in (state(query) or {}).get("removed", ())}
