"""What the machine needs of a database: a server that crashes, writers, and what was committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.changes import Change, Row

Offset = dict[str, Any]


class Writers(Protocol):
    """Sessions that write."""

    failures: list[str]

    def start(self) -> None:
        """Begin to write, or go on."""

    def stop(self) -> None:
        """End after the current transactions."""

    def lost(self) -> list[tuple[int, int]]:
        """Transactions of which the server says something else now than it has said to their writers."""


class Watch(Protocol):
    """Compares what the server may forget with what Spark has committed."""

    faults: list[str]
    samples: int

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End, after the last comparison."""


class Source(Protocol):
    """A database, with the tables and writers of the machine."""

    connector: str

    def open(self, stack: ExitStack) -> None:
        """Start the server and make the tables; `stack` ends it."""

    @property
    def port(self) -> int:
        """The server's port on 127.0.0.1."""

    def options(self, port: int) -> dict[str, str]:
        """The connector's options, with a login at `port`."""

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> Writers:
        """The writers; they begin with `start`."""

    def watch(self, checkpoint: Path) -> Watch | None:
        """The watch of a round; None where the server forgets nothing for this client."""

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        """The change that a record tells; None for one that tells of no table."""

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        """What was committed since the last call, in its order, and whether a pipeline with this first offset
        delivers it."""

    def rows(self) -> Mapping[str, Mapping[str, Row]]:
        """All tables as they are now."""

    def crash(self) -> None:
        """End the server at once."""

    def again(self) -> None:
        """Start it again."""

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        """End the session that reads the log, or all sessions; says what was done, None where that cannot be."""

    def described(self) -> list[str]:
        """How the server sees the pipeline, for a report."""

    def keep(self, folder: Path) -> None:
        """Copy the server's own log into the folder."""
