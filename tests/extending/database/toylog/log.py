"""The log: its lines, from one position to another. A position is how many lines come before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailrace.errors import ConnectionFailed, DecodeError


def head(path: str) -> int:
    """The position behind the last whole line. Raises ConnectionFailed."""
    return _bytes(path).count(b"\n")


def changes(path: str, start: int, end: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The changes between two positions, each with the position behind it. Raises ConnectionFailed, DecodeError."""
    for number, line in enumerate(_bytes(path).splitlines()[start:end], start + 1):
        try:
            yield number, json.loads(line)
        except ValueError:
            raise DecodeError(f"Line {number} of the log {path} is no JSON.") from None


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConnectionFailed(f"The log {path} cannot be read: {error.strerror}.", "Check log.file.") from None
