"""The connector's options: log.file, and those of every connector."""

from __future__ import annotations

from tailrace.config import connect, connector, relational, signals
from tailrace.config.connector import Options, formats
from tailrace.config.option import Kind, Option

OPTIONS = Options(
    areas=(
        (
            "Names and topics",
            (
                *connector.NAMES,
                Option("connector.class", Kind.TEXT, "Class of the connector.", "example.ToylogConnector"),
            ),
        ),
        ("The log", (Option("log.file", Kind.TEXT, "Path of the log."),)),
        ("What is captured", relational.LISTS),
        (
            "Events",
            (
                Option("skipped.operations", Kind.LETTERS, "Operations that give no events.", frozenset("t")),
                *relational.VALUES,
                *connector.RECORDS,
            ),
        ),
        (
            "Snapshot",
            (
                Option("snapshot.mode", Kind.TEXT, "What is read before the log.", "no_data", choices=("no_data",)),
                *relational.SNAPSHOT,
            ),
        ),
        ("Signals", signals.SIGNALS),
        ("Batches", connector.FLOW),
        ("tailrace's own", (formats("3", "3"), *connector.OWN)),
        ("Kafka Connect", connect.CONNECT),
    ),
    required=("log.file", "topic.prefix"),
    event_format="3",
    generations={},
)
