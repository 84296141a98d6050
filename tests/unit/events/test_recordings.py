"""Handmade batches equal Debezium's recordings of the same changes in every byte except times and positions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest

from tailrace.columns import Column
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.values.plain import precision_and_scale
from tailrace.events.event_settings import EventSettings
from tests.event_settings import event_settings
from tests.unit.events.changes import batch, table
from tests.unit.events.recorded import RUN, lines_of, steady, written

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

# Positions and times, in which these batches differ from the recording.
_PLACES = [
    (re.compile(r'"(ts_ms|ts_us|ts_ns|txId|lsn)":\d+'), r'"\1":0'),
    (re.compile(r'"sequence":"\[(?:null|\\"\d+\\"),\\"\d+\\"\]"'), '"sequence":"S"'),
]


def by_topic(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of each topic in order, without positions and times."""
    topics: dict[str, list[str]] = {}
    for line in lines:
        for pattern, name in _PLACES:
            line = pattern.sub(name, line)  # noqa: PLW2901
        topics.setdefault(json.loads(line)["topic"], []).append(line)
    return topics


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
    made = (line for part in UPDATES for line in written(part, settings, FORM))
    assert by_topic(made) == by_topic(steady(line) for line in lines_of(case))


def test_numeric_modifiers_have_signed_scales() -> None:
    assert precision_and_scale(((12 << 16) | 2) + 4) == (12, 2)
    assert precision_and_scale(((5 << 16) | (-2 & 0x7FF)) + 4) == (5, -2)
