"""Scripts of the golden cases of MySQL and MariaDB: statements, and the directives between them.

A statement ends with a semicolon at the end of a line; lines that begin with `--` belong to none.
"""

from __future__ import annotations

import re

from tests.golden.script import Directive, Statement

DIRECTIVES = frozenset(
    {"sleep", "settle", "wait", "stop", "start", "session", "ended", "signal", "config", "forget"}
)  # fmt: skip
_DIRECTIVE = re.compile(r"--@[ \t]*(\w+)[ \t]*(.*)")


def split(text: str) -> list[Statement | Directive]:
    """Return the script in order. Raises ValueError for an unknown directive."""
    found: list[Statement | Directive] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        directive = _DIRECTIVE.match(line)
        if directive is not None:
            if directive[1] not in DIRECTIVES:
                raise ValueError(f"unknown directive: {line.strip()}")
            found.append(Directive(directive[1], directive[2].strip()))
        elif line.startswith("--"):
            continue
        else:
            lines.append(line)
            if line.rstrip().endswith(";"):
                found.append(Statement("".join(lines).strip().removesuffix(";").strip()))
                lines = []
    if "".join(lines).strip():
        raise ValueError(f"a statement does not end: {''.join(lines).strip()[:40]}")
    return found
