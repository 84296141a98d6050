"""The time for which a server keeps its binary log. Planner.

A server removes a log file once `binlog_expire_logs_seconds` have passed since its last change. MariaDB also removes
the oldest files if all exceed `max_binlog_total_size`. MySQL manual, "Binary Logging Options and Variables"; MariaDB,
"Using and Maintaining the Binary Log".
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tailrace.config import Config
from tailrace.connectors.binlog.dialect import MARIADB
from tailrace.connectors.binlog.log.dump import Dump, ServerRefused
from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.server.connection import connect, dialect_of, rows, variables
from tailrace.connectors.binlog.server.errors import explained
from tailrace.errors import ConnectionFailed
from tailrace.log.retention import LogRetention
from tailrace.process.runtime import THREADS

_SETTING = "binlog_expire_logs_seconds (on RDS: mysql.rds_set_configuration('binlog retention hours', …))"
_SECONDS = 5.0
_begun: dict[tuple[str, str], float] = {}
"""The creation times of the oldest files, by server and file, in s since 1970. They do not change."""


@explained
def retention(config: Config) -> LogRetention:
    """Return the time of the oldest log file, and the seconds for which the server keeps changes."""
    with closing(connect(config)) as session:
        given = variables(
            session, "binlog_expire_logs_seconds", "expire_logs_days", "max_binlog_total_size", "server_uuid",
            "server_id",
        )  # fmt: skip
        files = {str(row[0]): int(row[1]) for row in rows(session, "SHOW BINARY LOGS")}
    kept_s = float(given.get("binlog_expire_logs_seconds") or 0)
    kept_s = kept_s or float(given.get("expire_logs_days") or 0) * 86_400
    first = min(files, key=number_of, default="")
    oldest_s = _oldest(config, given.get("server_uuid", given.get("server_id", "")), first) if first else None
    lasting_s, most = None, int(given.get("max_binlog_total_size") or 0)
    if most and oldest_s is not None:
        # at the rate at which the current files were written
        lasting_s = max(time.time() - oldest_s, 1.0) * max(most / max(sum(files.values()), 1), 1.0)
        lasting_s = min(lasting_s, kept_s or lasting_s)
    setting = f"{_SETTING}, and max_binlog_total_size" if most else _SETTING
    newest = _end(files) if files else None
    return LogRetention(oldest_s=oldest_s, kept_s=kept_s or None, lasting_s=lasting_s, setting=setting, newest=newest)


def _end(files: Mapping[str, int]) -> dict[str, Any]:
    """Return the end of the log as an offset in JSON, with the sizes of all files."""
    last = max(files, key=number_of)
    return BinlogOffset(BinlogPosition(last, max(files[last] - 1, 0), files[last])).to_json() | {"files": dict(files)}


def _oldest(config: Config, server: str, file: str) -> float | None:
    """Return the creation time of a log file; None if the server does not send the file."""
    known = _begun.get((server, file))
    if known is None:
        try:
            known = _time_of(config, file)
        except (ConnectionFailed, ServerRefused, EOFError):
            known = None
        if known is not None:
            _begun.clear()
            _begun[server, file] = known
    return known


def _time_of(config: Config, file: str) -> float | None:
    """Return the time in the header of a log file, which only a dump shows.

    The dump has a random server id, since with the id of another replica it would end that replica's dump.
    """
    number = random.SystemRandom().randrange(1 << 16, 1 << 31)
    bell = THREADS.bell()
    with closing(connect(config, dump=True)) as session:
        dump = Dump(session, bell, 1.0)
        try:
            dump.prepare(dialect_of(config) is MARIADB)
            dump.begin(number, file, 4)
            deadline = time.monotonic() + _SECONDS
            while time.monotonic() < deadline:
                dump.wait(1.0, lambda: False)
                buffer, spans = dump.take()
                for begin, _ in spans:
                    (seconds,) = struct.unpack_from("<I", buffer, begin)
                    # the first event of a dump is artificial and has no time
                    if seconds:
                        return float(seconds)
        finally:
            bell.close()
    return None
