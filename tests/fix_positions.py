"""The invariant of change tables: what a query commits, the server holds already, and no commit goes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_commit(before: Mapping[str, Any], end: Mapping[str, Any], newest: Mapping[str, bytes | None]) -> None:
    """Fail the test when the offset `end`, committed after `before`, is ahead of the server, or behind `before`.

    `newest` are the newest positions that the server holds, by database, asked for now: they only move on.
    """
    for name, reached in end["databases"].items():
        position = bytes.fromhex(reached["commit"])
        held = newest[name]
        assert position <= (held or bytes(len(position))), f"{name}: the offset is ahead of the server"
        earlier = before["databases"].get(name)
        if earlier is not None:
            assert position >= bytes.fromhex(earlier["commit"]), f"{name}: the offset goes back"
