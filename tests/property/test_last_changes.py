"""Changes that later changes of their keys make superfluous can be left out without effect on the table."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.columns.blocks import EVERY, KEPT, LAST, Head, read
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol import last_changes
from tailrace.connectors.postgres.protocol.pgoutput import UNAVAILABLE, Delete, Insert, Update, Value, parse
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.log.rows import partitioning
from tailrace.log.rows.tasks import LogTask
from tailrace.log.spool import Spool
from tests.event_settings import event_settings
from tests.extent import examples
from tests.property.logs import SCHEMAS, Change, changes, index

Row = tuple[Value, Value, Value]
NONE: Row = (None, None, None)
KEY = (0, 2)


def packed(row: Row) -> bytes:
    found = struct.pack(">h", len(row))
    for value in row:
        if value is None or value is UNAVAILABLE:
            found += b"n" if value is None else b"u"
        else:
            found += b"t" + struct.pack(">i", len(value)) + value
    return found


def raw(kind: str, new: Row, old: Row) -> bytes:
    """Return a message: I, U, D; u and d with the whole old row, k for an update with the old key."""
    start = {"u": b"U", "d": b"D", "k": b"U"}.get(kind, kind.encode()) + struct.pack(">I", 10)
    if kind in "Dd":
        return start + (b"K" if kind == "D" else b"O") + packed(new)
    before = {"u": b"O" + packed(old), "k": b"K" + packed(old)}.get(kind, b"")
    return start + before + b"N" + packed(new)


keys = st.sampled_from([b"", b"a", b"b", b"ab", b"bc", b"c"])
value: st.SearchStrategy[Value] = st.one_of(st.sampled_from([b"1", b"22", b""]), st.none(), st.just(UNAVAILABLE))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    key = draw(keys), draw(keys)
    kind = draw(st.sampled_from("IUUUuDd"))
    old: Row = key[0], draw(st.sampled_from([b"0", None])), key[1]
    new: Row = key[0], draw(value), key[1]
    if kind == "D":
        new = key[0], None, key[1]
    return raw(kind, new, old)


@st.composite
def strange(draw: st.DrawFn) -> bytes:
    """Return a message with a changed or unknown key, or something that is not a message."""
    return draw(
        st.sampled_from([
            raw("k", (b"a", b"1", b"b"), (b"b", None, b"b")),
            raw("u", (b"a", b"1", b"b"), (b"b", b"1", b"b")),
            raw("U", (UNAVAILABLE, b"1", b"b"), NONE),
            raw("D", (b"a", None, None), NONE),
            raw("I", (b"a", b"1", b"b"), NONE) + b"x",
            raw("U", (b"a", b"1", b"b"), NONE)[:-3],
            b"R" + bytes(10),
            b"I",
        ])
    )  # fmt: skip


def parts_of(found: Sequence[bytes], cut: int) -> list[tuple[Any, Any, Any]]:
    """Return the messages in two runs."""
    parts = []
    for run in (found[:cut], found[cut:]):
        offsets = np.zeros(len(run) + 1, np.int64)
        np.cumsum([len(one) for one in run], out=offsets[1:])
        parts.append((np.frombuffer(b"".join(run), np.uint8), offsets, np.arange(len(run))))
    return parts


def standing(found: Sequence[bytes], cut: int = 0, most: int = 0) -> list[bytes] | None:
    """Return the messages that are kept."""
    kept = last_changes.standing(parts_of(found, cut), np.array(KEY, np.int32), 3, most)
    return None if kept is None else [one for one, stays in zip(found, np.concatenate(kept), strict=True) if stays]


def after(table: Mapping[tuple[Value, Value], Row], found: Sequence[bytes]) -> dict[tuple[Value, Value], Row]:
    """Return the table's rows after the messages; a value that is in neither is UNAVAILABLE."""
    rows = dict(table)
    for one in found:
        message = parse(one)
        assert isinstance(message, Insert | Update | Delete)
        given = message.old if isinstance(message, Delete) else message.new
        values = list(given)
        key = values[0], values[2]
        if isinstance(message, Delete):
            rows.pop(key, None)
            continue
        held = rows.get(key)
        old = message.old if isinstance(message, Update) else None
        if values[1] is UNAVAILABLE and old is not None:
            values[1] = old[1]
        elif values[1] is UNAVAILABLE and held is not None:
            values[1] = held[1]
        rows[key] = values[0], values[1], values[2]
    return rows


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(messages(), max_size=25), st.integers(0, 25), st.integers(1, 9))
def test_the_table_is_the_same_without_what_is_superfluous(found: list[bytes], cut: int, room: int) -> None:
    with patch.object(last_changes, "_FIRST_KEYS", room):
        kept = standing(found, cut)
    assert kept is not None
    known: dict[tuple[Value, Value], Row] = {
        (one, other): (one, b"known", other) for one in (b"", b"a") for other in (b"", b"b", b"bc")
    }
    for table in ({}, known):
        assert after(table, kept) == after(table, found)
    if all(b"u" not in one[5:] for one in found):
        assert len(kept) == len({(message_key(one)) for one in found})


def message_key(one: bytes) -> tuple[Value, Value]:
    message = parse(one)
    assert isinstance(message, Insert | Update | Delete)
    given = message.old if isinstance(message, Delete) else message.new
    return given[0], given[2]


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(messages(), max_size=6), strange(), st.lists(messages(), max_size=6))
def test_all_stay_where_one_is_strange(before: list[bytes], one: bytes, behind: list[bytes]) -> None:
    assert standing([*before, one, *behind]) is None


def test_a_message_that_is_too_large_stays_and_leaves_nothing_out() -> None:
    small, large = (raw("U", (b"a", text, b"b"), NONE) for text in (b"1", b"1" * 100))
    assert standing([small, large], most=len(small)) == [small, large]
    assert standing([large, small, small], most=len(small)) == [large, small]
    assert standing([small, large]) == [large]


def test_keys_of_any_length_find_room() -> None:
    found = [raw("I", (b"%d" % (number % 40) * (number % 40 + 1) * 50, b"v", b"k"), NONE)
             for number in range(200)]  # fmt: skip
    assert standing(found) == found[-40:]


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.lists(changes, min_size=1, max_size=40), min_size=1, max_size=5), st.integers(1, 3))
@example([[("I", 10, 1), ("U", 10, 1), ("U", 10, 2), ("D", 10, 2)]], 2)
def test_blocks_have_the_same_rows_and_count_the_same_changes(
    transactions: list[list[Change]], parallelism: int
) -> None:
    spool: Spool[Any, Any] = Spool(LogPosition(), 1 << 20, 0)
    for run in index(transactions, [7, 23], LogPosition(), False):
        spool.put(run)
    taken = spool.take(LogPosition(), spool.plan(LogPosition(), 1 << 30, 1 << 30))
    chosen = event_settings("server", "d", blocks=LAST, skipped_operations=frozenset())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partitioning, "SMALL_BATCH_ROWS", 1)
        found, wanted = (
            held(partitioning.tasks(PostgresRowLog(), taken, SCHEMAS, topic, True, parallelism, 0, takes_last), chosen)
            for takes_last in (lambda _: True, lambda _: False)
        )
    assert found == wanted


@pytest.mark.parametrize(("changed", "takes"), [
    ({}, True),
    ({"blocks": KEPT}, False),
    ({"blocks": EVERY}, False),
    ({"blocks": ""}, False),
    ({"skipped_operations": frozenset("t")}, True),
    ({"skipped_operations": frozenset("d")}, False),
    ({"skipped_operations": frozenset("ut")}, False),
])  # fmt: skip
def test_changes_are_left_out_where_the_last_ones_alone_are_wanted(changed: dict[str, Any], takes: bool) -> None:
    chosen = event_settings("server", "d", **{"blocks": LAST, "skipped_operations": frozenset()} | changed)
    assert all(chosen.takes_last(table) is takes for table in SCHEMAS)


def topic(table: TableSchema) -> str:
    return str(table.id)


def held(groups: Sequence[Sequence[Any]], chosen: Any) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return the rows of each table, deleted rows by their keys only, and the number of their changes."""
    rows: dict[str, list[Any]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for group in groups:
        for batch in LogTask(tuple(group), chosen, PostgresRowLog()).read():
            for key, blob in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                head = Head.of(key)
                counts[head.table] += head.changes
                for row in read(blob).to_pylist():
                    if row["op"] == "d":
                        row["c1"] = None
                    rows[head.table].append((row["position"], row["ordinal"], row["part"], sorted(row.items())))
    return {table: sorted(of, key=lambda one: one[:3]) for table, of in rows.items()}, dict(counts)
