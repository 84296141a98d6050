"""A session that is lost while a query starts: the error says so, and blames neither options nor tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tailrace.connectors.postgres.server.connection import explained
from tailrace.connectors.postgres.setup.slots import create_slot
from tailrace.connectors.postgres.snapshot.session import take_over
from tailrace.errors import ConnectionFailed, PrerequisiteError


class Failing:
    """A connection whose statements fail."""

    info = SimpleNamespace(server_version=170000)

    def __init__(self, error: psycopg.Error) -> None:
        self._error = error

    def execute(self, statement: bytes) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [psycopg.OperationalError("closed"), psycopg.errors.AdminShutdown("ended")])
def test_a_session_that_is_lost_while_it_creates_the_slot(error: psycopg.Error) -> None:
    with pytest.raises(ConnectionFailed):
        explained(create_slot)(Failing(error), "tailrace")  # type: ignore[arg-type]


def test_a_slot_that_the_server_refuses() -> None:
    with pytest.raises(PrerequisiteError, match="max_replication_slots"):
        create_slot(Failing(psycopg.errors.ConfigurationLimitExceeded("all in use")), "tailrace")  # type: ignore[arg-type]


def test_the_snapshot_of_a_slot_whose_session_is_lost() -> None:
    with pytest.raises(ConnectionFailed, match="snapshot"):
        take_over(Failing(psycopg.errors.UndefinedObject("no such snapshot")), "00000003-1")  # type: ignore[arg-type]
