"""The demo's output: steps with their seconds, and events. Driver.

Without a terminal no control characters are written: no colours, and running seconds as lines, now and then.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tailrace.demo.records import Record

_OPS = {
    "r": ("read", "36"),
    "c": ("create", "32"),
    "u": ("update", "33"),
    "d": ("delete", "31"),
    "t": ("truncate", "35"),
    "0": ("tombstone", "90"),
}
"""The word and the colour (SGR code) of each operation."""

_INDENT = " " * 12
_NARROWEST = 60

SILENCE_S = 4.5
"""Seconds between reports of a running step if there is no terminal."""


class Screen:
    """Writes to one stream. `tick` may be called from another thread than the other methods."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tty = out.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._tty and "NO_COLOR" not in os.environ
        self._lock = threading.Lock()
        self._waiting: tuple[str, float] | None = None
        # when the running step was last reported, if there is no terminal
        self._reported = 0.0
        self._shown = 0

    def line(self, text: str = "", code: str = "", indent: str = "") -> None:
        """Write a text in the colour `code`, wrapped to the terminal's width."""
        with self._lock:
            self._clear()
            self._write(text, code, indent)
            self._out.flush()

    def block(self, text: str, code: str = "") -> None:
        """Write lines without wrapping, so that they can be copied."""
        with self._lock:
            self._clear()
            self._out.writelines(self._painted(line, code) + "\n" for line in text.splitlines())
            self._out.flush()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show a long step: its running seconds, on a terminal in place, and at its end the total."""
        began = self._reported = time.monotonic()
        if not self._tty:
            self.line(f"{what} …")
        self._waiting = (what, began)
        try:
            yield
        finally:
            self._waiting = None
        seconds = time.monotonic() - began
        self.line(f"{what}: {seconds:.1f} s" if self._tty else f"  {seconds:.1f} s")

    def tick(self) -> None:
        """Update the seconds of the running step."""
        waiting = self._waiting
        if waiting is None:
            return
        if not self._tty:
            now = time.monotonic()
            if now - self._reported >= SILENCE_S:
                self._reported = now
                self.line(f"  {now - waiting[1]:.0f} s so far")
            return
        with self._lock:
            text = self._cut(f"{waiting[0]} … {time.monotonic() - waiting[1]:.0f} s")
            self._out.write("\r" + text.ljust(self._shown))
            self._shown = len(text)
            self._out.flush()

    def record(self, record: Record) -> None:
        """Write an event: operation, topic and key, then the row, then headers."""
        word, code = _OPS[record.op]
        key = pairs(record.key) if record.key is not None else "no key"
        with self._lock:
            self._clear()
            head = self._cut(f"{_INDENT}{record.topic}  {key}")[len(_INDENT) :]
            self._out.write(f"  {self._painted(f'{word:<9}', code)} {head}\n")
            for detail in details(record):
                self._write(detail, "2", _INDENT)
            self._out.flush()

    def _write(self, text: str, code: str, indent: str) -> None:
        lines = [text]
        if self._tty:
            lines = textwrap.wrap(text, self._width() - len(indent), drop_whitespace=True) or [""]
        for line in lines:
            self._out.write(self._painted(indent + line, code) + "\n")

    def _clear(self) -> None:
        if self._shown:
            self._out.write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def _cut(self, text: str) -> str:
        if not self._tty:
            return text
        width = self._width()
        return text if len(text) <= width else text[: width - 1] + "…"

    @staticmethod
    def _width() -> int:
        return max(_NARROWEST, shutil.get_terminal_size().columns - 1)


def details(record: Record) -> Iterator[str]:
    """Yield the lines that describe an event beyond its key."""
    if record.op == "0":
        yield "no value: a compacted topic may forget the key"
    elif record.op == "t":
        yield "every row is gone"
    else:
        yield from _row(record.value["before"], record.value["after"])
    for name, value in record.headers:
        # Debezium's context headers repeat the source block.
        if name in ("__debezium.newkey", "__debezium.oldkey"):
            yield f"header {name}: {pairs(value)}"


def _row(before: Any, after: Any) -> Iterator[str]:
    if before is None:
        yield pairs(after)
    elif after is None:
        yield f"was {pairs(before)}"
    else:
        for name, new in after.items():
            if before[name] != new:
                yield f"{name}: {printable(before[name])} → {printable(new)}"


def pairs(value: Any) -> str:
    """Format an object as `name=value` pairs."""
    if isinstance(value, dict):
        return "  ".join(f"{name}={printable(item)}" for name, item in value.items())
    return printable(value)


def printable(value: Any) -> str:
    """Format a value as text without control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else "·" for char in text)
