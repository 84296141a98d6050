"""Access to the log, a file of lines. A position is the number of lines before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailrace.errors import ConnectionFailed, DecodeError


def head(path: str) -> int:
    """Return the position after the last complete line. Raises ConnectionFailed."""
    return _bytes(path).count(b"\n")


def changes(path: str, start: int, end: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the changes between two positions and the position after each. Raises ConnectionFailed, DecodeError."""
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
