"""The interface between the contract and a database: a table `things` of numbered rows, and options for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import MappingProxyType
from typing import Protocol

from tests.chaos.proxy import Proxy

TABLE = "things"
"""The name of the table, in any case."""
Lose = Callable[[], object]
"""Cuts off the server for users of the options that came with this function."""


class Subject(Protocol):
    """A connector with a database of its own, to which nobody else writes."""

    connector: str
    """The connector's name in the registry."""
    options: Mapping[str, str]
    """Options of a query that delivers the changes of `things` from its start on, without a snapshot."""
    snapshot: Mapping[str, str]
    """Options that a query with a snapshot has instead."""
    signals: Mapping[str, str]
    """Further options of a query with signals."""
    table: str
    """The name of `things` in a signal."""
    secrets: tuple[str, ...]
    """Texts that must never be printed."""

    def insert(self, *numbers: int) -> None:
        """Insert rows with these keys, each in a transaction of its own, and wait until they are captured."""
        ...

    def at_work(self) -> AbstractContextManager[object]:
        """Inside the block, changes by others are captured too."""
        ...

    def losable(self) -> AbstractContextManager[tuple[Mapping[str, str], Lose]]:
        """Yield options for the same database over a connection that can be cut, and the function that cuts it."""
        ...


class Served(Subject):
    """A database behind a port of 127.0.0.1."""

    snapshot = MappingProxyType({"snapshot.mode": "initial"})
    port: int

    def at_work(self) -> AbstractContextManager[object]:
        return nullcontext()

    def reached(self, port: int) -> Mapping[str, str]:
        """Return the options with another port."""
        return {**self.options, "database.port": str(port)}

    @contextmanager
    def losable(self) -> Iterator[tuple[Mapping[str, str], Lose]]:
        with ExitStack() as way:
            proxy = way.enter_context(Proxy(self.port))
            yield self.reached(proxy.port), way.close
