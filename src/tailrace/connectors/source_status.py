"""SourceStatus: a source's progress in the terms of its database, from the offsets of a progress record. Driver.

Each connector reads its own offsets: its descriptor names the function. A planner that knows more than the offsets adds
it to the position in the result of `Planner.status`, which Spark reports as `latestOffset`:

    {"log": {…}, "snapshot": {"table": "public.t", "rows": 1200, "of": 5000, "waiting": ["public.u"], "paused": false}}

`table` is the table that is being read. `rows` counts its rows read so far, `of` is their estimated total. `waiting`
names the tables that come after it. `paused` is true if a signal has paused the snapshot. `of`, if unknown, `waiting`
and `paused` may be left out. A list of such objects stands for tables that are read at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MEASURES = "measures"
"""The key in a reported newest position whose value is the path of the planner's file of numbers."""

Offsets = Mapping[str, Any]
"""A connector's offset as Spark reports it, parsed; empty if there is none."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table that is being read: `done` of `of` rows or chunks; `of` is None if unknown.

    `waiting` are the tables that come after it; `paused` is True if a signal has paused the snapshot.
    """

    table: str
    done: int
    of: int | None
    unit: Literal["rows", "chunks"] = "rows"
    waiting: tuple[str, ...] = ()
    paused: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The progress of the initial snapshot: `done` of `of` chunks or tables have been read."""

    done: int
    of: int
    unit: Literal["chunks", "tables"] = "chunks"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source's progress.

    `position` is the position up to which the log was read, in the database's notation; "" before the first.
    `lag_bytes` and `lag_s` are the bytes and seconds of log still to be read; None if the database does not report it.
    `snapshot` is None while no snapshot runs; `tables` are those that are being read. `whole` is True if the offset
    follows a whole transaction and no snapshot is pending: neither an initial snapshot nor one of a table captured
    later. It is False if unknown.
    """

    position: str = ""
    lag_bytes: int | None = None
    lag_s: float | None = None
    snapshot: SnapshotStatus | None = None
    tables: tuple[TableProgress, ...] = ()
    whole: bool = False


Describe = Callable[[Offsets, Offsets], SourceStatus]
"""A function that reads a connector's offsets: the end of a batch, and the newest."""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def tables(
    end: Offsets, newest: Offsets, chunks: Sequence[tuple[str, int]] = (), done: int = 0
) -> tuple[TableProgress, ...]:
    """Return the tables of the running snapshot; empty if none is running.

    The planner's figures in `newest` come first. Without them an initial snapshot counts chunks: `done` of them are
    read, and `chunks` has each table with its number of chunks, in reading order. An incremental snapshot counts the
    rows that were read.
    """
    return tuple(_reported(newest.get("snapshot")) or _chunked(chunks, done) or _incremental(end))


def _reported(value: Any) -> list[TableProgress]:
    """Return the figures of a planner, one entry or several. Anything else is ignored."""
    found = []
    for entry in map(mapping, value if isinstance(value, list) else [value]):
        rows, of, waiting = entry.get("rows"), entry.get("of"), entry.get("waiting")
        if not isinstance(entry.get("table"), str) or not isinstance(rows, int):
            continue
        found.append(
            TableProgress(
                entry["table"],
                rows,
                of if isinstance(of, int) else None,
                "rows",
                tuple(map(str, waiting)) if isinstance(waiting, list) else (),
                entry.get("paused") is True,
            )
        )
    return found


def _chunked(chunks: Sequence[tuple[str, int]], done: int) -> list[TableProgress]:
    """Return the table whose chunks are read next; none if all have been read."""
    for place, (name, count) in enumerate(chunks):
        if done < count:
            return [TableProgress(name, done, count, "chunks", tuple(after for after, _ in chunks[place + 1 :]))]
        done -= count
    return []


def _incremental(end: Offsets) -> list[TableProgress]:
    """Return the table that an incremental snapshot reads."""
    state = mapping(mapping(end.get("progress")).get("state"))
    listed = state.get("collections")
    if not listed:
        return []
    name, *waiting = (f"{collection[0]}.{collection[1]}" for collection in listed)
    paused = bool(state.get("paused"))
    return [TableProgress(name, int(state["rows"]), None, "rows", tuple(waiting), paused)]
