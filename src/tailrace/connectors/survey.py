"""Surveys: what a server has and lacks for a first pipeline, for `tailrace init`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.config import Config


@dataclass(frozen=True, slots=True)
class ServerSurvey:
    """The result of a look at a server.

    `entries` are options for the file, beside those that were given. `statements` are those that an administrator has
    to run before the first start, in order, each with its semicolon.
    """

    entries: tuple[tuple[str, str], ...]
    statements: tuple[str, ...] = ()


LISTED = 40
"""The most tables that a list names; for more tables it names their schemas or databases."""


def lists(tables: Sequence[tuple[str, str]], holder: str, what: str = "table") -> tuple[tuple[str, str], ...]:
    """Return the include list for `tables`: pairs of a schema or database, and a name. `holder` is "schema" or
    "database".

    The list names the tables or, if they are more than LISTED, their schemas or databases. It is empty without tables.
    """
    if not tables:
        return ()
    if len(tables) > LISTED:
        return ((f"{holder}.include.list", ",".join(map(expression, sorted({of for of, _ in tables})))),)
    return ((f"{what}.include.list", ",".join(f"{expression(of)}.{expression(name)}" for of, name in tables)),)


def expression(name: str) -> str:
    """Return a name as an expression of a list that matches it alone."""
    return re.sub(r"([^\w ])", r"\\\1", name)


Surveying = Callable[[Config], ServerSurvey]
"""Looks at the server of a configuration; changes nothing. Driver. Raises TailraceError."""
