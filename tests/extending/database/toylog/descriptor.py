"""The connector's descriptor, which the entry point in the group `tailrace.connectors` names, and its options."""

from __future__ import annotations

import re

from tailrace.config import connect, connector, relational, signals
from tailrace.config.connector import Options, Traits, formats
from tailrace.config.option import Kind, Option
from tailrace.connectors.descriptor import Descriptor

_CLASS = Option("connector.class", Kind.TEXT, "Class of the connector.", "example.ToylogConnector")
_MODE = Option("snapshot.mode", Kind.TEXT, "What is read before the log.", "no_data", choices=("no_data", "initial"))
_SKIPPED = Option("skipped.operations", Kind.LETTERS, "Operations that give no events.", frozenset("t"))

OPTIONS = Options(
    areas=(
        ("Names and topics", (*connector.NAMES, _CLASS)),
        ("The log", (Option("log.file", Kind.TEXT, "Path of the log."),)),
        ("What is captured", relational.LISTS),
        ("Events", (_SKIPPED, *relational.VALUES, *connector.RECORDS)),
        ("Snapshot", (_MODE, *relational.SNAPSHOT)),
        ("Signals", signals.SIGNALS),
        ("Batches", connector.FLOW),
        ("tailrace's own", (formats("3", "3"), *connector.OWN)),
        ("Kafka Connect", connect.CONNECT),
    ),
    required=("log.file", "topic.prefix"),
    event_format="3",
    generations={},
)

CONNECTOR = Descriptor(
    traits=Traits("toylog", "toylog", {"3": "3.6.1.Final"}, re.compile(r"log\.sys_.*")),
    title="Toylog",
    class_name="example.ToylogConnector",
    names=("toylog", "toylogconnector"),
    options="toylog.descriptor:OPTIONS",
    planner="toylog.planner:ToyPlanner",
    prerequisites="toylog.database",
    send_signal="toylog.database:send",
    describe="toylog.database:describe",
    signal_place="line of the log",
)
