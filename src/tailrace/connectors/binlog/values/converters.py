"""Debezium's converters for MySQL and MariaDB, which the option `converters` names. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tailrace.config.expressions import Expression, compile_expression
from tailrace.config.option import split_list

_PACKAGES = (
    "io.debezium.connector.binlog.converters.",
    "io.debezium.connector.mysql.converters.",
    "io.debezium.connector.mariadb.converters.",
)
TINYINT, SINK, ZERO_DATE = "TinyIntOneToBooleanConverter", "JdbcSinkDataTypesConverter", "ZeroDateFallbackConverter"
_OPTIONS = {
    TINYINT: ("type", "selector", "length.checker"),
    SINK: ("type", "selector.boolean", "selector.real", "selector.string", "treat.real.as.double"),
    ZERO_DATE: ("type", "selector", "target.types", "fallback.date", "fallback.datetime", "fallback.timestamp"),
}
_COLUMN = re.compile(r"column\.(.+)\.fallback")
_TEMPORAL = ("DATE", "DATETIME", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Converter:
    """A converter: its class without the package, and its options without the prefix of the converter's name."""

    kind: str
    options: tuple[tuple[str, str], ...] = ()
    # compiled once; not compared
    _compiled: dict[str, tuple[Expression, ...]] = field(default_factory=dict, compare=False, repr=False)

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    def is_on(self, name: str, default: bool) -> bool:
        return self.option(name, str(default)).strip().lower() == "true"

    def selects(self, name: str, option: str, default: str = "") -> bool:
        """Return True if an expression of the option matches the whole name of the column, database.table.column."""
        if option not in self._compiled:
            listed = split_list(self.option(option, default))
            self._compiled[option] = tuple(map(compile_expression, listed))
        return any(one.fullmatch(name) for one in self._compiled[option])


@lru_cache(maxsize=64)
def _made(options: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> tuple[Converter, ...]:
    return tuple(Converter(_kind(dict(own)["type"]) or "", own) for _, own in options)


def converters(values: Mapping[str, Any]) -> tuple[Converter, ...]:
    """Return the converters of a configuration without faults, in their order."""
    names = values.get("converters") or ()
    return _made(tuple((name, tuple(sorted(_own(values, name).items()))) for name in names))


def converter_faults(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of the options of converters, as sentences that begin with the option."""
    for name in values.get("converters") or ():
        own = _own(values, name)
        text = own.get("type", "")
        kind = _kind(text)
        if not text:
            yield f"{name}.type is missing, and converters names {name}"
        elif kind is None:
            known = ", ".join(_OPTIONS)
            yield f"{name}.type = {text} is not supported: it names a Java class, of which only {known} are known"
        else:
            yield from _kind_faults(name, kind, own)


def _kind_faults(name: str, kind: str, own: Mapping[str, str]) -> Iterator[str]:
    for option, text in own.items():
        if option not in _OPTIONS[kind] and not (kind == ZERO_DATE and _COLUMN.fullmatch(option)):
            yield f"{name}.{option} is not an option of {kind}, which has {', '.join(_OPTIONS[kind])}"
        elif option.startswith("selector"):
            for part in split_list(text):
                try:
                    compile_expression(part)
                except ValueError as fault:
                    yield f"{name}.{option}: {fault}"
        elif option in ("length.checker", "treat.real.as.double") and text.strip().lower() not in ("true", "false"):
            yield f"{name}.{option} must be true or false, not {text.strip()!r}"
        elif option == "target.types":
            for part in split_list(text):
                if part.upper() not in _TEMPORAL:
                    yield f"{name}.{option} knows {', '.join(_TEMPORAL)}, not {part!r}"
        elif "fallback" in option and text.strip().upper() != "NULL" and not _FALLBACK.fullmatch(text.strip()):
            yield f"{name}.{option} must be NULL, or a date or time as the database writes it, not {text.strip()!r}"


_FALLBACK = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?)?")


def _own(values: Mapping[str, Any], name: str) -> dict[str, str]:
    start = f"{name}."
    return {key[len(start) :]: text for key, text in values.items() if key.startswith(start) and isinstance(text, str)}


def _kind(text: str) -> str | None:
    text = text.strip()
    return next((kind for kind in _OPTIONS for package in _PACKAGES if text == package + kind), None)
