"""Descriptor of the PostgreSQL connector: its names, and the modules that the rest of tailrace loads by name."""

from __future__ import annotations

import re

from tailrace.config.connector import Traits
from tailrace.connectors.descriptor import Descriptor

_ROOM = "tailrace.connectors.postgres"

CONNECTOR = Descriptor(
    traits=Traits(
        connector="postgres",
        event_name="postgresql",
        versions={"1.7": "1.7.2.Final", "3": "3.6.1.Final"},
        system_tables=re.compile(r"(pg_catalog|information_schema|pg_toast.*|pg_temp_.*)\..*", re.DOTALL),
        transforms={
            "io.debezium.connector.*.transforms.timescaledb.TimescaleDb": (
                "tailrace.transforms.routers.timescale:timescale_db"
            ),
        },
        gives_blocks=True,
        numbers_tables=True,
    ),
    title="PostgreSQL",
    class_name="io.debezium.connector.postgresql.PostgresConnector",
    asked=(
        ("database.hostname", "localhost"),
        ("database.port", "5432"),
        ("database.dbname", ""),
        ("database.user", ""),
        ("database.password", ""),
    ),
    names=("postgres", "postgresql", "postgresconnector"),
    options=f"{_ROOM}.options:OPTIONS",
    planner=f"{_ROOM}.planner:RetryingPlanner",
    prerequisites=f"{_ROOM}.setup.prerequisites",
    send_signal=f"{_ROOM}.snapshot.signal_table:send",
    describe=f"{_ROOM}.status:describe",
    documented_types=f"{_ROOM}.documented_types",
    captured_tables=f"{_ROOM}.captured_tables:captured",
    consistent_read=f"{_ROOM}.consistent_read:held",
    verify_source=f"{_ROOM}.verify_source:compared",
    row_lookup=f"{_ROOM}.row_lookup:present",
    slots=f"{_ROOM}.setup.slot_report",
    retention=f"{_ROOM}.log.retention:retention",
    removal=f"{_ROOM}.removal:REMOVAL",
    survey=f"{_ROOM}.survey:SURVEY",
    listing=f"{_ROOM}.live_tables:listed",
    drivers=("psycopg", "adbc_driver_postgresql", "adbc_driver_manager"),
    loaded=(
        "adbc_driver_postgresql",
        "tailrace.events.record_assembly",
        "tailrace.log.rows.small_tables",
        "tailrace.log.rows.tasks",
        f"{_ROOM}.log.messages",
        f"{_ROOM}.log.row_log",
        f"{_ROOM}.protocol.decoder",
        f"{_ROOM}.snapshot.tasks",
    ),
    requirement="tailrace[postgres]",
)
