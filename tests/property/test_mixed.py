"""Messages of many tables converted together become the same records as table by table."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch, Image, TableId, TableSchema, Transactions
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import TopicNaming
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.position import RowPositions
from tailrace.errors import TailraceError
from tailrace.events import names
from tailrace.events.event_settings import ColumnShaping, EventSettings
from tailrace.log.rows import partitioning, small_tables
from tailrace.log.rows.segment import MixedSegment, Segment
from tailrace.log.rows.small_tables import apart, records
from tailrace.log.rows.tasks import LogTask
from tests.event_settings import event_settings
from tests.extent import examples
from tests.property import json_batches
from tests.property.logs import Change, logs
from tests.property.test_shared_topics import SCHEMAS, SHARED, groups_of, taken_of

NOW = 1_795_222_828_465_236_739
SHARE = TopicNaming(expression=compile_groups(r"(.*)\.t[01]"), replacement="$1.both")
MASK = ColumnShaping.from_options({"column.mask.with.3.chars": [r"pub lic\.t0\.Key 2"]})
Message = tuple[int, bytes]
"""The number of the message's table, and its bytes."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set limits that small batches reach."""
    monkeypatch.setattr(small_tables, "MOST_PLACES", 9)
    monkeypatch.setattr(small_tables, "_MOST_CELLS", 60)
    monkeypatch.setattr(partitioning, "MIXED_TABLES", 1)
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        yield


def tuple_of(image: Image, row: int) -> bytes:
    parts = [struct.pack(">H", len(image.columns))]
    for column, unavailable in zip(image.columns, image.unavailable, strict=True):
        text = column[row].as_py()
        if unavailable is not None and unavailable[row]:
            parts.append(b"u")
        else:
            parts.append(b"n" if text is None else b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


def message_of(batch: ChangeBatch, row: int, oid: int, old: bytes) -> bytes | None:
    """Return the message of a change; None for a change that is not a single message of one table."""
    op, head = chr(batch.op[row]), struct.pack(">I", oid)
    before, after = batch.before, batch.after
    has_before = before is not None and (before.present is None or before.present[row])
    if op == "c" and after is not None:
        return b"I" + head + b"N" + tuple_of(after, row)
    if op == "u" and after is not None:
        first = b"" if not has_before or before is None else old + tuple_of(before, row)
        return b"U" + head + first + b"N" + tuple_of(after, row)
    if op == "d" and before is not None:
        return b"D" + head + old + tuple_of(before, row)
    return None


@st.composite
def mixtures(draw: Callable[..., Any]) -> MixedSegment:
    """Draw changes of up to six tables in one log."""
    tables: list[TableSchema] = []
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        batch = draw(json_batches.batches())
        table = replace(batch.table, id=TableId("golden", "pub lic", f"t{number}"), oid=number + 10)
        tables.append(table)
        for row in range(len(batch)):
            found = message_of(batch, row, table.oid, draw(st.sampled_from([b"K", b"O"])))
            if found is not None:
                messages.append((number, found))
    return segment_of(tables, draw(st.permutations(messages)), draw(st.booleans()))


def segment_of(tables: Sequence[TableSchema], messages: Sequence[Message], numbered: bool) -> MixedSegment:
    count = len(messages)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum([len(data) for _, data in messages], out=offsets[1:])
    numbers = np.arange(1, count + 1, dtype=np.int64)
    transactions = np.arange(3, dtype=np.int64)
    return MixedSegment(
        tuple(tables),
        np.array([number for number, _ in messages], np.int32),
        np.frombuffer(b"".join(data for _, data in messages), np.uint8),
        offsets,
        RowPositions(
            transaction=np.sort(np.arange(count, dtype=np.int32) % 3),
            ordinal=numbers - 1,
            total_order=numbers if numbered else None,
            table_order=2 * numbers if numbered else None,
            lsn=1000 + 10 * numbers,
        ),
        Transactions(700 + transactions, 5000 + transactions, 10**15 + transactions, 4000 * transactions - 1),
    )


def by_topic(parts: Sequence[Segment | MixedSegment], settings: EventSettings) -> dict[str, list[dict[str, Any]]]:
    """Return the records of each topic, or, under no topic, the error."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    try:
        for rows in LogTask(tuple(parts), settings, PostgresRowLog(77)).read():
            rows.validate(full=True)
            for row in rows.to_pylist():
                found[row["topic"]].append(row)
    except TailraceError as error:
        return {"": [{"error": type(error)}]}
    return found


@hypothesis_settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(mixtures(), json_batches.settings(), st.booleans(), st.booleans(), st.sampled_from([0, 0, 700]))
def test_tables_that_are_converted_together_give_what_each_gives_by_itself(
    segment: MixedSegment, settings: EventSettings, share: bool, mask: bool, most: int
) -> None:
    if most and max(np.diff(segment.offsets), default=0) > most:
        most = 0
    settings = replace(settings, most_change_bytes=most)
    if share:
        settings = replace(settings, naming=SHARE)
    if mask:
        settings = replace(settings, shaping=MASK)
    if not segment.data.size:
        return
    assert by_topic([segment], settings) == by_topic(apart(segment), settings)


PLAIN = event_settings("server", "golden", event_format="3")


def a_segment(tables: int, messages: list[Message] | None = None) -> MixedSegment:
    batch = json_batches.inserts(4)
    schemas = [replace(batch.table, id=TableId("golden", "public", f"t{n}"), oid=n + 10) for n in range(tables)]
    if messages is None:
        found = [(n, message_of(batch, row, n + 10, b"K")) for row in range(4) for n in range(tables)]
        messages = [(number, data) for number, data in found if data is not None]
    return segment_of(schemas, messages, False)


def test_changes_that_are_right_are_converted_together() -> None:
    parts = list(records(PostgresRowLog(), a_segment(30), PLAIN))
    assert not any(isinstance(part, list) for part in parts)
    assert sum(part.num_rows for part in parts if not isinstance(part, list)) == 120


HEAD = struct.pack(">I", 10)
ONE = struct.pack(">HcI", 1, b"t", 1) + b"7"


@pytest.mark.parametrize(
    "message",
    [
        b"", b"I", b"I" + HEAD, b"I" + HEAD + b"N", b"I" + HEAD + b"K" + ONE, b"X" + HEAD + b"N" + ONE,
        b"I" + struct.pack(">I", 11) + b"N" + ONE, b"I" + HEAD + b"N" + ONE[:-1], b"I" + HEAD + b"N" + ONE + b"N",
        b"I" + HEAD + b"N" + ONE + b"N" + ONE, b"I" + HEAD + b"N" + struct.pack(">Hc", 1, b"z"),
        b"I" + HEAD + b"N" + struct.pack(">HcI", 1, b"t", 0xFFFFFFFF) + b"7", b"I" + HEAD + b"N" + struct.pack(">H", 2),
        b"U" + HEAD + b"K" + ONE, b"U" + HEAD + b"K" + ONE + b"K" + ONE, b"U" + HEAD + b"N" + ONE + b"N" + ONE,
        b"D" + HEAD + b"N" + ONE, b"D" + HEAD + b"K" + ONE + b"N" + ONE,
    ],
)  # fmt: skip
def test_a_message_that_is_wrong_is_put_aside_as_that_of_one_table_is(message: bytes) -> None:
    good = b"I" + HEAD + b"N" + ONE
    segment = a_segment(3, [(0, good), (0, message), (1, b"I" + struct.pack(">I", 11) + b"N" + ONE), (0, good)])
    settings = replace(PLAIN, processing_failure_mode="skip")
    found = by_topic([segment], settings)
    assert found == by_topic(apart(segment), settings)
    assert sum(map(len, found.values())) == 4
    assert by_topic([segment], PLAIN).keys() == {""}


@hypothesis_settings(deadline=None, max_examples=examples(80))
@given(logs, st.booleans(), st.lists(st.integers(0, 200), max_size=4), st.integers(1, 4), st.booleans())
def test_a_batch_has_the_same_records_with_tables_together_and_apart(
    transactions: list[list[Change]], numbered: bool, cuts: list[int], parallelism: int, share: bool
) -> None:
    settings = SHARED if share else replace(SHARED, naming=TopicNaming())
    taken = taken_of(transactions, numbered, cuts)
    together = [part for group in groups_of(taken, False, parallelism, settings) for part in group]
    with patch.object(partitioning, "MIXED_TABLES", 1 << 30):
        apart = [part for group in groups_of(taken, False, parallelism, settings) for part in group]
    assert not any(isinstance(part, MixedSegment) for part in apart)
    if any(change[0] in "IUMD" for one in transactions for change in one if change[1] in (10, 20)) and not any(
        change[0] == "T" for one in transactions for change in one
    ):
        assert any(isinstance(part, MixedSegment) for part in together)
    assert by_topic(together, settings) == by_topic(apart, settings)


class Growing(Sequence[TableSchema]):
    """Table versions of the reader, which adds one at unexpected moments."""

    def __init__(self) -> None:
        self._found = list(SCHEMAS)

    def __len__(self) -> int:
        self._found.append(SCHEMAS[0])
        return len(self._found)

    def __getitem__(self, place: Any) -> Any:
        return self._found[place]


def test_the_reader_may_learn_of_tables_while_a_batch_is_cut() -> None:
    changes: list[list[Change]] = [[("I", table, key) for table in (10, 20) for key in range(3)]]
    taken = taken_of(changes, False, [])

    def groups(versions: Sequence[TableSchema]) -> list[list[Segment | MixedSegment]]:
        log = PostgresRowLog()
        return partitioning.tasks(log, taken, versions, lambda table: names.topic(SHARED, table.id), False, 2)

    found = [part for group in groups(Growing()) for part in group]
    assert any(isinstance(part, MixedSegment) for part in found)
    assert by_topic(found, SHARED) == by_topic([part for group in groups(SCHEMAS) for part in group], SHARED)
