"""SecantusDB, with reads that see what was written before their time (`afterClusterTime`), as MongoDB's do.

By itself it gives a write its time before others can see it, tells that time in the answers to others, and passes over
`afterClusterTime`. Run by SecantusDB's own Python, with the server's options.
"""

from __future__ import annotations

import runpy
import time
from typing import Any

from secantus import commands, server  # type: ignore[import-not-found]

LONGEST = 10.0
"""Seconds that a read waits at most."""
_inner = commands.dispatch


def dispatch(document: Any, context: Any) -> Any:
    """The command's answer; where it names a time, when all writes that have one are over."""
    concern = document.get("readConcern")
    if isinstance(concern, dict) and "afterClusterTime" in concern:
        storage, deadline = context.storage, time.monotonic() + LONGEST
        newest = storage.oplog_tail_seq_nolock()
        while storage.oplog_visible_tail_seq_nolock() < newest and time.monotonic() < deadline:
            time.sleep(0.0005)
    return _inner(document, context)


if __name__ == "__main__":
    commands.dispatch = dispatch
    if hasattr(server, "dispatch"):
        server.dispatch = dispatch
    runpy.run_module("secantus", run_name="__main__")
