"""Positions of change tables: the bytes by which a database orders its commits, all of one width, compared as bytes.

SQL Server: a 10-byte LSN. Db2: the 16 (LUW) or 10 (z/OS) bytes of IBMSNAP_COMMITSEQ. None of this does I/O.
"""

from __future__ import annotations


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
