"""Statements as values."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.connectors.binlog.schema.definition import ColumnDefinition, Default, Index, Name, TableDefinition


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. In `table` columns have only explicit character sets; None for CREATE TABLE LIKE (`like`) or from a
    query (`selects`)."""

    name: Name
    table: TableDefinition | None
    like: Name | None = None
    selects: bool = False
    unless_there: bool = False
    replaces: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """A part of ALTER TABLE.

    `verb` is add, change, drop, rename, default, key, unindex, reindex, charset, convert, comment, version, period,
    unperiod or nothing.
    """

    verb: str
    name: str = ""
    column: ColumnDefinition | None = None
    keys: tuple[Index, ...] = ()
    """The indexes to add, also those in a column's definition; the primary key has the name PRIMARY."""
    place: str | None = None
    """The column after which it is placed; "" for FIRST; None for its old place, or the last."""
    text: str | None = None
    default: Default | None = None
    if_there: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    name: Name
    actions: tuple[Action, ...]
    renamed: Name | None = None
    moved: tuple[Name, ...] = ()
    """The tables that get or lose rows with partitions or tablespaces."""
    drops: bool = False
    """DROP PARTITION: the table loses the rows of the partitions."""
    ignores: bool = False
    """ALTER IGNORE: rows that break a new unique index are deleted, and values are made to fit."""


@dataclass(frozen=True, slots=True)
class DropTables:
    names: tuple[Name, ...]
    if_there: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class RenameTables:
    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    name: Name


@dataclass(frozen=True, slots=True)
class IndexChange:
    """CREATE INDEX or DROP INDEX. `added` is an added unique index, `dropped` the name of a dropped index."""

    name: Name
    added: Index | None = None
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """CREATE, ALTER or DROP DATABASE: `verb` in lower case; `charset` None if none is written."""

    verb: str
    name: str
    charset: str | None = None
    unless_there: bool = False


@dataclass(frozen=True, slots=True)
class OtherStatement:
    """A statement that changes no table. `is_recorded`: Debezium records it in the topic of schema changes."""

    is_recorded: bool = False


Parsed = (
    CreateTable | AlterTable | DropTables | RenameTables | TruncateTable | IndexChange | DatabaseChange | OtherStatement
)
