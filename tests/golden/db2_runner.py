"""Runs the golden cases of Db2 on Derby with the played capture program, in this process.

Their expected records are written by hand after Debezium's document of its Db2 connector: no Debezium reads Derby.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tailrace.connectors.base import Planner
from tailrace.connectors.changetables.log.sessions import close_idle
from tailrace.connectors.changetables.start import planner
from tailrace.connectors.registry import parse
from tailrace.events.settings import EventSettings
from tests.fix_db2 import dsn
from tests.golden import script, wire
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.record import Record, produced
from tests.golden.tds_normalise import TdsNormaliser
from tests.servers import derby
from tests.servers.asn import Capture
from tests.servers.derby import DRIVER, Derby

DATABASE = "GOLDEN"
_OTHERS = ("ASNCDC", "PLAYED")
RUN = "00000000-0000-7000-8000-000000000000"


@contextmanager
def server() -> Iterator[Derby]:
    """A server for golden cases; raises tests.servers.jars.Unavailable where its jars cannot be fetched."""
    with Derby(derby.fetch()) as started:
        yield started


def run(case: Case, server: Derby) -> Iterator[str]:
    """What differs in one run of the case on a fresh database, every statement of which is one transaction."""
    server.drop(DATABASE)
    name = f"G{time.monotonic_ns() % 10**6:06d}"
    server.make(name)
    capture = Capture(dsn(server, name))
    try:
        capture.install()
        for item in script.split(case.read("setup.sql")):
            if isinstance(item, script.Statement):
                capture.execute(item.text)
        for row in capture.session.rows("CALL SYSIBM.SQLTABLES(NULL, '%', '%', 'TABLE', 'DATATYPE=''JDBC''')"):
            if row[1] not in _OTHERS:
                capture.register(row[1], row[2])
        capture.capture()
        variables = {
            "DB2HOST": "127.0.0.1",
            "DB2PORT": str(server.port),
            "DB2USER": server.user,
            "DB2PASSWORD": server.password,
            "DB2DATABASE": name,
        }
        driver = {f"driver.{keyword}": value for keyword, value in DRIVER.items()}
        config = parse("db2", case.options(variables) | driver | {"poll.interval.ms": "1"})
        query = _Query(planner(config, EventSettings.from_options(config, RUN)), name)
        query.drain()
        for item in case.workload():
            if isinstance(item, script.Statement):
                capture.run(item.text)
        query.drain()
        query.planner.close()
    finally:
        close_idle()
        capture.close()
        server.drop(name)
    terms = Terms(
        normaliser=partial(TdsNormaliser),
        value_reason=lambda place, wanted, got: None,
        schema_reason=lambda wanted, got: None,
    )
    yield from differences(case.expected(), query.records, terms)


class _Query:
    """A query in this process: its records, with the database's name of this run made the constant one."""

    def __init__(self, planner: Planner, name: str) -> None:
        self.planner = planner
        self.records: list[Record] = []
        self._name = name.encode()
        self._reader = wire.Reader()
        self._start: dict[str, Any] | None = None

    def drain(self) -> None:
        """Every batch that there is now."""
        if self._start is None:
            self._start = self.planner.initial_offset()
        while (end := json.loads(json.dumps(self.planner.latest_offset(self._start, None, None)))) != self._start:
            for task in self.planner.partitions(self._start, end):
                for batch in task.read():
                    self.records += map(self._record, batch.to_pylist())
            self._start = end

    def _record(self, row: dict[str, Any]) -> Record:
        value = row["value"] and row["value"].replace(b'"db":"' + self._name, b'"db":"' + DATABASE.encode())
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
        return produced(row["topic"], row["key"], value, headers, self._reader)
