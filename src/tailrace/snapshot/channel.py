"""Channel: a source of signals other than the log, and signals as JSON. Planner."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tailrace.snapshot.signals import LONGEST_DATA, MalformedSignal, Signal

Polled = list[tuple[Signal | None, int]]
"""Signals, each with the position after it; None if only the position moves."""


class Channel(Protocol):
    """One source of signals. `name` is its word in `signal.enabled.channels`."""

    name: str

    def poll(self, position: int | None) -> Polled:
        """Return what has come since `position`, in order; empty if there is nothing new.

        The same position gives the same result again. `position` None: the channel has never been read, and the result
        says where it begins. Raises ConfigError for a channel that can never work.
        """
        ...

    def close(self) -> None: ...


def parse(text: bytes, name: str) -> Signal:
    """Return the signal of a JSON object with `type` and optionally `id` (default: `name`) and `data`.

    `data` is an object or its JSON as text. Raises MalformedSignal with what is wrong, but without the content.
    """
    if len(text) > LONGEST_DATA:
        raise MalformedSignal(f"it has more than {LONGEST_DATA:,} bytes")
    try:
        fields = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise MalformedSignal("it is not JSON in UTF-8") from None
    if not isinstance(fields, dict):
        raise MalformedSignal("it is not a JSON object")
    id_, kind, data = fields.get("id"), fields.get("type"), fields.get("data")
    if not isinstance(kind, str) or not kind:
        raise MalformedSignal("it has no type")
    if isinstance(id_, bool) or not isinstance(id_, str | int | None):
        raise MalformedSignal("its id is not a text")
    if not isinstance(data, str | dict | None):
        raise MalformedSignal("its data are neither an object nor a text")
    try:
        return Signal(name if id_ is None else str(id_), kind, json.dumps(data) if isinstance(data, dict) else data)
    except (ValueError, RecursionError):
        raise MalformedSignal("its data are nested too deeply") from None


def written(signal: Signal) -> str:
    """Return the JSON object, on one line, from which `parse` makes `signal`."""
    fields: dict[str, Any] = {"id": signal.id, "type": signal.type}
    if signal.data is not None:
        fields["data"] = json.loads(signal.data)
    return json.dumps(fields, ensure_ascii=False)
