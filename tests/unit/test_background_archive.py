"""A run without a class archive has one made in the background, once, and only where there is room for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tailrace.command import room
from tailrace.command.background_archive import LEAST, SWITCH, Warming


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []

    def popen(command: list[str], **named: Any) -> None:
        assert named["start_new_session"]
        found.append(command)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(room, "available", lambda: LEAST)
    monkeypatch.delenv(SWITCH, raising=False)
    return found


def test_it_is_started_once_at_the_lowest_priority(started: list[list[str]]) -> None:
    warming = Warming("-Duser.timezone=UTC")
    warming.start()
    warming.start()
    (command,) = started
    assert command[-4:] == [sys.executable, "-m", "tailrace.command.cli", "warm"]
    assert command[1:3] == ["-n", "19"]


@pytest.mark.parametrize("options", ["-XX:SharedArchiveFile=/x.jsa -Xshare:auto", "-Xshare:off"])
def test_it_is_not_started_beside_an_archive_or_where_archives_are_off(started: list[list[str]], options: str) -> None:
    Warming(options).start()
    assert not started


def test_it_is_not_started_where_memory_is_short_or_it_is_turned_off(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "available", lambda: LEAST - 1)
    Warming("").start()
    monkeypatch.setattr(room, "available", lambda: None)
    monkeypatch.setenv(SWITCH, "off")
    Warming("").start()
    assert not started
