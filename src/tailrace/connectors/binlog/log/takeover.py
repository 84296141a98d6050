"""The log position after an offset that Debezium has stored. Planner.

Debezium stores the place of the transaction of its last record, and the ids of the transactions before it. The place is
that of its BEGIN in MySQL, and of the event with its id in MariaDB. It also stores the number of events that it has
read of the transaction, and of rows of the last event. A position of tailrace has a number of rows instead, so these
events are read to count them.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.debezium_offset import DebeziumOffset
from tailrace.connectors.binlog.log import events
from tailrace.connectors.binlog.log.dump import Dump, ServerRefused
from tailrace.connectors.binlog.log.events import HEADER, EventType
from tailrace.connectors.binlog.log.faults import refused
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.identity import ServerIdentity
from tailrace.connectors.binlog.log.indexing import Indexer, Unfinished
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.schema.statement import NO_OUTCOME, UNCAPTURED, Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.table_map import TableMap
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = logging.getLogger("tailrace")

ELSEWHERE = "the server of Debezium's offset"
"""The server of a position that is given by transaction ids: reading begins after them, on any server."""
_SECONDS = 30.0
"""Seconds without an event after which the end of the log counts as reached."""
_HEARTBEATS = frozenset((EventType.HEARTBEAT, EventType.HEARTBEAT_V2))
_SNAPSHOT = "Start with a snapshot instead: leave out capture.start.offset, and snapshot.mode=no_data with it."


class _NoTables:
    """Definitions for counting rows only."""

    def __init__(self) -> None:
        self.versions: list[TableSchema] = []

    def begin(self) -> None:
        pass

    def keep(self) -> None:
        pass

    def captures(self, database: str, table: str, /) -> bool:
        return False

    def fits(self, given: TableMap, /) -> bool:
        return True

    def version(self, given: TableMap, at: Place, /) -> int:
        return UNCAPTURED

    def statement(self, given: Statement, at: Place, /) -> StatementEffects:
        return NO_OUTCOME


def position_of(
    offset: DebeziumOffset,
    identity: ServerIdentity,
    session: Connection[Any],
    replica: int,
    runtime: Runtime,
    *,
    has_statements: bool,
) -> BinlogPosition:
    """Return the position after an offset of Debezium.

    `session` must fit a dump, with the server id `replica`; it is closed. `has_statements` is True if Debezium
    received, and counted, the statements of MariaDB's rows. Raises PositionLost, PrerequisiteError and the errors of
    Dump.
    """
    with closing(session):
        if identity.has_gtids != bool(offset.gtids):
            which, other = ("the server", "the offset") if identity.has_gtids else ("the offset", "the server")
            raise PrerequisiteError(
                f"Transactions have ids (GTIDs) for {which}, and none for {other}: the offset's place in the log "
                "is not certain.",
                _SNAPSHOT,
            )
        try:
            known = (MariadbGtids if identity.is_mariadb else MysqlGtids)(offset.gtids)
        except ValueError:
            raise PrerequisiteError(
                "The transactions of capture.start.offset are those of the other server, MySQL or MariaDB.",
                "Name the connector of the server that Debezium has read.",
            ) from None
        behind = BinlogPosition(
            offset.file, offset.pos - 1, offset.pos, gtids=str(known),
            server=ELSEWHERE if identity.has_gtids else identity.uuid,
        )  # fmt: skip
        if not offset.events:
            return behind
        return _within(offset, behind, identity, session, replica, runtime, has_statements)


def _within(
    offset: DebeziumOffset,
    behind: BinlogPosition,
    identity: ServerIdentity,
    session: Connection[Any],
    replica: int,
    runtime: Runtime,
    has_statements: bool,
) -> BinlogPosition:
    """Return the position within the transaction after the position `behind`."""
    indexer = Indexer(behind, _NoTables(), identity.is_mariadb)
    indexer.reset(behind, identity.has_gtids, identity.uuid)
    bell = runtime.bell()
    dump = Dump(session, bell, 1.0, runtime)
    dump.prepare(identity.is_mariadb)
    if not identity.has_gtids:
        dump.begin(replica, offset.file, offset.pos)
    elif identity.is_mariadb:
        dump.begin_after(replica, behind.gtids)
    else:
        dump.begin_behind(replica, MysqlGtids(behind.gtids))
    # the BEGIN is event 0
    seen = 0
    deadline = runtime.monotonic() + _SECONDS
    try:
        while runtime.monotonic() < deadline:
            dump.wait(1.0, lambda: False)
            buffer, spans = dump.take()
            for begin, end in spans:
                kind = HEADER.unpack_from(buffer, begin)[1]
                if kind not in _HEARTBEATS:
                    deadline = runtime.monotonic() + _SECONDS
                one = indexer.unfinished
                seen += one is not None and (kind != EventType.ANNOTATE_ROWS or has_statements)
                if one is not None and seen == offset.events and kind in events.ROWS and _is_place(one, offset):
                    consumed = one.changes() + offset.rows
                    return replace(behind, start=one.start, consumed=consumed, gtid=one.gtid)
                indexer.add(buffer, [(begin, end)])
                indexer.pass_over()
                if one is not None and indexer.unfinished is None:
                    if seen == offset.events and not offset.rows and _is_place(one, offset):
                        return _behind(behind, one, indexer.read_to[1])
                    log.warning(
                        "Debezium's offset lies within a transaction at %s:%d, and its place there is not certain: the "
                        "transaction is read as a whole, and some of its changes may come twice", one.file, one.start,
                    )  # fmt: skip
                    return behind
    except ServerRefused as error:
        raise refused(error) or PositionLost(
            f"The server refuses its log from the offset on: {error.text.rstrip('.')}.", _SNAPSHOT
        ) from None
    except EOFError:
        pass
    finally:
        bell.close()
    raise PositionLost(
        f"The server's log has no transaction behind {behind.gtids or behind}, and Debezium's offset lies within it.",
        _SNAPSHOT,
    )


def _is_place(one: Unfinished, offset: DebeziumOffset) -> bool:
    """Return True if an offset is within this transaction. Not for a prepared one, which Debezium has delivered."""
    return (one.file, one.begin) == (offset.file, offset.pos) and not one.is_xa


def _behind(position: BinlogPosition, one: Unfinished, end: int) -> BinlogPosition:
    """Return the position after a transaction that follows `position`."""
    if not one.gtid:
        return replace(position, start=one.start, end=end)
    known: MysqlGtids | MariadbGtids
    if one.gtid.count("-") == 2:
        known, (source, _, number) = MariadbGtids(position.gtids), one.gtid.rpartition("-")
    else:
        known, (source, _, number) = MysqlGtids(position.gtids), one.gtid.rpartition(":")
    known.add(source, int(number))
    return replace(position, gtids=str(known))
