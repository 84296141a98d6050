"""A runner of Db2's golden cases on Derby with the simulated capture program.

Their expected records are written by hand after the documentation of Debezium's Db2 connector, because no Debezium
reads Derby.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.connectors.changetables.log.sessions import close_idle
from tests.fix_db2 import dsn
from tests.golden import script
from tests.golden.case import Case
from tests.golden.compare import Terms, differences
from tests.golden.stream import opened
from tests.golden.tds_normalise import TdsNormaliser
from tests.golden.wire import Reader
from tests.servers import derby
from tests.servers.asn import Capture
from tests.servers.derby import DRIVER, Derby

DATABASE = "GOLDEN"
_OTHERS = ("ASNCDC", "PLAYED")


@contextmanager
def server() -> Iterator[Derby]:
    """Run a server for golden cases. Raises tests.servers.jars.Unavailable if its jars cannot be fetched."""
    with Derby(derby.fetch()) as started:
        yield started


def run(case: Case, server: Derby, spark: SparkSession | None, folder: Path) -> Iterator[str]:
    """Return the differences in one run of the case on a fresh database. Raises Failed.

    Every statement of the case is one transaction.
    """
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
        options = case.options(variables) | driver
        # Each call of the planner asks the server for all captured changes.
        stream = opened(spark, "db2", options, folder / "checkpoint", lambda: 0, _Renamed(name))
        stream.start()
        try:
            stream.catch_up()
            for item in case.workload():
                if isinstance(item, script.Statement):
                    capture.run(item.text)
            stream.catch_up()
        finally:
            stream.stop()
    finally:
        close_idle()
        capture.close()
        server.drop(name)
    terms = Terms(
        normaliser=partial(TdsNormaliser),
        value_reason=lambda place, wanted, got: None,
        schema_reason=lambda wanted, got: None,
    )
    yield from differences(case.expected(), stream.records(), terms)


class _Renamed(Reader):
    """A reader of one run's events under the name of the database in the recordings."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def read(self, text: str) -> object:
        return super().read(text.replace(f'"db":"{self._name}"', f'"db":"{DATABASE}"'))
