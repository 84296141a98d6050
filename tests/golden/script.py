"""SQL scripts for a runner: statements, and the directives between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement, without its semicolon. `data` holds the lines that follow a COPY from stdin."""

    text: str
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Directive:
    """A line `--@ name argument`; `argument` is "" if there is none."""

    name: str
    argument: str


DIRECTIVES = frozenset({"sleep", "settle", "wait", "stop", "start"})
_DIRECTIVE = re.compile(r"^[ \t]*--@[ \t]*(\w+)[ \t]*([^\r\n]*)$", re.M)
_COPY = re.compile(r"copy\b.*\bfrom\s+stdin\b", re.I | re.S)
_DATA_END = re.compile(r"^\\\.[ \t\r]*$", re.M)
_DOLLAR = re.compile(r"\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$")
_PLAIN = re.compile(r"[^'\"$;/\-A-Za-z_\u0080-\uffff]+|[\w\u0080-\uffff][\w$\u0080-\uffff]*", re.A)


def split(script: str) -> list[Statement | Directive]:
    """Return the script in order. Raises ValueError for an unknown directive or an unfinished quote or comment.

    It knows single quotes (with E'' and its backslashes), double quotes, dollar quotes, line comments and nested block
    comments, as PostgreSQL's own lexer reads them, and `begin atomic … end` bodies of functions. The data of `COPY …
    FROM stdin` begin in the line after the semicolon and end with a line `\\.`, as in psql and pg_dump.
    """
    return list(_split(script))


def execute(session: psycopg.Connection[Any], statement: Statement) -> None:
    """Run one statement, with its data if it is a COPY from the script."""
    if statement.data is None:
        session.execute(statement.text.encode())
        return
    with session.cursor() as cursor, cursor.copy(statement.text.encode()) as copy:
        copy.write(statement.data.encode())


def _split(script: str) -> Iterator[Statement | Directive]:
    start = position = 0
    atomic = 0
    words: list[str] = []
    while position < len(script):
        directive = _DIRECTIVE.match(script, position) if _line_start(script, position) else None
        if directive:
            if _content(script[start:position]):
                raise ValueError(f"a directive stands inside a statement: {directive.group()}")
            if directive[1] not in DIRECTIVES:
                raise ValueError(f"unknown directive: {directive.group().strip()}")
            yield Directive(directive[1], directive[2].strip())
            start = position = directive.end()
            continue
        character = script[position]
        if character == ";" and not atomic:
            text = _content(script[start:position])
            position += 1
            if _COPY.match(text):
                data, position = _data(script, position)
                yield Statement(text, data)
            elif text:
                yield Statement(text)
            start, words = position, []
            continue
        end = _token(script, position)
        token = script[position:end]
        if token[0].isalpha() or token[0] == "_":
            word = token.lower()
            atomic += (word == "atomic" and words[-1:] == ["begin"]) or (bool(atomic) and word == "case")
            atomic -= bool(atomic) and word == "end"
            words.append(word)
        position = end
    text = _content(script[start:])
    if text:
        yield Statement(text)


def _data(script: str, at: int) -> tuple[str, int]:
    """Return the lines after a COPY whose semicolon ends at `at`, without the line that ends them, and the place after
    that."""
    newline = script.find("\n", at)
    if newline < 0 or script[at:newline].strip():
        raise ValueError("the data of a COPY from stdin begin in the line behind it")
    end = _DATA_END.search(script, newline + 1)
    if end is None:
        raise ValueError("the data of a COPY from stdin do not end with a line \\.")
    return script[newline + 1 : end.start()], end.end()


def _line_start(script: str, position: int) -> bool:
    return position == 0 or script[position - 1] == "\n"


def _token(script: str, at: int) -> int:
    """Return the end of the lexical element that begins at `at`."""
    character = script[at]
    if character == "'":
        return _quoted(script, at, "'", at > 0 and _escaping(script, at))
    if character == '"':
        return _quoted(script, at, '"', False)
    if script.startswith("--", at):
        end = script.find("\n", at)
        return len(script) if end < 0 else end
    if script.startswith("/*", at):
        return _block(script, at)
    if character == "$":
        tag = _DOLLAR.match(script, at)
        if tag:
            end = script.find(tag.group(), tag.end())
            if end < 0:
                raise ValueError(f"the dollar quote {tag.group()} is not closed")
            return end + len(tag.group())
    # One line at a time, so that a directive is recognised at the start of its line.
    plain = _PLAIN.match(script, at)
    if plain is None:
        return at + 1
    newline = script.find("\n", at, plain.end())
    return plain.end() if newline < 0 else newline + 1


def _escaping(script: str, quote: int) -> bool:
    before = script[quote - 2] if quote > 1 else " "
    return script[quote - 1] in "eE" and not (before.isalnum() or before in "_$")


def _quoted(script: str, at: int, quote: str, backslashes: bool) -> int:
    position = at + 1
    while position < len(script):
        if backslashes and script[position] == "\\":
            position += 2
        elif script[position] != quote:
            position += 1
        elif script.startswith(quote, position + 1):
            position += 2
        else:
            return position + 1
    raise ValueError(f"the quote is not closed: {script[at : at + 40]}")


def _block(script: str, at: int) -> int:
    depth, position = 0, at
    while position < len(script):
        if script.startswith("/*", position):
            depth, position = depth + 1, position + 2
        elif script.startswith("*/", position):
            depth, position = depth - 1, position + 2
            if depth == 0:
                return position
        else:
            position += 1
    raise ValueError("a block comment is not closed")


def _content(text: str) -> str:
    """Return `text` without surrounding space and comments; "" if nothing else is left."""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
        elif text.startswith("--", position) or text.startswith("/*", position):
            position = _token(text, position)
        else:
            return text[position:].strip()
    return ""
