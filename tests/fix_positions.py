"""The invariant of change tables: the server holds all that a query commits, and no commit goes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_commit(before: Mapping[str, Any], end: Mapping[str, Any], newest: Mapping[str, bytes | None]) -> None:
    """Fail the test if the offset `end`, committed after `before`, is ahead of the server or behind `before`.

    `newest` holds the newest positions of the server by database, read now: they only advance.
    """
    for name, reached in end["databases"].items():
        position = bytes.fromhex(reached["commit"])
        held = newest[name]
        assert position <= (held or bytes(len(position))), f"{name}: the offset is ahead of the server"
        earlier = before["databases"].get(name)
        if earlier is not None:
            assert position >= bytes.fromhex(earlier["commit"]), f"{name}: the offset goes back"
