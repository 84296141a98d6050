"""`tailrace tables` refuses what it cannot do, before it asks a server."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.command import tables
from tailrace.errors import ConfigError


def asked(action: str, *names: str, connector: str = "postgres") -> int:
    pipeline: Any = SimpleNamespace(
        source=SimpleNamespace(connector=connector), checkpoint=None, checkpoint_location="hdfs://name/shop"
    )
    return tables.run(pipeline, argparse.Namespace(action=action, names=list(names)))


def test_the_list_is_of_all_tables() -> None:
    with pytest.raises(ConfigError, match="list takes no names"):
        asked("list", "public.t")


def test_tables_in_a_checkpoint_that_is_not_local_are_not_listed_by_the_lists_alone() -> None:
    with pytest.raises(ConfigError, match="hdfs://name/shop is not in a local file system"):
        asked("list")


@pytest.mark.parametrize("action", ["add", "remove", "resnapshot"])
def test_a_table_must_be_named(action: str) -> None:
    with pytest.raises(ConfigError, match=f"tables {action} needs the name of a table"):
        asked(action)


@pytest.mark.parametrize("connector", ["mongodb", "sqlserver", "db2"])
def test_lists_that_cannot_change_in_a_run_are_refused(connector: str) -> None:
    with pytest.raises(ConfigError, match="cannot be listed, added or removed while it runs"):
        asked("add", "dbo.t", connector=connector)
