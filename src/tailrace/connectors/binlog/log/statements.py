"""The statements in the log between two places. Planner."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.log.dump import Dump, ServerRefused
from tailrace.connectors.binlog.log.faults import refused
from tailrace.connectors.binlog.log.indexing import Indexer
from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.schema.statement import NO_OUTCOME, UNCAPTURED, Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.table_map import TableMap
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection

LogEnd = tuple[str, int]
"""A place between two transactions: a file of the log, and a position in it."""
_SECONDS = 30.0
"""Seconds to wait for the next bytes of the log."""


class _Collected:
    """Definitions that only collect statements."""

    def __init__(self) -> None:
        self.versions: list[TableSchema] = []
        self.statements: list[Statement] = []

    def begin(self) -> None:
        self.statements.clear()

    def keep(self) -> None:
        pass

    def captures(self, database: str, table: str, /) -> bool:
        return False

    def fits(self, given: TableMap, /) -> bool:
        return True

    def version(self, given: TableMap, at: Place, /) -> int:
        return UNCAPTURED

    def statement(self, given: Statement, at: Place, /) -> StatementEffects:
        self.statements.append(given)
        return NO_OUTCOME


def statements(
    session: Connection[Any], begin: LogEnd, end: LogEnd, *, is_mariadb: bool, runtime: Runtime
) -> list[Statement] | None:
    """Return the statements between two places, without those that control transactions; None if they cannot be found.

    `session` must fit a dump; it is closed. Raises ConnectionFailed, PrerequisiteError if the user may not read the
    log, and the errors of Dump.
    """
    collected = _Collected()
    position = BinlogPosition(begin[0], begin[1] - 1, begin[1])
    indexer = Indexer(position, collected, is_mariadb)
    bell = runtime.bell()
    try:
        with closing(session):
            dump = Dump(session, bell, 1.0, runtime)
            dump.prepare(is_mariadb)
            # a random id: with the id of a running query the server would end that query's session
            dump.begin(random.randrange(1 << 24, 1 << 31), *begin)
            deadline = runtime.monotonic() + _SECONDS
            while _key(indexer.read_to) < _key(end):
                if dump.wait(1.0, lambda: False):
                    deadline = runtime.monotonic() + _SECONDS
                elif runtime.monotonic() >= deadline:
                    raise ConnectionFailed("The server has not sent the log up to the end that it has told.")
                buffer, spans = dump.take()
                try:
                    indexer.add(buffer, spans)
                    indexer.pass_over()
                except (PositionLost, PrerequisiteError):
                    # an XA transaction that was prepared before is committed, or rows are changed by a statement
                    return None
    except ServerRefused as error:
        found = refused(error)
        if isinstance(found, PrerequisiteError):
            raise found from None
        return None
    except EOFError:
        raise ConnectionFailed("The server has ended the session that reads its log.") from None
    finally:
        bell.close()
    return collected.statements


def _key(place: LogEnd) -> tuple[int, int]:
    return number_of(place[0]), place[1]
