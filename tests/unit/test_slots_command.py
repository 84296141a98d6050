"""`tailrace slots` refuses what it cannot do, before it asks a server."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.command import slots
from tailrace.errors import ConfigError


def asked(connector: str = "postgres", *, seconds: int = 0, drop: str = "", yes: bool = False) -> int:
    pipeline: Any = SimpleNamespace(source=SimpleNamespace(connector=connector), checkpoint=None)
    return slots.run(pipeline, argparse.Namespace(seconds=seconds, drop=drop, yes=yes))


@pytest.mark.parametrize("seconds", [-1, 3601])
def test_the_time_to_watch_has_limits(seconds: int) -> None:
    with pytest.raises(ConfigError, match="between 0 and 3600"):
        asked(seconds=seconds)


def test_yes_is_the_answer_to_a_drop() -> None:
    with pytest.raises(ConfigError, match="--yes needs --drop"):
        asked(yes=True)


@pytest.mark.parametrize("connector", ["mysql", "mongodb", "sqlserver"])
def test_a_database_without_slots_has_none_to_drop(connector: str) -> None:
    with pytest.raises(ConfigError, match="has no replication slots"):
        asked(connector, drop="tailrace")
