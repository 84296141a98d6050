r"""Java .properties text: comments, continuation lines, `\uXXXX` and the other escapes. No I/O."""

from __future__ import annotations

import re

from tailrace.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""Return name and value of each entry, in order; the last one of a name counts, as in Java.

    Raises ConfigError for an invalid `\u` escape.
    """
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        entries[_unescape(name)] = _unescape(value)
    return entries


def _logical_lines(text: str) -> list[str]:
    """Return lines, joined after an odd number of backslashes, without blank and comment lines."""
    lines: list[str] = []
    pending = ""
    continued = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += line[:-1] if continued else line
        if not continued:
            lines.append(pending)
            pending = ""
    if pending:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    """Return name and value; the name ends at the first `=`, `:` or blank that is not escaped."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    name, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return name, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ConfigError(f"The file has a broken escape: \\u{digits}.", "Write four hexadecimal digits.")
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    # Characters beyond the basic plane come as two escapes, a surrogate pair.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
