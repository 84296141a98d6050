"""The interface of a database to the machine: a server that crashes, writers, and the committed changes."""

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
        """Begin or continue to write."""

    def stop(self) -> None:
        """Stop after the current transactions."""

    def lost(self) -> list[tuple[int, int]]:
        """Return transactions about which the server now contradicts what it told their writers."""


class Watch(Protocol):
    """A comparison of the positions that the server may discard with Spark's commits."""

    faults: list[str]
    samples: int

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Stop after the last comparison."""


class Source(Protocol):
    """A database with the tables and writers of the machine."""

    connector: str

    def open(self, stack: ExitStack) -> None:
        """Start the server and create the tables; `stack` ends it."""

    @property
    def port(self) -> int:
        """The server's port on 127.0.0.1."""

    def options(self, port: int) -> dict[str, str]:
        """Return the connector's options, with a login at `port`."""

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> Writers:
        """Return the writers, which begin with `start`."""

    def watch(self, checkpoint: Path) -> Watch | None:
        """Return the watch of a round; None if the server discards nothing for this client."""

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        """Return the change in a record; None if it is not of a table."""

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        """Return the changes committed since the last call, in order, each with True if a pipeline with this first
        offset delivers it."""

    def rows(self) -> Mapping[str, Mapping[str, Row]]:
        """Return the present rows of all tables."""

    def crash(self) -> None:
        """End the server at once."""

    def again(self) -> None:
        """Restart the server."""

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        """End the session that reads the log, or all sessions. Return a description, None if that is impossible."""

    def described(self) -> list[str]:
        """Return the server's view of the pipeline, for a report."""

    def keep(self, folder: Path) -> None:
        """Copy the server's own log into the folder."""
