"""T-SQL's lexical elements."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tdsserver.errors import SqlError, syntax

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\r\n]*)
      | (?P<national>[nN]'(?:[^']|'')*')
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>\[(?:[^\]]|\]\])*\]|"(?:[^"]|"")*")
      | (?P<hex>0[xX][0-9A-Fa-f]*)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<variable>@@?[\w$#@]+)
      | (?P<word>[^\W\d][\w$#@]*|\#{1,2}[\w$#@]+|\$[\w$#@]*)
      | (?P<operator><>|!=|<=|>=|!<|!>|\+=|-=|\*=|/=|%=|[-+*/%=<>&|^~(),.;{}?:])
    """,
    re.X,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: national, text, quoted, hex, number, variable, word, operator or end; `text` without quotes."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in capitals; an empty string for [select] and every other token that is no bare word or operator."""
        return self.text.upper() if self.kind == "word" else self.text if self.kind == "operator" else ""


def tokens(sql: str) -> list[Token]:
    """Return the tokens of a batch, the last of kind `end`; raises SqlError 102, 105 or 113."""
    found: list[Token] = []
    position = 0
    while position < len(sql):
        if sql.startswith("/*", position):
            position = _comment(sql, position)
            continue
        match = _TOKEN.match(sql, position)
        if match is None:
            if sql[position] in "'\"[":
                raise SqlError(105, f"Unclosed quotation mark after the character string '{sql[position + 1 :]}'.", 15)
            raise syntax(sql[position])
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(Token(kind, _content(kind, match.group()), position, match.end()))
        position = match.end()
    found.append(Token("end", "", len(sql), len(sql)))
    return found


def _comment(sql: str, at: int) -> int:
    depth, position = 0, at
    while position < len(sql):
        if sql.startswith("/*", position):
            depth, position = depth + 1, position + 2
        elif sql.startswith("*/", position):
            depth, position = depth - 1, position + 2
            if depth == 0:
                return position
        else:
            position += 1
    raise SqlError(113, "Missing end comment mark '*/'.", 15)


def _content(kind: str, text: str) -> str:
    if kind == "national":
        return text[2:-1].replace("''", "'")
    if kind == "text":
        return text[1:-1].replace("''", "'")
    if kind == "quoted":
        return text[1:-1].replace("]]", "]") if text[0] == "[" else text[1:-1].replace('""', '"')
    if kind == "hex":
        return text[2:]
    return text
