"""Batches by hand against what Debezium recorded for the same changes: every byte but clocks and positions."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.columns import ChangeBatch, Column
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.values.plain import precision_and_scale
from tailrace.events.records import to_rows
from tailrace.events.settings import EventSettings
from tests.event_settings import event_settings
from tests.unit.events.changes import batch, table

CASES = Path(__file__).parents[2] / "golden" / "cases"
SINGLE = table(
    "single",
    [Column("id", "int4", 23, nullable=False), Column("name", "text", 25, nullable=False), Column("n", "int4", 23)],
    "id",
)
COMPOSITE = table(
    "composite",
    [
        Column("a", "int4", 23, nullable=False),
        Column("b", "varchar", 1043, 24, nullable=False),
        Column("v", "text", 25),
    ],
    "b",
    "a",
)
READS = ("1", "one", "10"), ("2", "two", None)
UPDATES = [
    batch(SINGLE, [("r", None, row) for row in READS], marker=[3, 5]),
    batch(
        SINGLE,
        [
            ("u", ("1", None, None), ("101", "one", "10")),
            ("u", ("2", None, None), ("102", "TWO", None)),
            ("u", None, ("101", "one", "11")),
            ("u", ("101", "one", "11"), ("201", "one", "11")),
            ("u", ("201", "one", "11"), ("201", "one", "12")),
            ("d", ("201", "one", "12"), None),
        ],
    ),
    batch(COMPOSITE, [("r", None, row) for row in (("1", "x", "first"), ("2", "y", "second"))], marker=[2, 4]),
    batch(
        COMPOSITE,
        [
            ("u", ("1", "x", None), ("1", "xx", "first")),
            ("u", ("2", "y", None), ("22", "yy", "moved")),
            ("d", ("22", "yy", None), None),
        ],
    ),
]

_VOLATILE = [
    (re.compile(r'"(ts_ms|ts_us|ts_ns|txId|lsn)":\d+'), r'"\1":0'),
    (re.compile(r'"sequence":"\[(?:null|\\"\d+\\"),\\"\d+\\"\]"'), '"sequence":"S"'),
    (re.compile(r'"[0-9a-f]{8}-[0-9a-f-]{27}"'), '"RUN"'),
]


def steady(line: str) -> str:
    for pattern, name in _VOLATILE:
        line = pattern.sub(name, line)
    return line


def recorded(case: str) -> dict[str, list[str]]:
    """The recording's lines, topic by topic."""
    topics: dict[str, list[str]] = {}
    with gzip.open(CASES / case / "expected.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            topics.setdefault(json.loads(line)["topic"], []).append(steady(line.rstrip("\n")))
    return topics


def lines(batches: list[ChangeBatch], settings: EventSettings) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for part in batches:
        for line in _lines(part, settings):
            topics.setdefault(json.loads(line)["topic"], []).append(steady(line))
    return topics


def _lines(part: ChangeBatch, settings: EventSettings) -> Iterator[str]:
    for rows in to_rows(part, settings, FORM):
        for row in rows.to_pylist():
            key, value = (text.decode() if text is not None else "null" for text in (row["key"], row["value"]))
            pairs = (f'{{"key":"{pair["key"]}","value":{pair["value"].decode()}}}' for pair in row["headers"] or [])
            yield f'{{"topic":"{row["topic"]}","key":{key},"value":{value},"headers":[{",".join(pairs)}]}}'


RUN = "01a1fb98-4581-7d68-951a-a5b3034f69bf"


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("postgres/pk_update", event_settings("dbserver1", "golden", run_id=RUN)),
        (
            "postgres/schemaless",
            event_settings(
                "dbserver1",
                "golden",
                key_schemas_enable=False,
                value_schemas_enable=False,
                header_schemas_enable=False,
                run_id=RUN,
            ),
        ),
        ("postgres-1.7/pk_update", event_settings("dbserver1", "golden", event_format="1.7", version="1.7.2.Final")),
        (
            "postgres-1.7/schemaless",
            event_settings(
                "dbserver1",
                "golden",
                event_format="1.7",
                version="1.7.2.Final",
                key_schemas_enable=False,
                value_schemas_enable=False,
                header_schemas_enable=False,
            ),
        ),
    ],
)
def test_key_changes_are_as_recorded(case: str, settings: EventSettings) -> None:
    assert lines(UPDATES, settings) == recorded(case)


def test_numeric_modifiers_have_signed_scales() -> None:
    assert precision_and_scale(((12 << 16) | 2) + 4) == (12, 2)
    assert precision_and_scale(((5 << 16) | (-2 & 0x7FF)) + 4) == (5, -2)
