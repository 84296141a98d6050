"""The descriptor of the SQL Server connector."""

from __future__ import annotations

import re

from tailrace.config.connector import Traits
from tailrace.connectors.descriptor import Descriptor

_ROOM = "tailrace.connectors.sqlserver"
_CHANGE_TABLES = "tailrace.connectors.changetables"

CONNECTOR = Descriptor(
    traits=Traits(
        connector="sqlserver",
        gives_blocks=True,
        splits_tables=False,
        event_name="sqlserver",
        bean="sql_server",
        bean_has_task=True,
        versions={"1.0": "1.0.3.Final", "3": "3.6.1.Final"},
        system_tables=re.compile(r"(sys|cdc|information_schema)\..*|.*\.systranschemas", re.DOTALL | re.IGNORECASE),
        several_databases=True,
    ),
    title="SQL Server",
    class_name="io.debezium.connector.sqlserver.SqlServerConnector",
    asked=(
        ("database.hostname", "localhost"),
        ("database.port", "1433"),
        ("database.names", ""),
        ("database.user", ""),
        ("database.password", ""),
    ),
    removal=f"{_ROOM}.setup.removal:REMOVAL",
    survey=f"{_ROOM}.setup.survey:look",
    names=("sqlserver", "sqlserverconnector"),
    options=f"{_ROOM}.options:OPTIONS",
    planner=f"{_CHANGE_TABLES}.planner:planner",
    prerequisites=f"{_ROOM}.setup.prerequisites",
    send_signal=f"{_CHANGE_TABLES}.snapshot.signalling:send",
    describe=f"{_CHANGE_TABLES}.status:describe",
    drivers=("mssql_python",),
    loaded=(
        "mssql_python",
        "tailrace.connectors.changetables.log.rows",
        "tailrace.connectors.changetables.log.tasks",
        "tailrace.events.record_assembly",
    ),
    requirement="tailrace[sqlserver]",
    dialect=f"{_ROOM}.dialect:dialect",
    retention=f"{_CHANGE_TABLES}.retention:retention",
    form=f"{_ROOM}.values.conversions:FORM",
    documented_types=f"{_ROOM}.documented_types",
    captured_tables=f"{_CHANGE_TABLES}.captured_tables:captured",
    verify_source=f"{_ROOM}.verify_source:compared",
    consistent_read=f"{_CHANGE_TABLES}.consistent_read:held",
)
