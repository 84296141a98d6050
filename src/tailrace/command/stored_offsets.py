"""The offsets in a file of Kafka Connect (offset.storage.file.filename). Driver.

Kafka Connect writes a Java map of byte arrays. A key is the JSON of a connector's name and a source partition; its
value is the JSON of the offset there.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

_HEAD = re.compile(
    rb"\xac\xed\x00\x05sr\x00\x11java\.util\.HashMap.{8}\x03\x00\x02F\x00\nloadFactorI\x00\tthresholdxp.{8}w\x08.{4}",
    re.DOTALL,
)
# an array of bytes: the first array describes its class, the other arrays refer to this description
_ARRAY = re.compile(rb"u(?:r\x00\x02\[B.{8}\x02\x00\x00xp|q\x00~\x00.)", re.DOTALL)
_NULL = b"p"


class UnreadableOffsets(Exception):
    """Offsets that cannot be read or used; the text says why."""


def offset_of(path: str | Path, connector: str, server: str) -> str:
    """Return the JSON of the offset that is stored for `server`, a topic.prefix. Raises UnreadableOffsets.

    If several connectors have an offset for it, the offset of `connector` counts.
    """
    found: dict[str, str] = {}
    for key, value in _entries(path):
        name, part = _key(key)
        if value is not None and part.get("server") == server:
            found[name] = value.decode("utf-8", "replace")
    if len(found) > 1 and connector in found:
        return found[connector]
    if len(found) != 1:
        raise UnreadableOffsets(
            f"it has offsets of several connectors for topic.prefix={server}: {', '.join(sorted(found))}"
            if found
            else f"it has no offset for topic.prefix={server}"
        )
    return next(iter(found.values()))


def _entries(path: str | Path) -> list[tuple[bytes, bytes | None]]:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableOffsets(f"it cannot be read: {error.strerror}") from None
    if not data:
        raise UnreadableOffsets("it is empty")
    head = _HEAD.match(data)
    if head is None:
        raise UnreadableOffsets("it is not a file of Kafka Connect's FileOffsetBackingStore")
    (count,) = struct.unpack_from(">i", data, head.end())
    at = head.end() + 4
    found = []
    for _ in range(count):
        key, at = _array(data, at)
        value, at = _array(data, at)
        found.append((key or b"", value))
    if data[at:] != b"x":
        raise UnreadableOffsets("it is damaged")
    return found


def _array(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the array at `at`, None for null, and the place behind the array. Raises UnreadableOffsets."""
    if data[at : at + 1] == _NULL:
        return None, at + 1
    mark = _ARRAY.match(data, at)
    if mark is None or mark.end() + 4 > len(data):
        raise UnreadableOffsets("it is damaged")
    (length,) = struct.unpack_from(">i", data, mark.end())
    begin = mark.end() + 4
    if not 0 <= length <= len(data) - begin:
        raise UnreadableOffsets("it is damaged")
    return data[begin : begin + length], begin + length


def _key(key: bytes) -> tuple[str, dict[str, Any]]:
    """Return a key's connector name and source partition; "" and {} if the key is not understood."""
    try:
        found = json.loads(key)
    except ValueError:
        return "", {}
    # with schemas the pair stands in an envelope
    pair = found.get("payload") if isinstance(found, dict) else found
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], dict):
        return str(pair[0]), pair[1]
    return "", {}
