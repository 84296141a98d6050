"""Removable: what a pipeline has on a server, for `tailrace remove`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config import Config


@dataclass(frozen=True, slots=True)
class Removable:
    """A part of a pipeline on its server: `name` with its kind, as in "the replication slot debezium".

    `statement` removes it. `kept` says in a sentence why the part is not removed: it may belong to another pipeline. It
    is "" if the part is this pipeline's own.
    """

    name: str
    statement: str
    kept: str = ""


UNKNOWN = "There is no checkpoint that shows whether it is this pipeline's own."
OTHER_SERVER = "The checkpoint is of another server."


def shaped(texts: Sequence[bool]) -> str:
    """Return why a table is no signal table, as a sentence; "" if it is one: three columns, all of them `texts`."""
    return "" if len(texts) == 3 and all(texts) else "It has other columns than a signal table."


class Removal:
    """A connector's functions that find and remove the parts of a pipeline on a server. Driver.

    `found` returns the parts that exist, in the order of their removal. Its second argument is the offset of the
    pipeline's checkpoint, None without one. `remove` runs a part's statement. Both raise TailraceError.
    """

    def __init__(
        self,
        found: Callable[[Config, Mapping[str, Any] | None], Sequence[Removable]],
        remove: Callable[[Config, Removable], None],
    ) -> None:
        self.found = found
        self.remove = remove
