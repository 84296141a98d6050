"""The descriptor of the Db2 connector."""

from __future__ import annotations

from tailrace.config.connector import Traits
from tailrace.connectors.descriptor import Descriptor

_ROOM = "tailrace.connectors.db2"
_CHANGE_TABLES = "tailrace.connectors.changetables"

CONNECTOR = Descriptor(
    traits=Traits(
        connector="db2",
        gives_blocks=True,
        splits_tables=False,
        event_name="db2",
        bean="db2_server",
        versions={"2.3": "2.3.7.Final", "3": "3.6.1.Final"},
        schema_changes_name_database=False,
    ),
    title="Db2",
    class_name="io.debezium.connector.db2.Db2Connector",
    asked=(
        ("database.hostname", "localhost"),
        ("database.port", "50000"),
        ("database.dbname", ""),
        ("database.user", ""),
        ("database.password", ""),
    ),
    names=("db2", "db2connector"),
    options=f"{_ROOM}.options:OPTIONS",
    planner=f"{_CHANGE_TABLES}.planner:planner",
    prerequisites=f"{_ROOM}.setup.prerequisites",
    send_signal=f"{_CHANGE_TABLES}.snapshot.signalling:send",
    describe=f"{_CHANGE_TABLES}.status:describe",
    drivers=("ibm_db",),
    loaded=(
        "ibm_db",
        "tailrace.connectors.changetables.log.rows",
        "tailrace.connectors.changetables.log.tasks",
        "tailrace.events.record_assembly",
    ),
    requirement="tailrace[db2]",
    dialect=f"{_ROOM}.dialect:dialect",
    retention=f"{_CHANGE_TABLES}.retention:retention",
    form=f"{_ROOM}.values.conversions:FORM",
    documented_types=f"{_ROOM}.documented_types",
    captured_tables=f"{_CHANGE_TABLES}.captured_tables:captured",
    verify_source=f"{_ROOM}.verify_source:compared",
    removal=f"{_ROOM}.setup.removal:REMOVAL",
    survey=f"{_ROOM}.setup.survey:look",
    consistent_read=f"{_CHANGE_TABLES}.consistent_read:held",
)
