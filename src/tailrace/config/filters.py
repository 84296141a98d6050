"""Include and exclude lists: Debezium's anchored, case-insensitive Java expressions. No I/O."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import compress, decompress

from tailrace.config.expressions import Expression, compile_expression

if TYPE_CHECKING:
    from tailrace.config.config import Config

LISTS = ("schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list")
_COMPRESS_FROM = 400


class TableFilter:
    """The captured tables, by the four lists of a configuration. Picklable.

    The lists are `schema.include.list`, `schema.exclude.list`, `table.include.list` and `table.exclude.list`. Raises
    ValueError for an invalid expression; `tailrace.config.parse` has reported it as a ConfigError before. The signal
    tables, `signal.data.collection`, are always captured, except in the formats of Debezium 1.x, where they must be
    listed like any other. `overrule` lets tables through, or keeps them out, whatever the lists say.
    """

    def __init__(self, settings: Config) -> None:
        self._system_tables = settings.traits.system_tables
        named = settings.get("signal.data.collection") or ()
        if str(settings.get("event.format")).startswith("1."):
            named = ()
        self._signals = frozenset(map(table_name, (named,) if isinstance(named, str) else named))
        self._schemas = _Lists.of(settings["schema.include.list"], settings["schema.exclude.list"])
        self._tables = _Lists.of(settings["table.include.list"], settings["table.exclude.list"])
        self._added: frozenset[tuple[str, str]] = frozenset()
        self._removed: frozenset[tuple[str, str]] = frozenset()

    def overrule(self, added: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]) -> None:
        """Capture `added` and leave out `removed` from now on, as (schema, table)."""
        self._added, self._removed = frozenset(added), frozenset(removed)

    def includes(self, schema: str, table: str) -> bool:
        """Return True if `schema.table` is captured; the server's own tables never are."""
        if self._system_tables is not None and self._system_tables.fullmatch(f"{schema}.{table}"):
            return False
        if (schema, table) in self._signals or (schema, table) in self._added:
            return True
        return (schema, table) not in self._removed and self.lists(schema, table)

    def lists(self, schema: str, table: str) -> bool:
        """Return True if the lists let `schema.table` pass, which may be a signal table or one of the server's own."""
        return self._schemas.include(schema) and self._tables.include(f"{schema}.{table}")

    def includes_schema(self, schema: str) -> bool:
        """Return True if tables of the schema may be captured."""
        return self._schemas.include(schema)

    @property
    def is_open(self) -> bool:
        """True if no list restricts the tables."""
        return not (self._schemas.restrict or self._tables.restrict)


def lists_text(config: Config) -> str:
    """Return the four lists of a configuration as text: JSON, or if it is long `z:` and its compressed form in base 64.
    Lists with the same entries have the same text."""
    text = json.dumps([config[name] for name in LISTS], separators=(",", ":"), ensure_ascii=False)
    return text if len(text) < _COMPRESS_FROM else "z:" + b64encode(compress(text.encode(), 6)).decode()


def with_lists(config: Config, text: str) -> Config:
    """Return a configuration whose lists are replaced by the lists in `text`, which `lists_text` has made."""
    if text.startswith("z:"):
        text = decompress(b64decode(text[2:])).decode()
    return replace(config, typed=config.typed | dict(zip(LISTS, json.loads(text), strict=True)))


class PrefixFilter:
    """The captured logical messages, by prefix, after `message.prefix.include.list` or `message.prefix.exclude.list`.

    Picklable. Raises ValueError as TableFilter does.
    """

    def __init__(self, settings: Any) -> None:
        self._lists = _Lists.of(settings["message.prefix.include.list"], settings["message.prefix.exclude.list"])

    def includes(self, prefix: str) -> bool:
        """Return True if messages with `prefix` are captured."""
        return self._lists.include(prefix)

    @property
    def excludes_all(self) -> bool:
        """True if no message can be captured, so that the server need not send any."""
        return any(expression.pattern == ".*" for expression in self._lists.excluded)


@dataclass(frozen=True, slots=True)
class _Lists:
    included: tuple[Expression, ...] = field(default=())
    excluded: tuple[Expression, ...] = field(default=())

    @classmethod
    def of(cls, included: list[str], excluded: list[str]) -> _Lists:
        return cls(tuple(map(compile_expression, included)), tuple(map(compile_expression, excluded)))

    @property
    def restrict(self) -> bool:
        return bool(self.included or self.excluded)

    def include(self, name: str) -> bool:
        if self.included:
            return any(expression.fullmatch(name) for expression in self.included)
        return not any(expression.fullmatch(name) for expression in self.excluded)


def quoted_parts(name: str) -> tuple[str, ...] | None:
    """Return the parts of a name with at least one part in double quotes (`""` within them is one), else None."""
    if '"' not in name:
        return None
    parts: list[str] = []
    at = 0
    while True:
        if name.startswith('"', at):
            part, at = [], at + 1
            while not (name.startswith('"', at) and not name.startswith('""', at)):
                if at >= len(name):
                    return None
                step = 2 if name.startswith('""', at) else 1
                part.append(name[at])
                at += step
            parts.append("".join(part))
            at += 1
        else:
            end = name.find(".", at)
            end = len(name) if end < 0 else end
            if end == at:
                return None
            parts.append(name[at:end])
            at = end
        if at == len(name):
            return tuple(parts) if len(parts) >= 2 else None
        if name[at] != ".":
            return None
        at += 1


def table_name(name: str) -> tuple[str, str]:
    """Return schema and table of a name, whose parts may be in double quotes, after an optional database.

    The schema is empty for a name of one part.
    """
    parts = quoted_parts(name) or ("", *name.split("."))
    return parts[-2], parts[-1]
