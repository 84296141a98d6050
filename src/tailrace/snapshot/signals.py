"""Signals: what a user tells a running pipeline, by a row of the signal table, a Kafka record or a line of a file.

A signal has an id, a type and data (JSON text), and is read into one of the actions below (Debezium documentation,
"Sending signals to a connector"). Planner; no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config.filters import compile_expression, quoted_parts

TYPES = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log")
WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal as it was received."""

    id: str
    type: str
    data: str | None


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read the tables that `collections` name; `conditions` are `(expression or name, SQL)` for some of them."""

    id: str
    blocking: bool
    collections: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate: str | None = None


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Give up the running snapshot, or only the tables that `collections` name."""

    id: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    id: str


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    id: str


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Write `message` to the log; `{}` in it stands for the position."""

    id: str
    message: str


Action = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage


class MalformedSignal(ValueError):
    """A signal that cannot be carried out; the text names its id and what is wrong, never its data."""


def read(signal: Signal) -> Action | None:
    """The action that `signal` asks for; None for the watermarks of snapshot windows. Raises MalformedSignal."""
    if signal.type in (WINDOW_OPEN, WINDOW_CLOSE):
        return None
    if signal.type == "pause-snapshot":
        return PauseSnapshot(signal.id)
    if signal.type == "resume-snapshot":
        return ResumeSnapshot(signal.id)
    if signal.type == "execute-snapshot":
        return _execute(signal.id, _data(signal))
    if signal.type == "stop-snapshot":
        return _stop(signal.id, _data(signal))
    if signal.type == "log":
        return _log(signal.id, _data(signal))
    raise MalformedSignal(f"signal {signal.id} has an unknown type; known are {', '.join(TYPES)}")


def _data(signal: Signal) -> dict[str, Any]:
    try:
        fields = json.loads(signal.data or "{}")
    except (ValueError, RecursionError):
        raise MalformedSignal(f"the data of signal {signal.id} are no JSON") from None
    if not isinstance(fields, dict):
        raise MalformedSignal(f"the data of signal {signal.id} are no JSON object")
    if not _is_storable(fields):
        raise MalformedSignal(f"the data of signal {signal.id} hold a character that the server can hold in no text")
    return fields


def _is_storable(value: Any) -> bool:
    """Whether no text in the JSON `value` has a zero byte or half a surrogate pair: no name and no SQL has one."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, dict):
        return all(_is_storable(name) and _is_storable(part) for name, part in value.items())
    return not isinstance(value, list) or all(map(_is_storable, value))


def _execute(name: str, fields: dict[str, Any]) -> ExecuteSnapshot:
    conditions = [(entry["data-collection"], entry["filter"]) for entry in _conditions(name, fields)]
    shared = fields.get("additional-condition")
    if shared is not None:
        # the older form, one condition for all tables
        conditions.append((".*", _text(name, "additional-condition", shared)))
    surrogate = fields.get("surrogate-key")
    return ExecuteSnapshot(
        name,
        _is_blocking(name, fields),
        _collections(name, fields, required=True),
        tuple(conditions),
        None if surrogate is None else _text(name, "surrogate-key", surrogate),
    )


def _stop(name: str, fields: dict[str, Any]) -> StopSnapshot:
    if _is_blocking(name, fields):
        raise MalformedSignal(f"signal {name} stops a blocking snapshot, which ends by itself")
    return StopSnapshot(name, _collections(name, fields, required=False))


def _log(name: str, fields: dict[str, Any]) -> LogMessage:
    return LogMessage(name, _text(name, "message", fields.get("message")))


def _is_blocking(name: str, fields: dict[str, Any]) -> bool:
    kind = _text(name, "type", fields.get("type", "incremental")).lower()
    if kind not in ("incremental", "blocking"):
        raise MalformedSignal(f"signal {name} asks for a snapshot of an unknown type; known are incremental, blocking")
    return kind == "blocking"


def _collections(name: str, fields: dict[str, Any], required: bool) -> tuple[str, ...]:
    listed = fields.get("data-collections")
    if listed is None and not required:
        return ()
    if not isinstance(listed, list) or not all(isinstance(entry, str) and entry.strip() for entry in listed):
        raise MalformedSignal(f"data-collections of signal {name} must be a list of table names")
    return tuple(entry.strip() for entry in listed)


def _conditions(name: str, fields: dict[str, Any]) -> list[dict[str, str]]:
    listed = fields.get("additional-conditions") or []
    usable = isinstance(listed, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("data-collection"), str)
        and isinstance(entry.get("filter"), str)
        for entry in listed
    )
    if not usable:
        raise MalformedSignal(
            f"additional-conditions of signal {name} must be a list of objects with data-collection and filter"
        )
    return listed


def _text(name: str, field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedSignal(f"{field} of signal {name} must be a text")
    return value


def resolve(entries: Sequence[str], tables: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """The tables `(schema, table)` that `entries` name, each once, and the entries that name none.

    An entry is a table's name, each part in double quotes if it contains dots (`"public"."My.Table"`), or a regular
    expression over `schema.table`; both mind case. Tables come in the order of the entries, those of one expression
    in the order of `tables`. Raises MalformedSignal for a broken expression.
    """
    found: list[tuple[str, str]] = []
    missing: list[str] = []
    for entry in entries:
        named = [table for table in matching(entry, tables) if table not in found]
        if named:
            found.extend(named)
        elif not matching(entry, found):
            missing.append(entry)
    return found, missing


def matching(entry: str, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The tables that one entry names: as a quoted name, as it stands, or as an expression, in this order."""
    quoted = quoted_parts(entry)
    if quoted is not None:
        # a database's name may precede the schema's
        return [table for table in tables if table == quoted[-2:]]
    exact = [table for table in tables if f"{table[0]}.{table[1]}" == entry]
    if exact:
        return exact
    try:
        expression = compile_expression(entry, ignore_case=False)
    except ValueError as fault:
        raise MalformedSignal(str(fault)) from None
    return [table for table in tables if expression.fullmatch(f"{table[0]}.{table[1]}")]
