"""Statements of the log, and where they stand: what the reader passes to the definitions of tables. Planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """A place in the log; places sort in log order.

    `epoch` counts the servers that the query has read from, `number` is that of the file, `start` the beginning of the
    transaction, `pos` that of the event. `seconds` is the event's time.
    """

    epoch: int
    number: int
    start: int
    pos: int
    file: str = ""
    seconds: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that the log has as text.

    `database` was current in its session; `status` are the status variables of the event (sql_mode, character sets).
    `alters` is the phase of an ALTER that MariaDB logs in two: `start`, `commit` or `rollback`.
    """

    database: str
    sql: bytes
    status: bytes
    server_id: int
    seconds: int
    alters: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Effects of a statement on the reader: the versions of the captured tables that it truncates, and the records of
    its schema changes, each as bytes that only the schema's package reads."""

    truncated: Sequence[int] = ()
    changes: Sequence[bytes] = ()


NO_OUTCOME = Outcome()
UNCAPTURED = -1
"""The version of rows of a table that is not captured."""
