"""Positions of change tables: the bytes by which a database orders its commits, all of one width. No I/O.

SQL Server: a 10-byte LSN. Db2: the 16 (LUW) or 10 (z/OS) bytes of IBMSNAP_COMMITSEQ.

Two kinds that must not be confused have separate types. `Newest` is a position up to which the server says that it has
captured; only `Session.newest` returns one. `Read` is a position up to which batches read, as in offsets; only
`read_to` makes one, from a newest position, so that no offset can be ahead of the server.
"""

from __future__ import annotations

from typing import NewType

Newest = NewType("Newest", bytes)
"""All changes with a commit position at or before this one are captured: no further ones will appear."""

Read = NewType("Read", bytes)
"""All changes with a commit position at or before this one belong to batches that have been planned."""


def read_to(newest: Newest, *most: bytes) -> Read:
    """Return the end of a batch: the end of the captured log, but not after any position of `most`."""
    return Read(min(newest, *most) if most else newest)


def from_start(width: int) -> Read:
    """Return the position at which nothing has been read."""
    return Read(nothing(width))


def stored(text: str) -> Read:
    """Return the position of an offset."""
    return Read(bytes.fromhex(text))


def following(position: bytes) -> bytes:
    """Return the next greater position; the greatest position stays the same."""
    return _number(min(int.from_bytes(position, "big") + 1, (1 << 8 * len(position)) - 1), len(position))


def preceding(position: bytes) -> bytes:
    """Return the next smaller position; zero stays zero."""
    return _number(max(int.from_bytes(position, "big") - 1, 0), len(position))


def nothing(width: int) -> bytes:
    """Return the position before every commit."""
    return bytes(width)


def _number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big")
