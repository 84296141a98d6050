"""Removal of the objects of a pipeline on a server of MySQL or MariaDB: its signal table. Driver.

The reader of the log is a replica while it runs, and leaves no objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tailrace.config import Config
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.server.connection import connect, rows
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.signal_table import SignalTable
from tailrace.connectors.removal import OTHER_SERVER, UNKNOWN, Removable, Removal, shaped


def _found(config: Config, stored: Mapping[str, Any] | None) -> list[Removable]:
    if not config["signal.data.collection"]:
        return []
    table = SignalTable(config)
    with closing(connect(config)) as session:
        texts = table.texts(session)
        if not texts:
            return []
        kept = UNKNOWN if stored is None else shaped(texts)
        if stored is not None:
            server = BinlogOffset.from_json(dict(stored)).log.server
            if server and server != identify(session).uuid:
                kept = OTHER_SERVER
    return [Removable(f"the signal table {table}", f"DROP TABLE {table.quoted}", kept)]


def _remove(config: Config, part: Removable) -> None:
    with closing(connect(config)) as session:
        rows(session, part.statement)


REMOVAL = Removal(explained(_found), explained(_remove))
