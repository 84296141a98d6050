"""TableCommands: tables that a user has added to a running pipeline, or removed from it. Immutable; no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.config import Config
from tailrace.config.filters import LISTS, TableFilter
from tailrace.errors import ConfigError

Table = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class TableCommands:
    """The tables for which commands override the lists of the configuration. The checkpoint stores them.

    `added` are captured and `removed` are not, whatever the lists say. `lists` is the fingerprint of the lists that
    were valid when the commands were given.
    """

    added: tuple[Table, ...] = ()
    removed: tuple[Table, ...] = ()
    lists: str = ""

    def adding(self, tables: Collection[Table], config: Mapping[str, Any]) -> TableCommands:
        """Return the commands after `tables` were added, of which none was captured before."""
        added = {*self.added, *(table for table in tables if table not in self.removed)}
        return TableCommands(tuple(sorted(added)), _without(self.removed, tables), fingerprint(config))

    def removing(self, tables: Collection[Table], config: Mapping[str, Any]) -> TableCommands:
        """Return the commands after `tables` were removed, all of which were captured before."""
        removed = {*self.removed, *(table for table in tables if table not in self.added)}
        return TableCommands(_without(self.added, tables), tuple(sorted(removed)), fingerprint(config))

    def to_json(self) -> dict[str, Any]:
        return {"added": [list(table) for table in self.added], "removed": [list(table) for table in self.removed],
                "lists": self.lists}  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TableCommands:
        added, removed = (tuple((schema, table) for schema, table in fields[name]) for name in ("added", "removed"))
        return cls(added, removed, fields["lists"])


NO_COMMANDS = TableCommands()


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return a hash of the lists of tables; another hash means that they were edited."""
    return hashlib.sha256(repr([config[name] for name in LISTS]).encode()).hexdigest()[:16]


def settled(commands: TableCommands, config: Config) -> TableCommands:
    """Return the commands that differ from the lists of `config`.

    Raises ConfigError if the lists were edited since the commands were given and contradict them, unless
    `table.commands` says whether the lists or the commands are valid.
    """
    if commands == NO_COMMANDS or commands.lists == fingerprint(config):
        return commands
    lists = TableFilter(config)
    added = tuple(table for table in commands.added if not lists.includes(*table))
    removed = tuple(table for table in commands.removed if lists.includes(*table))
    chosen = config["table.commands"]
    if (added or removed) and chosen == "fail":
        conflicts = [f"tailrace tables add has added {_named(added)}, which the lists leave out"] if added else []
        conflicts += [f"tailrace tables remove has removed {_named(removed)}, which the lists name"] if removed else []
        raise ConfigError(
            f"The lists were edited, and contradict the checkpoint: {'; '.join(conflicts)}.",
            "Correct the lists; or set table.commands=lists for one start, which drops these commands, or "
            "table.commands=commands, which keeps them.",
        )
    if chosen == "lists" or not (added or removed):
        return NO_COMMANDS
    return TableCommands(added, removed, fingerprint(config))


def _without(tables: tuple[Table, ...], gone: Collection[Table]) -> tuple[Table, ...]:
    return tuple(table for table in tables if table not in gone)


def _named(tables: Collection[Table]) -> str:
    return ", ".join(f"{schema}.{table}" for schema, table in tables)
