"""Tables that share a topic give records in log order, by topic and by key, however their changes interleave."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tailrace.columns.table import Column, TableSchema
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import TopicNaming
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.position import LogPosition, Segment
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.log import interleaving
from tailrace.log.rows import partitioning
from tailrace.log.rows.tasks import LogTask
from tailrace.log.spool import Spool
from tests.event_settings import event_settings
from tests.extent import examples
from tests.property.test_log import SCHEMAS, Change, index, logs

APART = event_settings(
    "server",
    "d",
    key_schemas_enable=False,
    value_schemas_enable=False,
    header_schemas_enable=False,
    skipped_operations=frozenset(),
    processing_failure_mode="skip",
)
SHARED = replace(
    APART,
    naming=TopicNaming(expression=compile_groups(r"(.*)\.t[0-9]+"), replacement="$1.all"),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits that small batches reach."""
    monkeypatch.setattr(partitioning, "SMALL_BATCH_ROWS", 1)
    monkeypatch.setattr(interleaving, "WINDOW", 5)
    monkeypatch.setattr(interleaving, "PER_TABLE", 1)
    monkeypatch.setattr(interleaving, "_MOST_BYTES", 4000)


def taken_of(transactions: list[list[Change]], numbered: bool, cuts: list[int]) -> list[Rows]:
    spool = Spool(LogPosition(), 1 << 20, 0)
    for chunk in index(transactions, cuts, LogPosition(), numbered):
        spool.put(chunk)
    return spool.take(LogPosition(), spool.plan(LogPosition(), 1 << 30, 1 << 30))


def groups_of(
    taken: list[Rows], by_key: bool, parallelism: int, settings: EventSettings = SHARED
) -> list[list[Segment]]:
    log = PostgresRowLog()
    return partitioning.tasks(log, taken, SCHEMAS, lambda table: names.topic(settings, table.id), by_key, parallelism)


def records(segments_: list[Segment], settings: EventSettings = SHARED) -> list[dict[str, Any]]:
    return [row for found in LogTask(tuple(segments_), settings, PostgresRowLog()).read() for row in found.to_pylist()]


def one_by_one(taken: list[Rows]) -> Iterator[list[dict[str, Any]]]:
    """Return the records of every single change, in log order."""
    changes: list[tuple[tuple[int, int, int], Segment]] = []
    for (segment,) in groups_of(taken, False, 64, APART):
        for row in range(len(segment)):
            one = segment.cut(row, row + 1)
            total = 0 if one.by_row.total_order is None else int(one.by_row.total_order[0])
            changes.append(((int(one.transactions.commit_lsn[0]), int(one.by_row.ordinal[0]), total), one))
    for _, one in sorted(changes, key=lambda change: change[0]):
        yield records([one])


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = []
    for row in rows:
        number = json.loads(row["value"]).get("transaction") if row["value"] is not None else None
        found.append((row["topic"], row["position"], row["ordinal"], row["table"], row["op"], row["key"], number))
    return found


@hypothesis_settings(deadline=None, max_examples=examples(60))
@given(logs, st.booleans(), st.lists(st.integers(0, 200), max_size=4), st.integers(1, 4))
def test_the_records_of_a_topic_come_in_the_order_of_the_log(
    transactions: list[list[Change]], numbered: bool, cuts: list[int], parallelism: int
) -> None:
    taken = taken_of(transactions, numbered, cuts)
    groups = groups_of(taken, False, parallelism)
    assert len(groups) <= 1
    found = told(records(groups[0])) if groups else []
    expected = [row for rows in one_by_one(taken) for row in told(rows)]
    if numbered:
        assert found == expected
    else:
        # The order of the tables within a truncate is not defined.
        assert [row[:3] for row in found] == [row[:3] for row in expected]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


@hypothesis_settings(deadline=None, max_examples=examples(60))
@given(logs, st.lists(st.integers(0, 200), max_size=4), st.integers(2, 4))
def test_the_records_of_a_key_come_in_the_order_of_the_log_from_whichever_table(
    transactions: list[list[Change]], cuts: list[int], parallelism: int
) -> None:
    taken = taken_of(transactions, False, cuts)
    found: dict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
    where: dict[bytes, int] = {}
    for number, group in enumerate(groups_of(taken, True, parallelism)):
        for row in told(records(group)):
            found[row[5]].append(row)
            assert where.setdefault(row[5], number) == number or row[4] == "t"
    expected: dict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
    for rows in one_by_one(taken):
        for row in told(rows):
            expected[row[5]].append(row)
    truncates = found.pop(None, []), expected.pop(None, [])  # type: ignore[call-overload]
    assert [row[:3] for row in truncates[0]] == [row[:3] for row in truncates[1]]
    assert found == expected


def test_a_message_that_cannot_be_decoded_keeps_its_place_among_those_of_other_tables() -> None:
    changes: list[Change] = [("IUD"[n % 3], 10 + 10 * (n % 2), n % 4) for n in range(40)]
    taken = taken_of([changes], False, [])
    (group,) = groups_of(taken, False, 1)
    spoilt = group[0]
    # The tag of the tuple.
    spoilt.data = spoilt.data.copy()
    spoilt.data[spoilt.offsets[7] + 5] = ord("?")
    found = records(group)
    assert [(row["position"], row["ordinal"]) for row in found] == sorted(
        (row["position"], row["ordinal"]) for row in found
    )
    assert {row["ordinal"] for row in found} == set(range(40))
    assert [row["op"] for row in found].count("quarantine") == 1


def spread(*tables: TableSchema) -> int:
    """Return the number of tasks over which the rows of two tables with one topic are spread by key."""
    taken = taken_of([[("I", 10 + 10 * (n % 2), n % 6) for n in range(60)]], False, [])
    groups = partitioning.tasks(PostgresRowLog(), taken, list(tables), lambda table: "one", True, 4)
    return len(groups)


def keyed(number: int, *columns: Column) -> TableSchema:
    return replace(SCHEMAS[number], columns=(*columns, Column("v", "text", 25))[:2], key=(columns[0].name,))


def test_rows_are_spread_by_key_only_where_equal_keys_of_events_have_equal_texts() -> None:
    text, short = Column("id", "text", 25), Column("id", "varchar", 1043, 14)
    assert spread(keyed(0, text), keyed(1, short)) > 1
    assert spread(keyed(0, text), keyed(1, replace(text, name="other"))) == 1
    assert spread(keyed(0, text), replace(keyed(1, text), key=())) == 1
    whole, long = Column("id", "int4", 23), Column("id", "int8", 20)
    assert spread(keyed(0, whole), keyed(1, long)) > 1
    # 1 as a number of days, or as a number.
    assert spread(keyed(0, whole), keyed(1, Column("id", "date", 1082))) == 1
    # 1.0 and 1.00.
    assert spread(*(keyed(number, Column("id", "numeric", 1700)) for number in (0, 1))) == 1
    cents = Column("id", "numeric", 1700, (10 << 16) + 2 + 4)
    assert spread(keyed(0, cents), keyed(1, cents)) > 1
    assert spread(keyed(0, cents), keyed(1, replace(cents, modifier=cents.modifier - 1))) == 1
    # Bytes that are not text look alike in events.
    assert spread(*(replace(keyed(number, text), any_bytes=True) for number in (0, 1))) == 1
