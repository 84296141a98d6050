"""Handmade BSON: documents of any bytes, including those that no driver would write."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def text(content: str | bytes) -> bytes:
    """Return a string's value."""
    encoded = content.encode() if isinstance(content, str) else content
    return struct.pack("<i", len(encoded) + 1) + encoded + b"\0"


def document(elements: Iterable[tuple[str | bytes, int, bytes]]) -> bytes:
    """Return a document of names, types and values."""
    parts = [
        bytes([kind]) + (name.encode() if isinstance(name, str) else name) + b"\0" + value
        for name, kind, value in elements
    ]  # fmt: skip
    body = b"".join(parts)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def array(values: Iterable[tuple[int, bytes]]) -> bytes:
    return document((str(number), kind, value) for number, (kind, value) in enumerate(values))


def binary(content: bytes, subtype: int) -> bytes:
    if subtype == 2:
        content = struct.pack("<i", len(content)) + content
    return struct.pack("<iB", len(content), subtype) + content


def scoped(code: str, scope: bytes) -> bytes:
    body = text(code) + scope
    return struct.pack("<i", len(body) + 4) + body
