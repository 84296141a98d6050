"""Java's property files, as far as configurations use them."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Return names and values, with escapes resolved, lines joined after a backslash, and comments left out."""
    properties: dict[str, str] = {}
    logical = ""
    for line in text.splitlines():
        natural = line.lstrip(" \t\f")
        if not logical and (not natural or natural[0] in "#!"):
            continue
        backslashes = len(natural) - len(natural.rstrip("\\"))
        if backslashes % 2:
            logical += natural[:-1]
            continue
        name, value = _split(logical + natural)
        properties[name] = value
        logical = ""
    if logical:
        name, value = _split(logical)
        properties[name] = value
    return properties


def _split(line: str) -> tuple[str, str]:
    """Split a logical line at its first unescaped `=`, `:` or blank."""
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", line, re.S)
    assert match is not None
    return _resolve(match[1]), _resolve(line[match.end() :])


def _resolve(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)

    return _ESCAPE.sub(one, text)
