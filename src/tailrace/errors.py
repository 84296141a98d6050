"""Every error that tailrace raises on purpose: one tree, picklable, without row values or secrets.

    TailraceError                exit code 1
    ├── ConfigError              2   a wrong, unknown or unsupported option; names the option and the remedy
    ├── ConnectionFailed         3   the database or broker cannot be reached or refuses the login
    │   └── StatementCutOff      3   a statement takes longer than it may
    ├── PrerequisiteError        4   wal_level, privileges, slot, publication: what the server lacks, and the remedy
    ├── PositionLost             5   slot gone, recreated or ahead of the checkpoint: what was lost, what to do
    ├── DecodeError              6   bytes of the log that do not follow the protocol; carries the offset
    ├── ConversionError          7   a value that its column type does not allow; names table, column, position
    │   ├── TransformError       7   a record that a transform cannot take; names transform, field, table, position
    │   └── SchemaChanged        7   a change that the schema of typed rows does not hold; names table, column, position
    ├── SinkError                8   the sink is unknown or refuses the records
    ├── JvmLost                  9   Spark's JVM has ended: killed, or out of memory
    ├── ProcessLost             10   the planner or a worker of Spark has ended: killed, or out of memory
    ├── SpoolFailed             11   the disk does not take what waits for Spark; names the directory
    └── RegistryError           12   the schema registry does not answer, or refuses the login or a schema

Errors cross Spark's process borders, so each is rebuilt from its arguments alone.
"""

from __future__ import annotations


class TailraceError(Exception):
    """Base of every deliberate error: a sentence saying what is wrong, and one saying what to do about it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(TailraceError):
    exit_code = 2


class ConnectionFailed(TailraceError):
    """`is_lasting` says that another try is of no use, or that enough have been made."""

    exit_code = 3

    def __init__(self, message: str, remedy: str = "", *, is_lasting: bool = False) -> None:
        super().__init__(message, remedy)
        self.is_lasting = is_lasting


class StatementCutOff(ConnectionFailed):
    """A statement took longer than the options or the server allow."""


class PrerequisiteError(TailraceError):
    exit_code = 4


class PositionLost(TailraceError):
    exit_code = 5


class DecodeError(TailraceError):
    """Bytes that do not follow the protocol. `offset` counts bytes from the start of the buffer; -1 when unknown."""

    exit_code = 6

    def __init__(self, message: str, offset: int = -1) -> None:
        super().__init__(message)
        self.args = (message, offset)
        self.offset = offset

    def __str__(self) -> str:
        return self.message if self.offset < 0 else f"{self.message} (at byte {self.offset})"


class ConversionError(TailraceError):
    exit_code = 7


class TransformError(ConversionError):
    """A transform cannot take a record, or a value of it."""


class SchemaChanged(ConversionError):
    """A table has changed since typed rows were declared, and a row of it does not fit them any more."""


class SinkError(TailraceError):
    exit_code = 8


class JvmLost(TailraceError):
    exit_code = 9


class ProcessLost(TailraceError):
    exit_code = 10


class SpoolFailed(TailraceError):
    """What was read from the log cannot be kept on disk, or not be read from there."""

    exit_code = 11


class RegistryError(TailraceError):
    """Raised in workers: the batch ends, and is read again as a whole by the next one."""

    exit_code = 12
