"""Failures of sessions that read the log, classified as retriable or lasting. Planner."""

from __future__ import annotations

import re

from tailrace.connectors.binlog.log.dump import ServerRefused
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.identity import ServerIdentity
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.server.errors import dump_error
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, SpoolFailed, TailraceError

_FATAL, _ACCESS_DENIED, _NO_RIGHT = 1236, 1045, 1227
# codes of PyMySQL and the server for a connection that is lost or cannot be made
_CONNECTION = {
    2002,
    2003,
    2005,
    2006,
    2013,
    2014,
    2055,
    1040,
    1053,
    1077,
    1152,
    1158,
    1159,
    1160,
    1161,
    1184,
    1205,
    3159,
}
_AGAIN = "Delete the checkpoint to start again with a snapshot."


def demand_executed(server: ServerIdentity, position: BinlogPosition, is_same: bool) -> None:
    """Raise PositionLost if the server lacks transactions that were read, or no longer has the log after them."""
    if server.counts_alone and not is_same:
        raise PositionLost(
            "This server is another node of a Galera cluster, whose nodes number their transactions each by itself "
            "(wsrep_gtid_mode=OFF): the ids that were read mean nothing here.",
            "Connect to the node that was read, or delete the checkpoint to start again with a snapshot. Set "
            "wsrep_gtid_mode, log_slave_updates and the same wsrep_gtid_domain_id on all nodes.",
        )
    if server.is_mariadb:
        mine, theirs = MariadbGtids(position.resumes.gtids), MariadbGtids(server.executed)
        if not theirs.contains(mine):
            raise PositionLost(
                f"The server has executed {theirs or 'nothing'}, and the transactions up to {mine} were read: this is "
                "another server, or a replica that lacks transactions.",
                _AGAIN,
            )
        return
    read, executed, purged = (MysqlGtids(text) for text in (position.resumes.gtids, server.executed, server.purged))
    if not executed.contains(read):
        raise PositionLost(
            f"The server has not executed the transactions {read.without(executed)}, which were read: this is another "
            "server, or a replica that lacks them.",
            _AGAIN,
        )
    if not is_same and not read.contains(purged):
        raise PositionLost(f"The server's log no longer has the transactions {purged.without(read)}.", _AGAIN)


def planned_elsewhere(position: BinlogPosition) -> PositionLost:
    return PositionLost(
        f"A batch up to {position} has to be read again from the server {position.server}, and this is another server.",
        "Connect to that server until the batch is committed, or delete the checkpoint to start again with a snapshot.",
    )


def other_server(position: BinlogPosition, server: object) -> PositionLost:
    return PositionLost(
        f"The log was read up to {position} from another server. Without ids of transactions (GTIDs) the position "
        "means nothing on this one.",
        _AGAIN,
    )


def refused(error: ServerRefused) -> TailraceError | None:
    """Return the lasting error for an error packet of the dump; None if another session may succeed."""
    if error.code in (_FATAL, 1381):
        return dump_error(error.text)
    if error.code in (_NO_RIGHT, _ACCESS_DENIED):
        return PrerequisiteError(
            f"The user may not read the log: {error.text.rstrip('.')}.", "Grant REPLICATION SLAVE to the user."
        )
    return None


def is_amiss(error: ServerRefused) -> bool:
    """Return True if the server found no event at the requested place, so that its file belongs to another log."""
    return error.code == _FATAL and bool(re.search(r"max_allowed_packet|bogus|checksum|crc", error.text, re.IGNORECASE))


def lasting(error: Exception) -> TailraceError | None:
    """Return the lasting error for `error`; None if another session may succeed."""
    if isinstance(error, TailraceError):
        if isinstance(error, SpoolFailed) or (isinstance(error, ConnectionFailed) and not error.is_lasting):
            return None
        return error
    if isinstance(error, ServerRefused):
        return refused(error)
    if isinstance(error, EOFError | OSError):
        return None
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if type(error).__module__.startswith("pymysql"):
        if code in (_NO_RIGHT, _ACCESS_DENIED, 1044, 1698, 1251):
            return PrerequisiteError(
                f"The user may not read the log: {words(error)}.",
                "Grant REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR) to the user.",
            )
        if not code or code in _CONNECTION or type(error).__name__ in ("OperationalError", "InterfaceError"):
            return None
    return TailraceError(f"Reading the log failed: {type(error).__name__}: {words(error)}")


def words(error: BaseException) -> str:
    """Return the first line of an error's message."""
    text = str(error.args[-1] if error.args else "").strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__


def exhausted(error: Exception) -> TailraceError:
    """Return the lasting error after the last retry of a session."""
    if isinstance(error, TailraceError):
        if isinstance(error, ConnectionFailed):
            error.is_lasting = True
        return error
    return ConnectionFailed(
        f"Reading the log failed again and again: {words(error)}.",
        "Start again with the same checkpoint when the server is back; errors.max.retries limits the attempts.",
        is_lasting=True,
    )
