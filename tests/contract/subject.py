"""What the contract needs of a database: a table `things` of numbered rows, and options that name it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import MappingProxyType
from typing import Protocol

from tests.chaos.proxy import Proxy

TABLE = "things"
"""The name of the table, in whatever case."""
Lose = Callable[[], object]
"""Ends the server for whoever reaches it through the options that came with this."""


class Subject(Protocol):
    """One connector with a database of its own, which nobody else writes to."""

    connector: str
    """The name by which the registry knows it."""
    options: Mapping[str, str]
    """Options of a query that delivers the changes of `things` from its beginning on, without its rows."""
    snapshot: Mapping[str, str]
    """What a query with a snapshot has instead; empty where the connector reads no rows."""
    signals: Mapping[str, str]
    """What a query that obeys signals has as well; empty where the connector knows no incremental snapshots."""
    table: str
    """`things` as a signal names it."""
    secrets: tuple[str, ...]
    """What must be printed nowhere."""

    def insert(self, *numbers: int) -> None:
        """Insert rows with these keys, each in a transaction of its own; what is captured is in the log then."""
        ...

    def at_work(self) -> AbstractContextManager[object]:
        """What others write meanwhile is captured, too."""
        ...

    def losable(self) -> AbstractContextManager[tuple[Mapping[str, str], Lose]]:
        """Options of the same database over a way that can be cut, for good; and what cuts it."""
        ...


class Served(Subject):
    """A database behind a port of 127.0.0.1."""

    snapshot = MappingProxyType({"snapshot.mode": "initial"})
    port: int

    def at_work(self) -> AbstractContextManager[object]:
        return nullcontext()

    def reached(self, port: int) -> Mapping[str, str]:
        """The options, with another port."""
        return {**self.options, "database.port": str(port)}

    @contextmanager
    def losable(self) -> Iterator[tuple[Mapping[str, str], Lose]]:
        with ExitStack() as way:
            proxy = way.enter_context(Proxy(self.port))
            yield self.reached(proxy.port), way.close
