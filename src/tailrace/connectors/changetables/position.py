"""Positions of change tables: the bytes by which a database orders its commits, all of one width, compared as bytes.

SQL Server: a 10-byte LSN. Db2: the 16 (LUW) or 10 (z/OS) bytes of IBMSNAP_COMMITSEQ. None of this does I/O.

Two kinds of them must not be mixed up, so they have types of their own. `Newest` is what a server has said that it has
captured; only `Session.newest` gives one. `Read` is how far batches read, which is what offsets hold; only `read_to`
makes one, of a newest position, so that no offset can be ahead of what the server has said.
"""

from __future__ import annotations

from typing import NewType

Newest = NewType("Newest", bytes)
"""Everything with a commit position at or before this one is captured: no row of it is still to come."""

Read = NewType("Read", bytes)
"""All changes with a commit position at or before this one belong to batches that are planned already."""


def read_to(newest: Newest, *most: bytes) -> Read:
    """How far a batch may read: to what is captured, and no further than any position of `most`."""
    return Read(min(newest, *most) if most else newest)


def from_start(width: int) -> Read:
    """Nothing is read yet."""
    return Read(nothing(width))


def stored(text: str) -> Read:
    """The position that an offset holds."""
    return Read(bytes.fromhex(text))


def following(position: bytes) -> bytes:
    """The position just behind `position`: whatever is greater is at least this. The greatest one stays as it is."""
    return _number(min(int.from_bytes(position, "big") + 1, (1 << 8 * len(position)) - 1), len(position))


def preceding(position: bytes) -> bytes:
    """The position just before `position`; zero stays zero."""
    return _number(max(int.from_bytes(position, "big") - 1, 0), len(position))


def nothing(width: int) -> bytes:
    """The position before every commit."""
    return bytes(width)


def _number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big")
