"""Removable: what a pipeline has on a server, for `tailrace remove`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config import Config


@dataclass(frozen=True, slots=True)
class Removable:
    """A part of a pipeline on its server: `name` with its kind, as in "the replication slot debezium".

    `statement` removes it. `kept` is a sentence on why it is left alone, since it may not be this pipeline's own; "" if
    it is.
    """

    name: str
    statement: str
    kept: str = ""


class Removal:
    """A connector's functions that find and remove the parts of a pipeline on a server. Driver.

    `found` returns what is there, in the order in which it is removed; its second argument is the offset of the
    pipeline's checkpoint, None without one. `remove` runs a part's statement. Both raise TailraceError.
    """

    def __init__(
        self,
        found: Callable[[Config, Mapping[str, Any] | None], Sequence[Removable]],
        remove: Callable[[Config, Removable], None],
    ) -> None:
        self.found = found
        self.remove = remove
