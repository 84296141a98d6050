"""Send a signal as a row of the signal table. Driver."""

from __future__ import annotations

from contextlib import closing

from tailrace.config import Config
from tailrace.connectors.changetables.loading import dialect
from tailrace.connectors.changetables.snapshot.windows import signal_table
from tailrace.errors import ConfigError
from tailrace.snapshot.signals import Signal


def send(config: Config, signal: Signal) -> str:
    """Write the row, and return the table's name.

    Raises ConfigError if no table is named, ConnectionFailed, and PrerequisiteError if the server refuses the row.
    """
    database = dialect(config)
    table = signal_table(config["signal.data.collection"], database.databases)
    if table is None:
        raise ConfigError("No signal table is named.", "Name one in signal.data.collection.")
    with closing(database.connect(table.database)) as session:
        session.write_signal(table, signal.id, signal.type, signal.data)
    return str(table)
