"""Include and exclude lists: Debezium's anchored, case-insensitive Java expressions, over Python's `re`. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_BUILT_IN = {
    "postgres": re.compile(r"(pg_catalog|information_schema|pg_toast.*|pg_temp_.*)\..*", re.DOTALL),
    "sqlserver": re.compile(r"(sys|cdc|information_schema)\..*|.*\.systranschemas", re.DOTALL | re.IGNORECASE),
}
"""Tables of the servers themselves, as schema.table, by connector."""

_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "a-zA-Z", "lower": "a-zA-Z",
    "xdigit": "0-9a-fA-F", "space": r" \t\n\x0b\f\r", "blank": r" \t", "ascii": r"\x00-\x7f",
    "cntrl": r"\x00-\x1f\x7f", "punct": r"!-/:-@\[-`{-~", "graph": "!-~", "print": " -~",
}  # fmt: skip
r"""Java's `\p{…}` classes over ASCII. The lists match without regard to case, so Upper and Lower are any letter."""


class TableFilter:
    """Which tables are captured, after the four lists of a configuration. Picklable.

    `settings` is any mapping with the typed values of `schema.include.list`, `schema.exclude.list`,
    `table.include.list` and `table.exclude.list`. Raises ValueError for a broken expression; `tailrace.config.parse`
    has turned that into a ConfigError before. The signal tables, `signal.data.collection`, are captured whatever the
    lists say, except in the forms of Debezium 1.x, where they need to be listed like any other.
    """

    def __init__(self, settings: Any) -> None:
        self._connector = getattr(settings, "connector", "postgres")
        named = settings.get("signal.data.collection") or ()
        if str(settings.get("event.format")).startswith("1."):
            named = ()
        self._signals = frozenset(map(table_name, (named,) if isinstance(named, str) else named))
        self._schemas = _Lists.of(settings["schema.include.list"], settings["schema.exclude.list"])
        self._tables = _Lists.of(settings["table.include.list"], settings["table.exclude.list"])

    def includes(self, schema: str, table: str) -> bool:
        """Whether `schema.table` is captured; tables of the server's own schemas never are."""
        built_in = _BUILT_IN.get(self._connector)
        if built_in is not None and built_in.fullmatch(f"{schema}.{table}"):
            return False
        if (schema, table) in self._signals:
            return True
        return self._schemas.include(schema) and self._tables.include(f"{schema}.{table}")

    @property
    def is_open(self) -> bool:
        """Whether no list restricts the tables."""
        return not (self._schemas.restrict or self._tables.restrict)


class PrefixFilter:
    """Which logical messages are captured, by their prefixes, after `message.prefix.include.list` and its opposite.

    Picklable. Raises ValueError as TableFilter does.
    """

    def __init__(self, settings: Any) -> None:
        self._lists = _Lists.of(settings["message.prefix.include.list"], settings["message.prefix.exclude.list"])

    def includes(self, prefix: str) -> bool:
        """Whether messages with `prefix` are captured."""
        return self._lists.include(prefix)

    @property
    def excludes_all(self) -> bool:
        """Whether no message can be captured, so that the server need not send any."""
        return any(expression.pattern == ".*" for expression in self._lists.excluded)


@dataclass(frozen=True, slots=True)
class _Lists:
    included: tuple[re.Pattern[str], ...] = field(default=())
    excluded: tuple[re.Pattern[str], ...] = field(default=())

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


def compile_expression(expression: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    """A Java expression as Python's, to be used with `fullmatch`.

    ASCII alone folds case and makes `\\w`, `\\d`, `\\s`, as in Java by default. Raises ValueError with the reason
    for a broken expression and for the few constructs that Python has no equal of.
    """
    try:
        return re.compile(_translate(expression), re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except re.error as fault:
        raise ValueError(f"{expression!r} is no regular expression: {fault}") from None


def _translate(expression: str) -> str:
    """The expression with what Java writes in another way rewritten."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            piece, at = _escape(expression, at, depth > 0)
            out.append(piece)
            continue
        if char == "[":
            if depth:
                raise ValueError(f"{expression!r} has a class within a class, which is not supported: write one class")
            depth += 1
            out.append(char)
            at += 1
            continue
        if char == "]" and depth:
            depth -= 1
        elif depth and expression.startswith("&&", at):
            raise ValueError(f"{expression!r} intersects classes with &&, which is not supported: write one class")
        elif not depth and expression.startswith("(?<", at) and expression[at + 3 : at + 4] not in ("=", "!"):
            out.append("(?P<")
            at += 3
            continue
        out.append(char)
        at += 1
    return "".join(out)


def _escape(expression: str, at: int, in_class: bool) -> tuple[str, int]:
    """The rewritten escape that starts at `at`, and where the text goes on."""
    if at + 1 == len(expression):
        raise ValueError(f"{expression!r} ends with a lone backslash")
    letter = expression[at + 1]
    if letter == "Q":
        end = expression.find("\\E", at)
        end = len(expression) if end < 0 else end
        return re.escape(expression[at + 2 : end]), min(end + 2, len(expression))
    if letter in "pP":
        found = re.match(r"\{(?:Is|java)?(\w+)\}", expression[at + 2 :])
        name = found.group(1).lower() if found else ""
        if name not in _POSIX or (in_class and letter == "P"):
            raise ValueError(f"{expression!r} uses \\{letter} with a class that is not supported: list its characters")
        members = _POSIX[name]
        whole = members if in_class else f"[{'^' if letter == 'P' else ''}{members}]"
        return whole, at + 2 + len(found.group(0) if found else "")
    if letter == "x" and expression[at + 2 : at + 3] == "{":
        found = re.match(r"\{([0-9a-fA-F]{1,6})\}", expression[at + 2 :])
        if found is None:
            raise ValueError(f"{expression!r} has a broken \\x{{…}}")
        return re.escape(chr(int(found.group(1), 16))), at + 2 + len(found.group(0))
    if letter == "k" and expression[at + 2 : at + 3] == "<":
        end = expression.find(">", at)
        if end < 0:
            raise ValueError(f"{expression!r} has a broken \\k<…>")
        return f"(?P={expression[at + 3 : end]})", end + 1
    simple = {"z": r"\Z", "e": r"\x1b", "h": r"[ \t\xa0]", "R": r"(?:\r\n|[\n\x0b\f\r\x85])"}
    if letter in simple and not in_class:
        return simple[letter], at + 2
    if letter in "EGXNcHVR":
        raise ValueError(f"{expression!r} uses \\{letter}, which is not supported")
    return expression[at : at + 2], at + 2


def quoted_parts(name: str) -> tuple[str, ...] | None:
    """The parts of a name of which at least one is in double quotes (`""` within them is one); None for any other."""
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
    """Schema and table of a name, whose parts may be in double quotes; a database's name may precede them.

    The schema is empty for a name of one part.
    """
    parts = quoted_parts(name) or ("", *name.split("."))
    return parts[-2], parts[-1]
