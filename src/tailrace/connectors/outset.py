"""Outset: what a server has and lacks for a first pipeline, for `tailrace init`. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.config import Config


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at a server.

    `entries` are options for the file, beside those that were given. `statements` are those that an administrator has
    to run before the first start, in order, each with its semicolon.
    """

    entries: tuple[tuple[str, str], ...]
    statements: tuple[str, ...] = ()


Outset = Callable[[Config], Look]
"""Looks at the server of a configuration; changes nothing. Driver. Raises TailraceError."""
