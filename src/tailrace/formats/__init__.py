"""Formats: each an encoding, which turns a layout and the columns that fill it into bytes or into Arrow.

`find` gives one by its name. Other packages bring more, by entry points of the group `tailrace.formats`.
"""

from __future__ import annotations

from functools import lru_cache

from tailrace.errors import ConfigError
from tailrace.extensions import Extensions
from tailrace.formats.base import Block, Document, Encoding

__all__ = ["KNOWN", "Block", "Document", "Encoding", "find"]

KNOWN = Extensions("tailrace.formats", "format", {"json": "tailrace.formats.json:JSON"}, ConfigError)
"""Every format of bytes by the name that a configuration gives it."""


@lru_cache(maxsize=16)
def find(name: str) -> Encoding:
    """The encoding of the format called `name`. Raises ConfigError where there is none."""
    found: Encoding = KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)
    return found
