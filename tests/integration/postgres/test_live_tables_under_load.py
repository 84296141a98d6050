"""A table among fifty others is added, paused, read again and removed under load, with the process killed now and then.

The kills and the writes depend on the seed in the name of the case. With an even seed the commands go to the signal
table, with an odd one to the pipeline's HTTP server.
"""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date

import pytest

from tailrace.connectors import signalling
from tailrace.connectors.registry import parse
from tailrace.monitoring.health import Health
from tailrace.monitoring.monitor import described
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.monitoring.server import HttpServer
from tailrace.snapshot.signals import Signal
from tests.extent import sized
from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.live import Make, latest, send, settle, source, state
from tests.waiting import until

TABLES = 50
COMMANDS = 6
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
        self._kills_after = seed % COMMANDS
        self._commands = 0

    def commanded(self) -> None:
        """Kill the process behind the command that the seed chooses, before it has read the command."""
        if self._commands == self._kills_after:
            self.query.kill()
            self.kills += 1
        self._commands += 1

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


class Commands:
    """Sends commands by the signal table, or by an HTTP server of the pipeline."""

    def __init__(self, database: Database, run: Run, *, by_http: bool) -> None:
        self._database, self._run, query = database, run, run.query
        self._server: HttpServer | None = None
        if by_http:
            config = parse("postgres", database.options(**query.options))
            observation = Observation(described, PipelineNames("live", "s", "postgres"))
            self._server = HttpServer(
                observation, Health(observation, 60), host="127.0.0.1", port=0, token="a-token-of-tests",
                send=lambda identity, kind, data: signalling.send(config, Signal(identity, kind, data)),
                has_tables=True,
            )  # fmt: skip
            self._server.start()

    def send(self, kind: str, table: str, identity: str) -> None:
        self._sent(kind, table, identity)
        self._run.commanded()

    def _sent(self, kind: str, table: str, identity: str) -> None:
        if self._server is None:
            send(self._database, kind, table, id=identity)
            return
        body = {"id": identity, "type": kind, "data": json.dumps({"data-collections": [table]})}
        headers = {"Content-Type": "application/json", "Authorization": "Bearer a-token-of-tests"}
        address = f"{self._server.address}api/signals"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@pytest.mark.parametrize("seed", sized([date.today().toordinal() % 12], [*range(12)]))
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
    with load(database) as written, closing(Commands(database, run, by_http=bool(seed % 2))) as commands:
        run.steps(3)
        commands.send("add-tables", last, "add")
        run.steps(4)
        commands.send("pause-tables", last, "pause")
        run.steps(4)
        commands.send("execute-snapshot", "public.t3", "again")
        run.steps(4)
        commands.send("resume-tables", last, "resume")
        run.steps(6)
        commands.send("remove-tables", "public.t7", "remove")
        until(lambda: (run.steps(1), "public.t7" in removed(query))[1], "the removal", 20)
        run.steps(3)
        commands.send("add-tables", "public.t7", "back")
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
