"""The errors that tailrace raises deliberately: one tree, picklable, without row values or secrets.

    TailraceError                exit code 1
    ├── ConfigError              2   a wrong, unknown or unsupported option; names the option and the remedy
    ├── ConnectionFailed         3   the database or broker cannot be reached or refuses the login
    │   └── StatementCutOff      3   a statement takes longer than it may
    ├── PrerequisiteError        4   the server lacks wal_level, privileges, slot or publication; names the remedy
    ├── PositionLost             5   slot gone, recreated or ahead of the checkpoint; names the loss and the remedy
    ├── DecodeError              6   bytes of the log that do not follow the protocol; carries the offset
    ├── ConversionError          7   a value that its column type does not allow; names table, column, position
    │   ├── TransformError       7   a record that a transform cannot take; names transform, field, table, position
    │   └── SchemaChanged        7   a change that does not fit the schema of typed rows; names table, column, position
    ├── SinkError                8   the sink is unknown or refuses the records
    ├── JvmLost                  9   Spark's JVM has ended: killed, or out of memory
    ├── ProcessLost             10   the planner or a worker of Spark has ended: killed, or out of memory
    ├── DiskFailed              11   a disk takes no more files; names directories, what is free there, and options
    │   └── SpoolFailed         11   the spool cannot be written or read; names the directory
    ├── RegistryError           12   the schema registry does not answer, or refuses the login or a schema
    └── CheckpointInUse         14   another run holds the checkpoint; names its process (13 is of `verify` alone)

Errors are pickled between Spark's processes, so each can be rebuilt from its arguments.
"""

from __future__ import annotations


class TailraceError(Exception):
    """The base of every deliberate error: a sentence about what is wrong, and one about the remedy."""

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
    """A connection or login failed. `is_lasting` is True if retries are useless or exhausted."""

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
    """Bytes that do not follow the protocol. `offset` counts bytes from the start of the buffer; -1 if unknown."""

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
    """A transform cannot process a record, or a value of it."""


class SchemaChanged(ConversionError):
    """A table has changed since typed rows were declared, and one of its rows no longer fits them."""


class SinkError(TailraceError):
    exit_code = 8


class JvmLost(TailraceError):
    exit_code = 9


class ProcessLost(TailraceError):
    exit_code = 10


class DiskFailed(TailraceError):
    """A disk that the run writes to is full or read-only, or a limit of the system is reached."""

    exit_code = 11


class SpoolFailed(DiskFailed):
    """Data read from the log cannot be written to disk, or not be read back."""


class RegistryError(TailraceError):
    """The schema registry failed. Raised in workers: the batch fails, and is repeated as a whole."""

    exit_code = 12


class CheckpointInUse(TailraceError):
    """Another run holds the checkpoint's lock. A start after its end succeeds."""

    exit_code = 14
