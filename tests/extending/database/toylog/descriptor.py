"""The connector's descriptor; the entry point in the group `tailrace.connectors` names CONNECTOR."""

from __future__ import annotations

import re

from tailrace.config.connector import Traits
from tailrace.connectors.descriptor import Descriptor

CONNECTOR = Descriptor(
    traits=Traits(
        connector="toylog",
        event_name="toylog",
        versions={"3": "3.6.1.Final"},
        system_tables=re.compile(r"log\.sys_.*"),
    ),
    title="Toylog",
    class_name="example.ToylogConnector",
    names=("toylog", "toylogconnector"),
    options="toylog.options:OPTIONS",
    planner="toylog.planner:FilePlanner",
    prerequisites="toylog.prerequisites",
    send_signal="toylog.signals:send",
    describe="toylog.status:describe",
    signal_place="line of the log",
)
