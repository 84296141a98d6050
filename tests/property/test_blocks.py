"""Blocks of changes, wherever batches and blocks end, reduce to the source's rows in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns import Column, Marker, Transactions
from tailrace.columns.blocks import EVERY, KEPT, LAST, Head
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.sinks.tables.rows import BlockOpening, RowReduction, row_schema
from tailrace.sinks.tables.versions import VersionEnds
from tests.event_settings import event_settings
from tests.extent import examples
from tests.unit.events.changes import Change, batch, table

TABLE = table(
    "t",
    [Column("v", "int4", 23), Column("id", "int8", 20, nullable=False), Column("big", "text", 25)],
    "id",
)
FIRST = 5005
Rows = dict[int, tuple[int | None, str | None]]
Kept = dict[int, tuple[int | None, str | None, str]]
Table = TypeVar("Table")


@dataclass
class Source:
    """A table whose large values are in the log only when they change, and the changes that it has seen."""

    rows: Rows = field(default_factory=dict)
    kept: Kept = field(default_factory=dict)
    """All rows that ever existed, with their last values and the op that ended them: d, t, or ""."""
    changes: list[tuple[Change, bool]] = field(default_factory=list)

    def insert(self, key: int, number: int) -> None:
        self.rows[key] = (number, f"big {number}" if number % 3 else None)
        self._log("c", None, key)

    def update(self, key: int, number: int, touches: bool) -> None:
        self.rows[key] = (number, f"big {number}" if touches else self.rows[key][1])
        self._log("u", None, key, touches)

    def move(self, key: int, to: int, number: int, touches: bool) -> None:
        _, big = self.rows.pop(key)
        self.kept[key] = (*self.kept[key][:2], "d")
        self.rows[to] = (number, f"big {number}" if touches else big)
        self._log("u", key, to, touches)

    def delete(self, key: int) -> None:
        del self.rows[key]
        self.kept[key] = (*self.kept[key][:2], "d")
        self.changes.append((("d", (None, str(key), None), None), True))

    def truncate(self) -> None:
        self.rows.clear()
        self.kept = {key: (*told[:2], "t") for key, told in self.kept.items()}
        self.changes.append((("t", None, None), True))

    def read(self, key: int, number: int | None) -> None:
        """Read a row for an incremental snapshot; with `number`, a row that the log has not shown in this state."""
        if number is not None:
            self.rows[key] = (number, f"big {number}")
        self._log("r", None, key)

    def _log(self, op: str, old: int | None, key: int, touches: bool = True) -> None:
        number, big = self.rows[key]
        self.kept[key] = (number, big, "")
        before = None if old is None else (None, str(old), None)
        after = (str(number), str(key), big if touches else None)
        # A null is not a large value: the log always has it.
        self.changes.append(((op, before, after), touches or big is None))


def blocks(source: Source, low: int, high: int, chosen: EventSettings) -> list[dict[str, Any]]:
    """Return the blocks of some changes, as tasks make them. Snapshot rows are in blocks of their own."""
    found = []
    for reads, run in groupby(range(low, high), key=lambda place: source.changes[place][0][0] == "r"):
        places = np.array(list(run))
        part = [source.changes[place] for place in places]
        marker = Marker.INCREMENTAL if reads else Marker.FALSE
        made = batch(TABLE, [change for change, _ in part], [marker] * len(part))
        made.transactions = Transactions(*(700 + places for _ in range(4)))
        made.transactions.commit_lsn = FIRST + 10 * places
        if made.after is not None:
            made.after.unavailable[2] = np.array([not carried for _, carried in part])
        found += [row for rows in to_rows(made, chosen, FORM) for row in rows.select(["key", "value"]).to_pylist()]
    return found


def merged(rows: Rows, found: Sequence[dict[str, Any]]) -> Rows:
    """Return the result of a MERGE; see sinks.tables.statements."""
    heads = [Head.of(row["key"]) for row in found]
    if not heads:
        return dict(rows)
    form = heads[-1].form
    assert form.names == ("v", "id", "big")
    truncate = max((head.truncate for head in heads if head.truncate is not None), default=None)
    opened = pa.Table.from_batches(
        BlockOpening(form)(iter([pa.RecordBatch.from_pylist(list(found))])), row_schema(form)
    )
    if truncate is not None:
        opened = opened.filter(pc.greater(opened["position"], truncate[0]))
    batches = opened.to_batches() if len(heads) == 1 else list(RowReduction(form)(iter(opened.to_batches())))
    after = {} if truncate is not None else dict(rows)
    keys = [row["c1"] for part in batches for row in part.to_pylist()]
    assert len(keys) == len(set(keys))
    for row in (row for part in batches for row in part.to_pylist()):
        missing, origin = row["missing"], row["origin"]
        if row["op"] == "d":
            after.pop(row["c1"], None)
            continue
        big = row["c2"]
        if missing is not None:
            assert missing == [2]
            assert truncate is None
            known = row["c1"] if origin is None else origin["k0"]
            big = rows[known][1]
        after[row["c1"]] = (row["c0"], big)
    return after


def merged_with_deletes(kept: Kept, found: Sequence[dict[str, Any]]) -> Kept:
    """Return the result of a MERGE that keeps deleted rows; see sinks.tables.statements and sinks.tables.batch."""
    heads = [Head.of(row["key"]) for row in found]
    if not heads:
        return dict(kept)
    form = heads[-1].form
    truncate = max((head.truncate for head in heads if head.truncate is not None), default=None)
    opened = pa.Table.from_batches(
        BlockOpening(form)(iter([pa.RecordBatch.from_pylist(list(found))])), row_schema(form)
    )
    batches = opened.to_batches()
    if len(heads) > 1:
        if truncate is not None:
            opened = opened.filter(pc.not_equal(opened["op"], "r"))
        batches = list(RowReduction(form, keeps_deletes=True)(iter(opened.to_batches())))
    rows = [row for part in batches for row in part.to_pylist()]
    keys = [row["c1"] for row in rows]
    assert len(keys) == len(set(keys))
    after = dict(kept) if truncate is None else {key: (*told[:2], "t") for key, told in kept.items()}
    for row in rows:
        op = "t" if truncate is not None and len(heads) > 1 and row["position"] < truncate[0] else row["op"]
        values: dict[int, Any] = {0: row["c0"], 2: row["c2"]}
        for place in row["missing"] or ():
            known = row["c1"] if row["origin"] is None else row["origin"]["k0"]
            assert op in "dt" or known in kept
            values[place] = kept[known][place // 2] if known in kept else None
        after[row["c1"]] = (values[0], values[2], op if op in "dt" else "")
    return after


def drawn(draw: Callable[..., Any], reads: bool = False) -> Source:
    source, keys = Source(), st.integers(0, 4)
    # The first rows of an empty table are always in the log.
    drifts = reads and draw(st.booleans())
    for number in range(draw(st.integers(1, 25))):
        key, other, touches = draw(keys), draw(keys), draw(st.booleans())
        if not drifts and draw(st.integers(0, 14)) == 0:
            source.truncate()
        elif reads and (drifts or key in source.rows) and draw(st.integers(0, 3)) == 0:
            source.read(key, number if drifts and (key not in source.rows or draw(st.booleans())) else None)
        elif key not in source.rows:
            source.insert(key, number)
        elif other not in source.rows and draw(st.booleans()):
            source.move(key, other, number, touches)
        elif draw(st.integers(0, 3)) == 0:
            source.delete(key)
        else:
            source.update(key, number, touches)
    return source


def brought(
    data: st.DataObject, held: str, merge: Callable[[Table, Sequence[dict[str, Any]]], Table], empty: Table
) -> tuple[Source, Table]:
    """Return a source, and the table after merges of its changes, wherever blocks and batches end."""
    chosen = event_settings("server", "golden", blocks=held, skipped_operations=frozenset())
    source = drawn(data.draw, reads=True)
    count = len(source.changes)
    cuts = sorted(data.draw(st.sets(st.integers(1, count), max_size=8)) | {count})
    found = empty
    low, waiting = 0, []
    for high in cuts:
        waiting += blocks(source, low, high, chosen)
        low = high
        if high == count or data.draw(st.booleans()):
            found, waiting = merge(found, waiting), []
    return source, found


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_every_cut_ends_in_the_rows_of_the_source(data: st.DataObject) -> None:
    source, rows = brought(data, LAST, merged, Rows())
    assert rows == source.rows


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_deleted_rows_keep_their_last_values_whatever_the_cuts(data: st.DataObject) -> None:
    source, kept = brought(data, KEPT, merged_with_deletes, Kept())
    assert kept == source.kept


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_every_change_is_kept_where_all_are_wanted(data: st.DataObject) -> None:
    chosen = event_settings("server", "golden", blocks=EVERY, skipped_operations=frozenset())
    source = drawn(data.draw)
    found = blocks(source, 0, len(source.changes), chosen)
    form = Head.of(found[0]["key"]).form
    opened = [row for part in BlockOpening(form)(iter([pa.RecordBatch.from_pylist(found)])) for row in part.to_pylist()]
    wanted = []
    for (op, before, _), _ in source.changes:
        moves = op == "u" and before is not None
        wanted += ["d", "c"] if moves else [op]
    assert [row["op"] for row in opened] == wanted
    replayed: Rows = {}
    held: str | None = None
    for row in opened:
        if row["op"] == "t":
            replayed.clear()
        elif row["op"] == "d":
            held = replayed.pop(row["c1"])[1]
        else:
            old = held if row["part"] else replayed.get(row["c1"], (None, None))[1]
            replayed[row["c1"]] = (row["c0"], old if row["missing"] else row["c2"])
    assert replayed == source.rows


Version = tuple[int, int | None, str | None, str, str | None]
"""A key, the values of its row, and the positions from and to which it had them."""


def versioned(table: list[Version], found: Sequence[dict[str, Any]]) -> list[Version]:
    """Return the result of the MERGE of versions; see sinks.tables.versions."""
    form = Head.of(found[-1]["key"]).form
    opened = pa.Table.from_batches(
        BlockOpening(form)(iter([pa.RecordBatch.from_pylist(list(found))])), row_schema(form)
    )
    now = {key: (number, key, big) for key, number, big, _, end in table if end is None}

    def alike(row: dict[str, Any]) -> list[int] | None:
        if row["op"] != "r" or row["c1"] not in now:
            return None
        return [place for place, value in enumerate(now[row["c1"]]) if value == row[f"c{place}"]]

    def hashes(row: dict[str, Any]) -> list[int] | None:
        if row["op"] == "r":
            return [hash(row[f"c{place}"]) for place in range(3)]
        return [hash(value) for value in now[row["c1"]]] if row["c1"] in now else None

    told = opened.to_pylist()
    given = opened.append_column("alike", pa.array(map(alike, told), pa.list_(pa.int32())))
    given = given.append_column("hashes", pa.array(map(hashes, told), pa.list_(pa.int64())))
    rows = [row for part in VersionEnds(form)(iter(given.combine_chunks().to_batches())) for row in part.to_pylist()]
    current = {key: big for key, _, big, _, end in table if end is None}
    truncate = min((row["position"] for row in rows if row["op"] == "t"), default=None)
    ends = {row["c1"]: row["position"] for row in rows if row["opens"]}
    after = [
        (key, number, big, start, ends.get(key, truncate) if end is None else end)
        for key, number, big, start, end in table
    ]
    for row in rows:
        if row["op"] not in "dt":
            big = row["c2"] if row["missing"] is None else current[row["origin"]["k0"]]
            after.append((row["c1"], row["c0"], big, row["position"], row["to_position"]))
    return after


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_versions_are_the_same_whatever_the_cuts(data: st.DataObject) -> None:
    chosen = event_settings("server", "golden", blocks=EVERY, skipped_operations=frozenset())
    source = drawn(data.draw, reads=True)
    count = len(source.changes)
    cuts = sorted(data.draw(st.sets(st.integers(1, count), max_size=8)) | {count})
    table: list[Version] = []
    low, waiting = 0, []
    for high in cuts:
        waiting += blocks(source, low, high, chosen)
        low = high
        if high == count or data.draw(st.booleans()):
            table, waiting = versioned(table, waiting), []
    assert sorted(table, key=repr) == sorted(wanted_versions(source), key=repr)


def wanted_versions(source: Source) -> list[Version]:
    """Return the versions of all rows, applied one change at a time."""
    found: list[Version] = []
    current: dict[int, tuple[int | None, str | None, str]] = {}

    def end(key: int, at: str) -> str | None:
        number, big, start = current.pop(key)
        found.append((key, number, big, start, at))
        return big

    for place, ((op, before, after), carried) in enumerate(source.changes):
        at = f"{FIRST + 10 * place:016X}"
        big = None
        if op == "t":
            for key in list(current):
                end(key, at)
        elif op == "d" or before is not None:
            assert before is not None
            big = end(int(str(before[1])), at)
        elif op == "u":
            assert after is not None
            big = end(int(str(after[1])), at)
        elif op == "r":
            assert after is not None
            key = int(str(after[1]))
            if current.get(key, ())[:2] == (int(str(after[0])), after[2]):
                continue
            if key in current:
                end(key, at)
        if after is not None:
            current[int(str(after[1]))] = (int(str(after[0])), after[2] if carried else big, at)
    return found + [(key, number, big, start, None) for key, (number, big, start) in current.items()]
