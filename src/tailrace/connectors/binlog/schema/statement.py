"""Statements of the log and their places, which the reader passes to the definitions of tables. Planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_ANSI_QUOTES, _ORACLE, _NO_BACKSLASH, _STRICT = 1 << 2, 1 << 9, 1 << 20, 3 << 21


class Place(NamedTuple):
    """A place in the log; places sort in log order.

    `epoch` counts the servers that the query has read from, `number` is the file's number. The transaction begins at
    `start`, the event at `pos`. `seconds` is the event's time in s since 1970.
    """

    epoch: int
    number: int
    start: int
    pos: int
    file: str = ""
    seconds: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the log.

    `database` is the current database of its session; `status` are the status variables of the event (sql_mode,
    character sets). `alters` is the phase of an ALTER that MariaDB logs in two: `start`, `commit` or `rollback`.
    """

    database: str
    sql: bytes
    status: bytes
    server_id: int
    seconds: int
    alters: str = ""


@dataclass(frozen=True, slots=True)
class StatementEffects:
    """Effects of a statement on the reader: the versions of the captured tables that it truncates, and the records of
    its schema changes, as bytes of `schema.changes.record`."""

    truncated: Sequence[int] = ()
    changes: Sequence[bytes] = ()


NO_OUTCOME = StatementEffects()
UNCAPTURED = -1
"""The version of rows of a table that is not captured."""


# --- status variables of QUERY events ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a statement's session; collations by number, 0 if the event lacks them."""

    sql_mode: int = 0
    client_collation: int = 0
    server_collation: int = 0

    @property
    def ansi_quotes(self) -> bool:
        return bool(self.sql_mode & _ANSI_QUOTES)

    @property
    def oracle(self) -> bool:
        return bool(self.sql_mode & _ORACLE)

    @property
    def no_backslashes(self) -> bool:
        return bool(self.sql_mode & _NO_BACKSLASH)

    @property
    def strict(self) -> bool:
        """True if a statement fails rather than change a value to make it fit."""
        return bool(self.sql_mode & _STRICT)


# The number of bytes after each code of fixed size.
_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}


def settings_of(variables: bytes) -> SessionSettings:
    """Return the settings among the status variables of an event. Reading stops at an unknown code."""
    mode = client = server = at = 0
    while at < len(variables):
        code = variables[at]
        at += 1
        if code in _SIZES:
            value = variables[at : at + _SIZES[code]]
            at += _SIZES[code]
            if code == 1:
                mode = int.from_bytes(value, "little")
            elif code == 4:
                client, server = int.from_bytes(value[:2], "little"), int.from_bytes(value[4:6], "little")
        elif code in (5, 6):
            at += 1 + variables[at] if at < len(variables) else 0
        elif code == 131:
            # MariaDB's collations by character set, which come before the character sets
            at += 1 + 4 * variables[at] if at < len(variables) else 0
        elif code == 2:
            at += 2 + variables[at] if at < len(variables) else 0
        elif code == 11 and at < len(variables):
            at += 1 + variables[at]
            at += 1 + variables[at] if at < len(variables) else 0
        else:
            break
    return SessionSettings(mode, client, server)
