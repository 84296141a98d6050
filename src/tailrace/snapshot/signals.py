"""Signals: a user's requests to a running pipeline, by a row of the signal table, a Kafka record or a line of a file.

A signal has an id, a type and data (JSON text), and is parsed into one of the actions below (Debezium documentation,
"Sending signals to a connector"). Planner; no I/O.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tailrace.config.expressions import signal_expression
from tailrace.config.filters import quoted_parts

TYPES = (
    "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", "add-tables", "remove-tables",
    "pause-tables", "resume-tables",
)  # fmt: skip
_REFUSED = {
    "set-binlog-position": "changes between the two positions would be lost, or come twice, without notice; start "
    "with another checkpoint, by a snapshot or with snapshot.mode=no_data",
}
"""Signals of Debezium that are refused, each with the reason and the remedy."""
LONGEST_ID, LONGEST_DATA, DEEPEST = 500, 1_000_000, 64
"""The most characters of a signal's id and of its data, and the most levels of lists and objects in its data."""
MOST_EXPRESSIONS, MOST_STEPS = 1000, 2_000_000_000
"""The most entries of a signal that are not exact table names, and the most work of matching them: the expressions'
sizes times the characters of the names, some ten seconds."""
REREAD = "reread-"
"""Start of the ids of signals by which a pipeline itself asks for a snapshot."""
WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal as it was received."""

    id: str
    type: str
    data: str | None


Polled = list[tuple[Signal | None, int]]
"""Signals of a channel, each with the position after it; None if only the position moves."""


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


@dataclass(frozen=True, slots=True)
class AddTables:
    """Capture the tables that `collections` name, and read their existing rows."""

    id: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveTables:
    """Stop capturing the tables that `collections` name."""

    id: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PauseTables:
    """Pause the reading of the tables that `collections` name in an incremental snapshot. Their changes go on."""

    id: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeTables:
    """Resume the reading of the paused tables that `collections` name."""

    id: str
    collections: tuple[str, ...]


Action = (
    ExecuteSnapshot
    | StopSnapshot
    | PauseSnapshot
    | ResumeSnapshot
    | LogMessage
    | AddTables
    | RemoveTables
    | PauseTables
    | ResumeTables
)


_OF_TABLES: dict[str, type[AddTables | RemoveTables | PauseTables | ResumeTables]] = {
    "add-tables": AddTables,
    "remove-tables": RemoveTables,
    "pause-tables": PauseTables,
    "resume-tables": ResumeTables,
}


class MalformedSignal(ValueError):
    """A signal that cannot be handled; the text names its id and what is wrong, never its data."""


def read(signal: Signal) -> Action | None:
    """Return the action that `signal` requests; None for the watermarks of snapshot windows. Raises MalformedSignal."""
    if signal.type in (WINDOW_OPEN, WINDOW_CLOSE):
        return None
    fault = _fault_of_id(signal.id)
    if fault:
        raise MalformedSignal(f"a signal has an id that {fault}")
    if signal.type == "pause-snapshot":
        return PauseSnapshot(signal.id)
    if signal.type == "resume-snapshot":
        return ResumeSnapshot(signal.id)
    if signal.type == "execute-snapshot":
        return _execute(signal.id, _data(signal))
    if signal.type == "stop-snapshot":
        return _stop(signal.id, _data(signal))
    if signal.type in _OF_TABLES:
        return _OF_TABLES[signal.type](signal.id, _collections(signal.id, _data(signal), required=True))
    if signal.type == "log":
        return _log(signal.id, _data(signal))
    if signal.type in _REFUSED:
        raise MalformedSignal(f"signal {signal.id} asks for {signal.type}, which is refused: {_REFUSED[signal.type]}")
    raise MalformedSignal(f"signal {signal.id} has an unknown type; known are {', '.join(TYPES)}")


def shown(text: str, longest: int = 200) -> str:
    """Return a signal's text for one line of a log: cut, and without characters that would begin another line."""
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)


def _fault_of_id(text: str) -> str:
    """Return why an id must not enter offsets, notifications and the log, as the rest of a sentence; "" if it may."""
    if len(text) > LONGEST_ID:
        return f"has more than {LONGEST_ID} characters"
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text):
        return "holds a control character or half a character"
    return ""


def _data(signal: Signal) -> dict[str, Any]:
    text = signal.data or "{}"
    if len(text) > LONGEST_DATA:
        raise MalformedSignal(f"the data of signal {signal.id} have more than {LONGEST_DATA:,} characters")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedSignal(f"the data of signal {signal.id} are not JSON") from None
    if not isinstance(fields, dict):
        raise MalformedSignal(f"the data of signal {signal.id} are not a JSON object")
    fault = _fault_of_data(fields)
    if fault:
        raise MalformedSignal(f"the data of signal {signal.id} {fault}")
    return fields


def _fault_of_data(fields: dict[str, Any]) -> str:
    """Return why JSON must not enter offsets and statements; "" if it may. Iterates by level, so no depth overflows."""
    level: list[Any] = [fields]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str):
                if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
                    return "hold a character that the server can hold in no text"
            elif isinstance(value, dict):
                inner += value.keys()
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return ""
        level = inner
    return f"have more than {DEEPEST} levels"


def _execute(name: str, fields: dict[str, Any]) -> ExecuteSnapshot:
    conditions = [(entry["data-collection"], entry["filter"]) for entry in _conditions(name, fields)]
    shared = fields.get("additional-condition")
    if shared is not None:
        # the older form: one condition for all tables
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


class Finder:
    """Finds the tables among `tables`, as `(schema, table)`, that the entries of one signal name.

    An entry is a table's name, with each part in double quotes if it contains dots (`"public"."My.Table"`), or a
    regular expression over `schema.table`; both are case-sensitive. The total work of one finder is bounded.
    """

    def __init__(self, tables: Sequence[tuple[str, str]]) -> None:
        self._tables = list(tables)
        self._known = set(self._tables)
        self._names = [f"{schema}.{table}" for schema, table in tables]
        self._by_name: dict[str, list[tuple[str, str]]] = {}
        for name, table in zip(self._names, self._tables, strict=True):
            self._by_name.setdefault(name, []).append(table)
        self._characters = sum(map(len, self._names))
        self._expressions = self._steps = 0

    def named(self, entry: str) -> list[tuple[str, str]]:
        """Return the tables of one entry. Tried in order: a quoted name, an exact name, an expression.

        Raises MalformedSignal, without the entry's text, for an expression that is invalid or cannot be matched in
        linear time. Also raises it if all entries together are too much work for one signal.
        """
        quoted = quoted_parts(entry)
        if quoted is not None:
            # a database's name may precede the schema's
            table = quoted[-2], quoted[-1]
            return [table] if table in self._known else []
        exact = self._by_name.get(entry)
        if exact is not None:
            return list(dict.fromkeys(exact))
        try:
            expression = signal_expression(entry)
        except ValueError as fault:
            raise MalformedSignal(f"an entry {fault}") from None
        self._expressions += 1
        self._steps += expression.size * self._characters
        if self._expressions > MOST_EXPRESSIONS or self._steps > MOST_STEPS:
            raise MalformedSignal(f"its expressions are too much work for {len(self._tables)} tables")
        found = expression.among(self._names)
        return [table for table, is_named in zip(self._tables, found, strict=True) if is_named]


def resolve(entries: Sequence[str], tables: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the tables `(schema, table)` that `entries` name, each once, and the entries that name none.

    Tables come in the order of the entries, those of one expression in the order of `tables`. Raises MalformedSignal
    like Finder.
    """
    finder = Finder(tables)
    found: dict[tuple[str, str], None] = {}
    missing: dict[str, None] = {}
    for entry in entries:
        named = finder.named(entry)
        found.update(dict.fromkeys(named))
        if not named:
            missing[entry] = None
    return list(found), list(missing)


def matching(entry: str, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tables that one entry names. Raises MalformedSignal like Finder."""
    return Finder(tables).named(entry)


# --- signals as JSON --------------------------------------------------------------------------------------------------


def from_json(text: bytes, name: str) -> Signal:
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


def to_json(signal: Signal) -> str:
    """Return the JSON object, on one line, from which `from_json` makes `signal`."""
    fields: dict[str, Any] = {"id": signal.id, "type": signal.type}
    if signal.data is not None:
        # a signal without parameters may have any text
        with suppress(ValueError, RecursionError):
            fields["data"] = json.loads(signal.data)
        if not isinstance(fields.get("data"), dict):
            fields["data"] = signal.data
    return json.dumps(fields, ensure_ascii=False)
