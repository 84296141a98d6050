"""Option: one row of a connector's table of options, which parses its text into a typed value. No I/O, picklable."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
    """The kind of an option's value. The Python type follows the arrow."""

    TEXT = "text"  # -> str
    SECRET = "secret"  # -> str, never shown
    BOOLEAN = "true or false"  # -> bool
    INTEGER = "a whole number"  # -> int
    LIST = "a comma-separated list"  # -> list[str]
    EXPRESSIONS = "a comma-separated list of regular expressions"  # -> list[str]
    STATEMENTS = "SQL statements separated by semicolons"  # -> list[str]
    LETTERS = "a comma-separated list of operations"  # -> frozenset[str]


_SECRET = re.compile(
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|jaas|credential|api[.\-_]?key|access[.\-_]?key|account[.\-_]?key"
    r"|private[.\-_]?key|keystore\.key|user[.\-_]?info|connection\.?string|\.salt|initial\.statements"
    r"|request\.headers\.|notification\.http\.url",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"//[^/\s]*@")


def holds_secret(name: str) -> bool:
    """Return True if the option `name`, known or not, may hold a secret, so that its value is never shown."""
    return _SECRET.search(name) is not None


def holds_login(text: str) -> bool:
    """Return True if a value is a URL with a login before its host, so that it is never shown."""
    return _LOGIN.search(text) is not None


Check = Callable[[Any], str]
"""Returns what is wrong with a typed value, in words that follow the option's name; "" if nothing."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connector.

    - `name`: Debezium's spelling, or tailrace's own.
    - `default`: the typed value if the option is absent; `default_1x`: the default of the 1.x generation, if another.
    - `choices`: the accepted words, compared without regard to case.
    - `deprecated_names`: older spellings, accepted with a warning; `aliases`: accepted without one.
    - `unsupported`: the reason why only the default is accepted; `neutral`: further values with the default's meaning.
    - `refused`: single choices of a supported option that are refused, with the reason.
    - `notice`: why an accepted option has no effect here.
    - `pattern`: for a family of names, matched in full without regard to case.
    - `instead`: words that are replaced, as `(word, replacement, reason)`.
    """

    name: str
    kind: Kind
    doc: str
    default: Any = None
    default_1x: Any = None
    choices: tuple[str, ...] = ()
    check: Check | None = None
    deprecated_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    unsupported: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    notice: str = ""
    pattern: str = ""
    neutral: tuple[Any, ...] = ()
    instead: tuple[tuple[str, str, str], ...] = ()

    def parse(self, text: str) -> Any:
        """Return the typed value of `text`. Raises ValueError; its message follows the option's name in a sentence."""
        value = _PARSERS[self.kind](text)
        if self.choices and isinstance(value, str):
            value = self._choose(value)
        if self.check is not None:
            fault = self.check(value)
            if fault:
                raise ValueError(fault)
        return value

    def _choose(self, value: str) -> str:
        word = value.strip().lower()
        for choice, reason in self.refused:
            if word == choice:
                raise ValueError(f"= {choice} is not supported: {reason}")
        for choice in self.choices:
            if word == choice.lower():
                return choice
        raise ValueError(f"must be one of {', '.join(self.choices)}, not {value.strip()!r}")

    def replacement(self, text: str) -> tuple[str, str] | None:
        """Return the word that replaces `text`, and why; None if the text itself is read."""
        word = text.strip().lower()
        return next(((taken, reason) for given, taken, reason in self.instead if given.lower() == word), None)

    @property
    def stand_in(self) -> Any:
        """A substitute for a value that is not known yet; None if there is none."""
        if self.default is not None:
            return self.default
        value = self.choices[0] if self.choices else _STAND_INS[self.kind]
        return None if self.check is not None and self.check(value) else value

    def hides(self, name: str) -> bool:
        """Return True if the value given under `name` is never shown."""
        return self.kind is Kind.SECRET or holds_secret(name)

    def matches(self, name: str) -> bool:
        """Return True if `name` belongs to this row's family of names."""
        return bool(self.pattern) and re.fullmatch(self.pattern, name, re.IGNORECASE) is not None


def at_least(least: int) -> Check:
    """Return a check that a number is not below `least`."""
    return lambda value: "" if value >= least else f"must be at least {least}, not {value}"


def between(least: int, most: int) -> Check:
    """Return a check that a number lies in a closed range."""
    return lambda value: "" if least <= value <= most else f"must lie between {least} and {most}, not {value}"


def matching(expression: str, words: str) -> Check:
    """Return a check that a text matches `expression` in full; `words` describe what is expected."""
    compiled = re.compile(expression)
    return lambda value: "" if compiled.fullmatch(value) else f"must be {words}, not {value!r}"


def split_list(text: str) -> list[str]:
    r"""Return the parts of a list: separated by commas, without surrounding blanks; `\,` is a comma within a part."""
    return [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text) if part.strip()]


def split_statements(text: str) -> list[str]:
    """Return SQL statements separated by `;`; `;;` is a semicolon within a statement."""
    parts = re.split(r"(?<!;);(?!;)", text)
    return [part.replace(";;", ";").strip() for part in parts if part.strip()]


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text.strip()!r}")
    return word == "true"


def _integer(text: str) -> int:
    # some positions need 64 bits
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"must be a whole number, not {text.strip()!r}")
    return int(text)


def _letters(text: str) -> frozenset[str]:
    letters = frozenset(part.lower() for part in split_list(text))
    if "none" in letters:
        if len(letters) > 1:
            raise ValueError("names none beside operations; give one or the other")
        return frozenset()
    unknown = sorted(letters - frozenset("cudt"))
    if unknown:
        raise ValueError(f"knows c, u, d, t and none, not {', '.join(unknown)}")
    return letters


_STAND_INS: dict[Kind, Any] = {
    Kind.TEXT: "unknown",
    Kind.SECRET: "unknown",
    Kind.BOOLEAN: False,
    Kind.INTEGER: 1,
    Kind.LIST: [],
    Kind.EXPRESSIONS: [],
    Kind.STATEMENTS: [],
    Kind.LETTERS: frozenset(),
}

_PARSERS: dict[Kind, Callable[[str], Any]] = {
    Kind.TEXT: lambda text: text.strip(),
    Kind.SECRET: lambda text: text,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.LIST: split_list,
    Kind.EXPRESSIONS: split_list,
    Kind.STATEMENTS: split_statements,
    Kind.LETTERS: _letters,
}
