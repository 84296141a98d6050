"""SourceStatus: what the offsets of a progress record say about a source, in the terms of its database. Driver.

Each connector reads its own offsets: its descriptor names the function that does.

A planner that knows more than the offsets puts it into what `Planner.status` returns (Spark reports that as
`latestOffset`), beside the position:

    {"log": {…}, "snapshot": {"table": "public.t", "rows": 1200, "of": 5000, "waiting": 2, "paused": false}}

`table` is the table that is being read, `rows` how many of its rows were read, `of` how many there are about (left
out when that is not known), `waiting` how many tables come after it, `paused` whether a signal has paused the
snapshot; the latter two may be left out. A list of such objects stands for tables that are read at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Offsets = Mapping[str, Any]
"""An offset of a connector as Spark reports it, parsed; empty where there is none."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table that is being read: `done` of `of` rows or chunks, `of` None where nobody knows how many there are.

    `waiting` counts the tables that come after it; `paused` says that a signal has paused the snapshot.
    """

    table: str
    done: int
    of: int | None
    unit: Literal["rows", "chunks"] = "rows"
    waiting: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """How much of the initial snapshot the query has read: `done` of `of` chunks or tables."""

    done: int
    of: int
    unit: Literal["chunks", "tables"] = "chunks"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What an offset says.

    `position` is how far the log was read, as the database writes its positions; empty before there is one. `lag_bytes`
    is how much of the log, in bytes, is still to be read, and `lag_s` how many seconds of it; each is None where the
    database does not say. `snapshot` is None while no snapshot runs; `tables` are those that are being read. `whole`
    says that the offset is behind a whole transaction, that no initial snapshot is half read, and that no table was
    captured late whose rows no snapshot has read since; False where that is not known.
    """

    position: str = ""
    lag_bytes: int | None = None
    lag_s: float | None = None
    snapshot: SnapshotStatus | None = None
    tables: tuple[TableProgress, ...] = ()
    whole: bool = False


Describe = Callable[[Offsets, Offsets], SourceStatus]
"""What reads a connector's offsets: that of the end of a batch, and the newest one."""


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def tables(
    end: Offsets, newest: Offsets, chunks: Sequence[tuple[str, int]] = (), done: int = 0
) -> tuple[TableProgress, ...]:
    """The tables of the running snapshot; empty when none is running.

    The planner's own figures in `newest` come first. Without them the initial snapshot counts the chunks, `done` of
    those that `chunks` names with their tables in the order of reading; and an incremental one the rows that were read.
    """
    return tuple(_reported(newest.get("snapshot")) or _chunked(chunks, done) or _incremental(end))


def _reported(value: Any) -> list[TableProgress]:
    """The figures of a planner: one entry or several; what is no entry is passed over."""
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
                waiting if isinstance(waiting, int) else 0,
                entry.get("paused") is True,
            )
        )
    return found


def _chunked(chunks: Sequence[tuple[str, int]], done: int) -> list[TableProgress]:
    """The table whose chunks are read next; none when all are."""
    for place, (name, count) in enumerate(chunks):
        if done < count:
            return [TableProgress(name, done, count, "chunks", len(chunks) - place - 1)]
        done -= count
    return []


def _incremental(end: Offsets) -> list[TableProgress]:
    """The table that an incremental snapshot reads."""
    state = mapping(mapping(end.get("progress")).get("state"))
    listed = state.get("collections")
    if not listed:
        return []
    name = f"{listed[0][0]}.{listed[0][1]}"
    return [TableProgress(name, int(state["rows"]), None, "rows", len(listed) - 1, bool(state.get("paused")))]
