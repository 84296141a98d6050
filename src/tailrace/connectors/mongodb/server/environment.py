"""The surroundings of MongoDB's planner, which tests replace: clients, and time. Planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    from pymongo import MongoClient


@dataclass(frozen=True, slots=True)
class Environment:
    """A function that makes a client, and time, threads and waiting. `connect` raises what `connection.connect`
    does."""

    connect: Callable[[Address], MongoClient[Any]] = connect
    runtime: Runtime = THREADS


OUTSIDE = Environment()
