"""`register` adds the formats that Spark has not found to a user's own session, for workers of this environment."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.connectors import registry
from tailrace.spark.source import register


def session(known: bool, master: str = "local[2]", **conf: str) -> Any:
    """Return the parts of a session that `register` uses. `known` is True if Spark has found the formats."""
    made: list[str] = []
    manager = SimpleNamespace(dataSourceExists=lambda name: known)
    return SimpleNamespace(
        made=made,
        dataSource=SimpleNamespace(register=lambda source: made.append(source.name())),
        _jsparkSession=SimpleNamespace(sessionState=lambda: SimpleNamespace(dataSourceManager=lambda: manager)),
        _sc=SimpleNamespace(
            master=master, pythonExec="python3", getConf=lambda: SimpleNamespace(contains=conf.__contains__)
        ),
    )


def test_what_spark_has_found_is_not_registered_again() -> None:
    known, unknown = session(known=True), session(known=False)
    register(known)
    register(unknown)
    assert known.made == []
    assert unknown.made == [one.format for one in registry.known()]


@pytest.mark.parametrize(
    ("master", "named", "conf", "own"),
    [
        ("local[2]", "", {}, True),
        ("local[2]", "/usr/bin/python3", {}, False),
        ("local[2]", "", {"spark.pyspark.python": "x"}, False),
        ("spark://h:7077", "", {}, False),
    ],
)
def test_workers_of_a_local_session_are_of_this_environment(
    monkeypatch: pytest.MonkeyPatch, master: str, named: str, conf: dict[str, str], own: bool
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if named:
        monkeypatch.setenv("PYSPARK_PYTHON", named)
    spark = session(False, master, **conf)
    register(spark)
    assert spark._sc.pythonExec == (sys.executable if own else "python3")


def test_a_session_without_a_jvm_of_its_own_registers() -> None:
    made: list[str] = []
    connect: Any = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: made.append(source.name())))
    register(connect)
    assert made
