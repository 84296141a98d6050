"""The descriptors of the connectors for MySQL and MariaDB: one room with two dialects."""

from __future__ import annotations

import re

from tailrace.config.connector import Traits
from tailrace.connectors.binlog.dialect import MARIADB, MYSQL, Dialect
from tailrace.connectors.descriptor import Descriptor

_ROOM = "tailrace.connectors.binlog"
_SYSTEM = re.compile(r"(mysql|performance_schema|sys|information_schema)\..*", re.DOTALL | re.IGNORECASE)


def _descriptor(dialect: Dialect, names: tuple[str, ...]) -> Descriptor:
    return Descriptor(
        traits=Traits(
            connector=dialect.name,
            event_name=dialect.name,
            versions={"3": dialect.version},
            system_tables=_SYSTEM,
            has_schemas=False,
            value_rules="binlog.values",
            skips_changes=True,
            gives_blocks=True,
            bean_disconnects=("streaming",),
        ),
        title=dialect.title,
        class_name=dialect.class_name,
        names=names,
        options=f"{_ROOM}.options:{dialect.name.upper()}_OPTIONS",
        planner=f"{_ROOM}.planner:BinlogPlanner",
        prerequisites=f"{_ROOM}.setup.prerequisites",
        send_signal=f"{_ROOM}.snapshot.signal_table:send",
        describe=f"{_ROOM}.status:describe",
        captured_tables=f"{_ROOM}.captured_tables:captured",
        consistent_read=f"{_ROOM}.consistent_read:held",
        verify_source=f"{_ROOM}.verify_source:compared",
        row_lookup=f"{_ROOM}.row_lookup:present",
        retention=f"{_ROOM}.retention:retention",
        asked=(
            ("database.hostname", "localhost"),
            ("database.port", "3306"),
            ("database.user", ""),
            ("database.password", ""),
        ),
        removal=f"{_ROOM}.removal:REMOVAL",
        survey=f"{_ROOM}.survey:SURVEY",
        listing=f"{_ROOM}.live_tables:listed",
        drivers=("pymysql",),
        loaded=(
            "tailrace.events.record_assembly",
            "tailrace.log.rows.small_tables",
            "tailrace.log.rows.tasks",
            f"{_ROOM}.log.decoder",
            f"{_ROOM}.log.form",
            f"{_ROOM}.log.row_log",
        ),
        requirement="tailrace[mysql]",
        # both databases share a table
        documented_types=f"{_ROOM}.documented_types" if dialect is MYSQL else "",
    )


MYSQL_CONNECTOR = _descriptor(MYSQL, ("mysql", "mysqlconnector"))
MARIADB_CONNECTOR = _descriptor(MARIADB, ("mariadb", "mariadbconnector"))
