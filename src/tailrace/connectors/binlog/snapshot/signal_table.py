"""The signal table `signal.data.collection`: its faults, and inserts of signals. Driver.

Its first three columns are a signal's id, type and data; their names are arbitrary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.config import Config, TableFilter
from tailrace.config.filters import table_name
from tailrace.connectors.binlog.server.connection import connect
from tailrace.connectors.binlog.server.errors import number_of, refused
from tailrace.connectors.binlog.snapshot.keys import literal, quoted
from tailrace.connectors.binlog.snapshot.result import rows, run
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.snapshot.signals import Signal

if TYPE_CHECKING:
    from pymysql.connections import Connection

# Watermark ids have at most 42 characters; the data of watermarks, and of signals for a few tables, fit in 2048.
_LENGTHS = {"id": 42, "type": 32, "data": 2048}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json")
_DUPLICATE = 1062
_COLUMNS = (
    "select column_name, data_type, character_maximum_length, "
    "is_nullable = 'NO' and column_default is null and extra not like '%auto_increment%' "
    "from information_schema.columns where table_schema = {0} and table_name = {1} order by ordinal_position"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the table: its level, a text, and the remedy."""

    level: Literal["warning", "error"]
    text: str
    remedy: str


class SignalTable:
    """The signal table of a configuration that names one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.database, self.table = table_name(config["signal.data.collection"])

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.table)}"

    @property
    def _made(self) -> str:
        return f"CREATE TABLE {self.quoted} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT);"

    def texts(self, session: Connection[Any]) -> list[bool]:
        """Return a flag for each column, True for a text; [] if there is no table, or the user may not see it."""
        found = rows(session, _COLUMNS.format(literal(self.database), literal(self.table)))
        return [str(kind).lower() in _TEXTS for _, kind, _, _ in found]

    def faults(self, session: Connection[Any]) -> Iterator[Fault]:
        """Yield the faults of the table. Only reads."""
        config = self._config
        columns = rows(session, _COLUMNS.format(literal(self.database), literal(self.table)))
        if not columns:
            yield Fault("error", f"There is no signal table {self}, or the user may not see it.", self._made)
            return
        if len(columns) < 3 or any(str(kind).lower() not in _TEXTS for _, kind, _, _ in columns[:3]):
            yield Fault(
                "error",
                f"The first three columns of the signal table {self} must be texts: id, type and data.",
                self._made,
            )
            return
        for (name, _, length, _), (what, least) in zip(columns[:3], _LENGTHS.items(), strict=True):
            if length is not None and int(length) < least:
                yield Fault(
                    "warning",
                    f"The column {name} of the signal table {self} holds only {length} characters; {what} may need "
                    f"{least}.",
                    f"ALTER TABLE {self.quoted} MODIFY {quoted(str(name))} TEXT;",
                )
        for name, _, _, needed in columns[3:]:
            if needed == "1" and not config["read.only"]:
                yield Fault(
                    "error",
                    f"The column {name} of the signal table {self} may not be null and has no default, so no watermark "
                    "can be written.",
                    f"Let {quoted(str(name))} of {self.quoted} be null, or give it a default.",
                )
        if "source" in config["signal.enabled.channels"] and not TableFilter(config).includes(
            self.database, self.table
        ):
            yield Fault(
                "error",
                f"The signal table {self} is not captured, so no signal is seen.",
                "Add it to table.include.list and database.include.list, or remove it from the exclude lists.",
            )

    def insert(self, signal: Signal) -> None:
        """Insert the row of `signal`.

        Raises ConnectionFailed, and PrerequisiteError if the server refuses the row.
        """
        import pymysql

        with closing(connect(self._config)) as session:
            data = "null" if signal.data is None else literal(signal.data)
            try:
                # by place, not by name: users name the columns
                names = ", ".join(first_columns(session, self.database, self.table))
                values = f"{literal(signal.id)}, {literal(signal.type)}, {data}"
                run(session, f"insert into {self.quoted} ({names}) values ({values})")
            except pymysql.err.OperationalError as error:
                raise refused(error) from None
            except pymysql.err.MySQLError as error:
                if number_of(error) == _DUPLICATE:
                    raise PrerequisiteError(
                        f"The signal table {self} has a signal of this id already.", "Give another --id."
                    ) from None
                remedies = [fault.remedy for fault in self.faults(session)]
                raise PrerequisiteError(
                    f"The server refuses the signal's row in the signal table {self} (error {number_of(error)}).",
                    remedies[0] if remedies else "tailrace check says what it lacks.",
                ) from None


def first_columns(session: Connection[Any], database: str, table: str) -> tuple[str, ...]:
    """Return the quoted names of a signal table's first three columns. Raises PrerequisiteError."""
    found = rows(session, _COLUMNS.format(literal(database), literal(table)))
    if len(found) < 3:
        raise PrerequisiteError(
            f"The signal table {database}.{table} is not there, or has fewer columns than id, type and data.",
            "tailrace check says how to make it.",
        )
    return tuple(quoted(str(row[0])) for row in found[:3])


def send(config: Config, signal: Signal) -> str:
    """Insert the row of `signal`, and return the table's name.

    Raises ConfigError if no table is named, and the errors of `SignalTable.insert`.
    """
    if not config["signal.data.collection"]:
        raise ConfigError("No signal table is named.", "Name one in signal.data.collection, as database.table.")
    table = SignalTable(config)
    table.insert(signal)
    return str(table)
