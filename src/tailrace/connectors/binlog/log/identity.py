"""The identity of a session's server, and the extent of its log. Planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.errors import PrerequisiteError

if TYPE_CHECKING:
    from pymysql.connections import Connection

_WANTED = (
    "version", "log_bin", "binlog_format", "binlog_row_image", "server_uuid", "server_id", "gtid_mode", "gtid_purged",
    "gtid_executed", "gtid_binlog_pos", "hostname", "port", "wsrep_on", "wsrep_gtid_mode",
    "binlog_storage_engine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A server, and the extent of its log.

    `uuid` is the server's UUID; for MariaDB, which has none, its id and address. `executed` are the transactions that
    it has executed, `purged` those that its log no longer has. The log ends at `end` of `file`. `counts_alone` is True
    for a node of a cluster whose nodes give the same ids to different transactions.
    """

    is_mariadb: bool
    uuid: str
    executed: str
    purged: str
    has_gtids: bool
    file: str
    end: int
    counts_alone: bool = False

    def position(self) -> BinlogPosition:
        """Return the end of the server's log."""
        return BinlogPosition(
            self.file, self.end - 1, self.end, gtids=self.executed if self.has_gtids else "", server=self.uuid
        )


def variables(connection: Connection[Any]) -> dict[str, str]:
    """Return the server's variables that describe the server and its log."""
    names = ", ".join(f"'{name}'" for name in _WANTED)
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        return {str(row[0]).lower(): str(row[1]) for row in cursor.fetchall()}


def identify(connection: Connection[Any]) -> ServerIdentity:
    """Return the identity of a session's server. Raises PrerequisiteError if it does not log rows."""
    given = variables(connection)
    demand_rows(given)
    is_mariadb = "mariadb" in given["version"].lower()
    row = log_end(connection, given["version"], is_mariadb)
    file, end = str(row[0]), int(row[1])
    if is_mariadb:
        with connection.cursor() as cursor:
            # the ids must be of the same moment as the position
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, end))
            (shown,) = cursor.fetchone() or (None,)
        executed = str(MariadbGtids(given.get("gtid_binlog_pos", "") if shown is None else str(shown)))
        name = f"{given.get('server_id')}@{given.get('hostname')}:{given.get('port')}"
        return ServerIdentity(True, name, executed, "", True, file, end, counts_alone(given))
    has_gtids = given.get("gtid_mode", "OFF").upper() == "ON"
    # the fifth column is of the same moment as the position
    shown = str(row[4]) if len(row) > 4 and row[4] is not None else given.get("gtid_executed", "")
    executed, purged = (str(MysqlGtids(text.replace("\n", ""))) for text in (shown, given.get("gtid_purged", "")))
    return ServerIdentity(False, given.get("server_uuid", ""), executed, purged, has_gtids, file, end)


def counts_alone(given: Mapping[str, str]) -> bool:
    """Return True for a node of a Galera cluster of MariaDB that counts transactions by itself."""
    is_on = {name: given.get(name, "OFF").upper() in ("ON", "1") for name in ("wsrep_on", "wsrep_gtid_mode")}
    return is_on["wsrep_on"] and not is_on["wsrep_gtid_mode"]


def log_end(connection: Connection[Any], version: str, is_mariadb: bool) -> tuple[Any, ...]:
    """Return the row with the end of the server's log. Raises PrerequisiteError if there is no log."""
    digits = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split("-", maxsplit=1)[0].split(".")[:2]]
    statement = "SHOW BINARY LOG STATUS" if not is_mariadb and digits >= [8, 2] else "SHOW MASTER STATUS"
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    if row is None:
        raise no_log()
    return tuple(row)


def no_log() -> PrerequisiteError:
    return PrerequisiteError(
        "The server writes no binary log (log_bin is OFF).", "Start it with log_bin, or read from one that has a log."
    )


def demand_rows(given: Mapping[str, str]) -> None:
    """Raise PrerequisiteError unless the server logs rows."""
    if given.get("log_bin", "OFF").upper() not in ("ON", "1"):
        raise no_log()
    if (form := given.get("binlog_format", "ROW").upper()) != "ROW":
        raise PrerequisiteError(
            f"The server logs statements instead of rows (binlog_format={form}).", "Set binlog_format=ROW."
        )
    if engine := given.get("binlog_storage_engine"):
        raise PrerequisiteError(in_engine(engine), IN_FILES)


IN_FILES = (
    "Leave binlog_storage_engine out of the server's configuration, or read from a replica without it; then begin with "
    "another checkpoint."
)


def in_engine(engine: str) -> str:
    """Return the text about a log that a storage engine keeps (MariaDB 12.3), where transactions have no positions."""
    return f"The server keeps its binary log in {engine} (binlog_storage_engine), where transactions have no positions."
