"""Words, names and literals of a statement, as MySQL and MariaDB read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

WORD, NAME, TEXT, NUMBER, HEX, BITS, SYMBOL, END = "word", "name", "text", "number", "hex", "bits", "symbol", "end"


class Unparsable(ValueError):
    """A statement that is not understood; `at` is the place in its text."""

    def __init__(self, what: str, at: int = -1) -> None:
        super().__init__(what, at)
        self.what, self.at = what, at


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a statement from `start` to `end` of its text.

    `text` is a word in capitals, a name without quotes, the value of a text, or the source text. `raw` is the source of
    a text between its quotes.
    """

    kind: str
    text: str
    start: int
    end: int
    raw: str = ""

    def __repr__(self) -> str:
        return f"{self.kind}:{self.text}"


_SPACE = re.compile(r"\s+")
_LINE = re.compile(r"(?:#|--(?=[\s\x00-\x1f]|$))[^\n]*")
_EXECUTED = re.compile(r"/\*(M?)!(\d{5,6})?")
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w$])")
_PLAIN_HEX = re.compile(r"0x([0-9A-Fa-f]+)(?![\w$])")
_PLAIN_BITS = re.compile(r"0b([01]+)(?![\w$])")
_QUOTED_HEX = re.compile(r"[xX]'([0-9A-Fa-f]*)'")
_QUOTED_BITS = re.compile(r"[bB]'([01]*)'")
_WORD = re.compile(r"@{0,2}[\w$\u0080-\uffff]+")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Settings by which a server reads statements: its modes and version.

    `ansi`: double quotes enclose names (ANSI_QUOTES). `plain`: a backslash is an ordinary character
    (NO_BACKSLASH_ESCAPES). `oracle`: MariaDB reads some types as Oracle does (ORACLE). `version` is the server's, such
    as 80015: executable comments for later versions are ignored.
    """

    ansi: bool = False
    plain: bool = False
    mariadb: bool = False
    oracle: bool = False
    version: int = 999_999

    def executes(self, only_mariadb: bool, version: int) -> bool:
        """Return True if the content of a comment `/*!` or `/*M!` with this version is part of the statement."""
        if only_mariadb and not self.mariadb:
            return False
        # MariaDB ignores comments for MySQL 5.7 and later
        if self.mariadb and not only_mariadb and 50_700 <= version <= 99_999:
            return False
        return version <= self.version


def tokens(sql: str, reading: SqlSettings) -> list[Token]:
    """Return the tokens of a text, ending with a token of the kind END. Raises Unparsable."""
    found: list[Token] = []
    at, size, inside = 0, len(sql), 0
    while at < size:
        if space := _SPACE.match(sql, at) or _LINE.match(sql, at):
            at = space.end()
            continue
        if sql.startswith("/*", at):
            opened = _EXECUTED.match(sql, at)
            if opened is not None and reading.executes(bool(opened[1]), int(opened[2] or 0)):
                at, inside = opened.end(), inside + 1
                continue
            end = sql.find("*/", at + 2)
            at = size if end < 0 else end + 2
            continue
        if inside and sql.startswith("*/", at):
            at, inside = at + 2, inside - 1
            continue
        found.append(_token(sql, at, reading))
        at = found[-1].end
    found.append(Token(END, "", size, size))
    return found


def single_quoted(sql: str, reading: SqlSettings) -> str:
    """Return a statement with its texts in single quotes, as Debezium's connector for MySQL records it."""
    parts, at = [], 0
    for token in tokens(sql, reading):
        if token.kind == TEXT and sql[token.end - 1] == '"':
            quoted = token.raw.replace("'", "''")
            parts += [sql[at : token.end - len(token.raw) - 2], f"'{quoted}'"]
            at = token.end
    return "".join([*parts, sql[at:]])


def _token(sql: str, at: int, reading: SqlSettings) -> Token:
    letter = sql[at]
    if letter == "`" or (letter == '"' and reading.ansi):
        return _quoted_name(sql, at)
    if letter in "'\"":
        return _text(sql, at, at, reading)
    if (one := _QUOTED_HEX.match(sql, at)) or (one := _PLAIN_HEX.match(sql, at)):
        return Token(HEX, one[1], at, one.end())
    if (one := _QUOTED_BITS.match(sql, at)) or (one := _PLAIN_BITS.match(sql, at)):
        return Token(BITS, one[1], at, one.end())
    if letter in "nN" and sql.startswith("'", at + 1):
        return _text(sql, at, at + 1, reading)
    if one := _NUMBER.match(sql, at):
        return Token(NUMBER, one[0], at, one.end())
    if one := _WORD.match(sql, at):
        return Token(WORD, one[0].upper(), at, one.end(), one[0])
    return Token(SYMBOL, letter, at, at + 1)


def _quoted_name(sql: str, at: int) -> Token:
    quote, parts, place = sql[at], [], at + 1
    while True:
        end = sql.find(quote, place)
        if end < 0:
            raise Unparsable("a name has no closing quote", at)
        parts.append(sql[place:end])
        if not sql.startswith(quote, end + 1):
            return Token(NAME, quote.join(parts), at, end + 1)
        place = end + 2


def _text(sql: str, start: int, at: int, reading: SqlSettings) -> Token:
    quote, value, place, begin = sql[at], [], at + 1, at + 1
    while place < len(sql):
        letter = sql[place]
        if letter == "\\" and not reading.plain:
            if place + 1 >= len(sql):
                break
            following = sql[place + 1]
            # for patterns the server keeps the backslash before these
            value.append(f"\\{following}" if following in "%_" else _ESCAPES.get(following, following))
            place += 2
        elif letter != quote:
            value.append(letter)
            place += 1
        elif sql.startswith(quote, place + 1):
            value.append(quote)
            place += 2
        else:
            return Token(TEXT, "".join(value), start, place + 1, sql[begin:place])
    raise Unparsable("a text has no closing quote", at)
